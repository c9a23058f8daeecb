"""Multi-head attention: one module for every mechanism of the table."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from attn_jax.nn._naming import named_rngs
from attn_jax.nn.core import Mechanism
from attn_jax.nn.dropout import dropout
from attn_jax.nn.softmax import Softmax
from attn_jax.nn.token_positions import token_positions
from attn_jax.ops import exclude_self
from attn_jax.ops._linear_masks import real_tokens
from attn_jax.ops._shapes import is_traced
from attn_jax.ops.masks import Mask, UnsupportedMaskError, as_mask


@dataclass(frozen=True)
class AttentionConfig:
    """Sizes and choices of an attention layer.

    Attributes:
      d_model: width of the tokens.
      num_heads: query heads h.
      num_kv_heads: key/value heads g, a divisor of h; None is h.
      head_dim: features d of a query and key head; None is d_model // num_heads.
      value_dim: features e of a value head; None is head_dim.
      mechanism: a row of `MECHANISMS`.
      exclusive: takes each token's own value direction out of its output (XSA).
      rotary: turns queries and keys by their positions (before a feature map).
      rotary_base: the longest wavelength over 2 pi.
      alibi: adds -slope |i - j| to softmax logits.
      qk_norm: RMS-normalises queries and keys, with learnt scales.
      use_bias: biases in the projections.
      dropout_rate: of the layer's output, before the residual sum.
      output_scale: factor on the initial output projection.
      dtype, param_dtype: of computation and of parameters.
    """

    d_model: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    value_dim: int | None = None
    mechanism: Mechanism = field(default_factory=Softmax)
    exclusive: bool = False
    rotary: bool = False
    rotary_base: float = 10000.0
    alibi: bool = False
    qk_norm: bool = False
    use_bias: bool = False
    dropout_rate: float = 0.0
    output_scale: float = 1.0
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        for name in ("d_model", "num_heads", "kv_heads", "key_dim", "values_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}; expected >= 1")
        if self.num_heads % self.kv_heads:
            raise ValueError(
                f"num_kv_heads: got {self.num_kv_heads} for num_heads = "
                f"{self.num_heads}; expected a divisor of num_heads"
            )
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ValueError(
                f"num_heads: got {self.num_heads} for d_model = {self.d_model}, which "
                "it does not divide; choose a divisor, or set head_dim"
            )
        if self.rotary and self.key_dim % 2:
            raise ValueError(
                f"head_dim: got {self.key_dim}; rotary positions turn pairs of "
                "features, expected an even number"
            )
        if not 0.0 <= self.dropout_rate < 1.0:
            raise ValueError(
                f"dropout_rate: got {self.dropout_rate}; expected a number in [0, 1)"
            )

    def projection_options(self) -> dict[str, Any]:
        """What every projection of the layer has in common."""
        return {
            "use_bias": self.use_bias,
            "dtype": self.dtype,
            "param_dtype": self.param_dtype,
        }

    @property
    def kv_heads(self) -> int:
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def key_dim(self) -> int:
        return self.head_dim if self.head_dim else self.d_model // self.num_heads

    @property
    def values_dim(self) -> int:
        return self.key_dim if self.value_dim is None else self.value_dim


class AttentionCache(NamedTuple):
    """What decoding carries from token to token."""

    core: Any  # the mechanism's own: keys and values, or a state
    length: Int[Array, "b"]  # real tokens so far
    room: Int[Array, ""]  # tokens it can hold


class Attention(nnx.Module):
    """y = concat over heads (mechanism(x)) W_o, the same shell for every mechanism.

    What the mechanisms share stands here: value and output projections, the exclusive
    projection, padding, dropout, positions and the bookkeeping of decoding.
    """

    def __init__(self, config: AttentionConfig, *, rngs: nnx.Rngs):
        self.config = config
        value, output, mechanism = named_rngs(rngs, "value", "output", "mechanism")
        g, e = config.kv_heads, config.values_dim
        options = config.projection_options()
        self.value = nnx.LinearGeneral(config.d_model, (g, e), rngs=value, **options)
        self.output = nnx.LinearGeneral(
            (config.num_heads, e),
            config.d_model,
            axis=(-2, -1),
            kernel_init=_scaled(config.output_scale),
            rngs=output,
            **options,
        )
        self.mechanism = config.mechanism.build(config, rngs=mechanism)

    def __call__(
        self,
        x: Float[Array, "*b t m"],
        context: Float[Array, "*b s m"] | None = None,
        *,
        mask: Mask | None = None,
        positions: Int[Array, "*b t"] | None = None,
        rng: Key[Array, ""] | None = None,
    ) -> Float[Array, "*b t m"]:
        """Attention of x to itself, or to a context.

        Args:
          x: tokens; at padding they may hold anything.
          context: the attended tokens of cross-attention; None is self-attention.
          mask: who attends to whom.
          positions: of the tokens of x; None counts real tokens, and a packed segment
            starts at 0. Keys of a context stand at 0, 1, 2, ...
          rng: key for dropout; None is evaluation.

        Returns:
          One vector a token; 0 at a padded query.

        Raises:
          UnsupportedMaskError: a rule the mechanism cannot honour.
          ValueError: cross-attention with a mechanism, or an exclusive layer, that is
            defined for self-attention only.
        """
        mask = as_mask(mask)
        self._check(mask, context)
        t, leading = x.shape[-2], x.shape[:-2]
        if context is None:
            real, queries = real_tokens(mask, leading, t, t)
            if positions is None:
                positions = token_positions(mask, leading, t)
            x = attended = _clean(x, real)
            seen = positions
        else:
            real, queries = real_tokens(mask, leading, t, context.shape[-2])
            x, attended, seen = _clean(x, queries), _clean(context, real), None
        v = self.value(attended)
        keys = self.mechanism.keys(attended, seen)
        y = self.mechanism.attend(x, keys, v, mask=mask, positions=positions, seen=seen)
        y = self._finish(y, v, rng)
        return y if queries is None else jnp.where(queries[..., None], y, 0)

    def init_cache(self, batch: int, length: int, dtype: Any = None) -> AttentionCache:
        """An empty cache for `batch` rows of up to `length` tokens."""
        limit = self.config.mechanism.limit
        if limit is not None and length > limit:
            raise ValueError(
                f"length: got {length}; expected at most max_length = {limit}, the "
                "length this mechanism was built for"
            )
        size = (self.config.kv_heads, self.config.values_dim)
        dtype = self.config.dtype if dtype is None else dtype
        core = self.mechanism.init_cache(batch, length, size, dtype)
        return AttentionCache(
            core, jnp.zeros((batch,), jnp.int32), jnp.asarray(length, jnp.int32)
        )

    def decode(
        self,
        x: Float[Array, "b n m"],
        cache: AttentionCache,
        *,
        valid: Bool[Array, "b n"] | None = None,
    ) -> tuple[Float[Array, "b n m"], AttentionCache]:
        """Causal self-attention of n more tokens to themselves and all before them.

        Args:
          x: the next tokens, one or many.
          cache: from `init_cache` or an earlier call.
          valid: real tokens, for ragged prompts padded left or right; None is all. The
            output at the others is 0 and they take no room.

        Returns:
          Outputs and the new cache.

        Raises:
          ValueError: more tokens than the cache has room for. Under jit, where nothing
            can raise, that row's output is NaN and its cache unchanged.
        """
        b, n = x.shape[:2]
        count = jnp.full((b,), n) if valid is None else jnp.sum(valid, axis=1)
        after = cache.length + count.astype(jnp.int32)
        check_room("x", cache.room, after)
        fits = after <= cache.room
        real = jnp.arange(n)[None, :] < jnp.where(fits, count, 0)[:, None]
        order = None
        if valid is not None:
            # The real tokens first, in their order: then slot j is position j.
            order = jnp.argsort(~valid, axis=1, stable=True)[..., None]
            x = jnp.take_along_axis(_clean(x, valid), order, axis=1)
        v = self.value(x)
        y, core = self.mechanism.decode(
            x, v, cache.core, length=cache.length, real=real
        )
        y = self._finish(y, v, None)
        if order is not None:
            y = jnp.take_along_axis(y, jnp.argsort(order, axis=1), axis=1)
            y = _clean(y, valid)
        y = jnp.where(fits[:, None, None], y, jnp.nan)
        length = jnp.where(fits, after, cache.length)
        return y, AttentionCache(core, length, cache.room)

    def _finish(self, y: Array, v: Array, rng: Any) -> Array:
        if self.config.exclusive:
            y = exclude_self(y, v)
        return dropout(self.output(y), self.config.dropout_rate, rng)

    def _check(self, mask: Mask, context: Array | None) -> None:
        mechanism = self.config.mechanism
        name = type(mechanism).__name__
        for rule in mask.rules:
            kind = type(rule).__name__.lower()
            if kind not in mechanism.masks:
                raise UnsupportedMaskError(
                    f"mask: {name} cannot honour {kind}(...); expected "
                    f"{', '.join(sorted(mechanism.masks))}"
                )
        if context is None:
            return
        if self.config.exclusive:
            raise ValueError(
                "context: exclusive attention takes out each token's own value, which "
                "cross-attention does not have; set exclusive=False for this layer"
            )
        if not mechanism.cross:
            raise ValueError(
                f"context: {name} makes its logits from positions or from the query "
                "alone, so it can't compare with another sequence; use Softmax or "
                "Linear for cross-attention"
            )


def _scaled(scale: float) -> Any:
    return nnx.initializers.variance_scaling(scale**2, "fan_in", "truncated_normal")


def _clean(x: Array, real: Array | None) -> Array:
    return x if real is None else jnp.where(real[..., None], x, 0)


def check_room(name: str, room: Int[Array, ""], after: Int[Array, "b"]) -> None:
    """Raises where a concrete cache would overflow."""
    if not is_traced(room, after) and after.size and int(after.max()) > int(room):
        row = int(after.argmax())
        raise ValueError(
            f"{name}: row {row} would hold {int(after[row])} tokens; the cache has "
            f"room for {int(room)}; expected fewer tokens, or a cache from "
            "init_cache(batch, length) with a greater length"
        )
