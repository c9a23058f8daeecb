"""Linear attention as a recurrent cell (Katharopoulos et al. 2020, section 3.4)."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from attn_jax.nn._checks import check_tokens
from attn_jax.nn.attention_config import AttentionConfig
from attn_jax.nn.linear import Linear
from attn_jax.nn.shell import AttentionShell
from attn_jax.ops import LinearState, linear_attention_step
from attn_jax.ops._shapes import check_array


class LinearCarry(NamedTuple):
    """What a token leaves to the next: as much after a million as after one."""

    state: LinearState
    position: Int[Array, "*b"]  # tokens so far; rotary queries and keys turn by it


class LinearAttentionCell(AttentionShell, nnx.RNNCellBase):
    """Causal linear attention, read as a recurrent network: s and z are its memory.

        s_0 = 0,   z_0 = 0                                                     (16, 17)
        s_i = s_{i-1} + φ(x_i W_K) (x_i W_V)ᵀ                                      (18)
        z_i = z_{i-1} + φ(x_i W_K)                                                 (19)
        y_i = φ(x_i W_Q)ᵀ s_i / φ(x_i W_Q)ᵀ z_i                                    (20)

    for each head, then W_O over all heads; the residual sum and f_l of equation 20 are
    the block's. `nnx.RNN(cell)(x)` equals `Attention(config)(x, mask=causal())` with
    the same parameters, which have the same names: `nnx.update(cell, nnx.state(layer))`
    and back. Heads, widths, positions, exclusion and feature map are the config's.

    Dropout acts on the output and needs a key, which a cell is not given: use
    `dropout(y, rate, rng)` on what `nnx.RNN` returns.

    Cost: O(p e) time and memory a token and head, whatever came before. Training goes
    faster through `Attention`, which reads many tokens at once.

    Reference: Katharopoulos et al. 2020, equations 16-20.

    Raises:
      ValueError: a mechanism other than `Linear`.
    """

    def __init__(self, config: AttentionConfig, *, rngs: nnx.Rngs):
        if not isinstance(config.mechanism, Linear):
            raise ValueError(
                f"config.mechanism: got {type(config.mechanism).__name__}(); expected "
                "Linear(): it alone has a memory that does not grow with the tokens; "
                "decode others with Attention.decode, whose cache keeps them all"
            )
        super().__init__(config, rngs=rngs)

    def __call__(
        self, carry: LinearCarry, inputs: Float[Array, "*b m"]
    ) -> tuple[LinearCarry, Float[Array, "*b m"]]:
        """The next token, one a row: update the sums, then read them.

        Args:
          carry: from `initialize_carry` or the token before.
          inputs: the tokens.

        Returns:
          The carry after these tokens, and one output a row.
        """
        check_array("inputs", inputs)
        self._check_width("inputs", inputs.shape)
        if not isinstance(carry, LinearCarry):
            raise TypeError(
                f"carry: got {type(carry).__name__}; expected a LinearCarry, such as "
                "an earlier token returned; the first is "
                "cell.initialize_carry(inputs.shape)"
            )
        x, at = inputs[..., None, :], carry.position[..., None]  # an axis t of size 1
        check_tokens("inputs", x, self.config.d_model)
        core: Any = self.mechanism
        q = core.query_key.queries(x, at)[..., 0, :, :]
        k = core.query_key.keys(x, at)[..., 0, :, :]
        v = self.value(x)[..., 0, :, :]
        y, state = linear_attention_step(
            q, k, core.wide(v), carry.state, **core.options
        )
        y = self._finish(x, y[..., None, :, :], v[..., None, :, :], None)[..., 0, :]
        return LinearCarry(state, carry.position + 1), y

    def initialize_carry(
        self, input_shape: tuple[int, ...], rngs: Any = None, carry_init: Any = None
    ) -> LinearCarry:
        """s_0 = 0 and z_0 = 0.

        Args:
          input_shape: of a token, (*b, d_model).
          rngs: not used, since nothing is drawn.
          carry_init: None; the sums begin at 0.

        Raises:
          ValueError: another width than d_model, or a `carry_init`.
        """
        self._check_width("input_shape", input_shape)
        if carry_init is not None:
            raise ValueError(
                f"carry_init: got {carry_init}; expected None, since the sums begin at "
                "0; to go on from others pass initial_carry=LinearCarry(...) to nnx.RNN"
            )
        leading, e = tuple(input_shape[:-1]), self.config.values_dim
        core: Any = self.mechanism
        state = core.empty_state(leading, e, self.config.dtype)
        return LinearCarry(state, jnp.zeros(leading, jnp.int32))

    @property
    def num_feature_axes(self) -> int:
        return 1

    def _check_width(self, name: str, shape: tuple[int, ...]) -> None:
        m = self.config.d_model
        if not shape or shape[-1] != m:
            raise ValueError(
                f"{name}: got shape {shape}; expected (*b, {m}), one token a row, of "
                f"d_model = {m} features; nnx.RNN(cell) takes sequences, (*b, t, {m})"
            )
