"""Multi-head attention: one module for every mechanism of the table."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from attn_jax.nn._checks import (
    check_context,
    check_mask,
    check_mechanism,
    check_room,
    check_rows,
    check_sizes,
    check_taken,
    check_tokens,
    check_valid,
    clean_positions,
)
from attn_jax.nn._naming import named_rngs
from attn_jax.nn.core import Mechanism, take_rows
from attn_jax.nn.dropout import dropout
from attn_jax.nn.softmax import Softmax
from attn_jax.nn.token_positions import cross_positions, token_positions
from attn_jax.ops import exclude_self
from attn_jax.ops._linear_masks import real_tokens
from attn_jax.ops.masks import Mask, as_mask


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
        sizes = ("d_model", "num_heads", "num_kv_heads", "head_dim", "value_dim")
        check_sizes(**{name: getattr(self, name) for name in sizes})
        check_mechanism(self.mechanism)
        if self.num_heads % self.kv_heads:
            raise ValueError(
                f"num_kv_heads: got {self.num_kv_heads} for num_heads = "
                f"{self.num_heads}; expected a divisor of num_heads, so that each "
                "key/value head serves as many query heads; 1 always is"
            )
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ValueError(
                f"num_heads: got {self.num_heads} for d_model = {self.d_model}; "
                "expected a divisor of d_model; choose one, or set head_dim"
            )
        if self.rotary and self.key_dim % 2:
            raise ValueError(
                f"head_dim: got {self.key_dim}; expected an even number, since rotary "
                "positions turn pairs of features; set an even head_dim, or choose "
                "other positions"
            )
        if not self.rotary_base > 0:
            raise ValueError(
                f"rotary_base: got {self.rotary_base}; expected a number > 0, such as "
                "10000, the longest wavelength over 2 pi"
            )
        if not 0.0 <= self.dropout_rate < 1.0:
            raise ValueError(
                f"dropout_rate: got {self.dropout_rate}; expected a number in [0, 1), "
                "the share of entries dropped; 0 turns dropout off"
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
        whole = self.d_model // self.num_heads
        return whole if self.head_dim is None else self.head_dim

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
            starts at 0. The tokens of a context are counted in the same way. Concrete
            ones that start anew, without segments, warn: they keep nothing apart.
          rng: key for dropout; None is evaluation.

        Returns:
          One vector a token; 0 at a padded query.

        Raises:
          UnsupportedMaskError: a rule the mechanism cannot honour.
          ValueError: cross-attention with a mechanism, or an exclusive layer, that is
            defined for self-attention only; positions past what a mechanism was built
            for (under jit, where nothing can raise, the output there is NaN).
        """
        mask = as_mask(mask)
        check_tokens("x", x, self.config.d_model)
        check_mask(mask, self.config.mechanism)
        if context is not None:
            check_context(context, x, self.config.mechanism, self.config.exclusive)
        t, leading = x.shape[-2], x.shape[:-2]
        s = t if context is None else context.shape[-2]
        real, queries = real_tokens(mask, leading, t, s)
        if context is None:
            seen = counted = token_positions(mask, leading, t)
            x = attended = _clean(x, real)
        else:
            counted, seen = cross_positions(mask, leading, t, s)
            x, attended = _clean(x, queries), _clean(context, real)
        if positions is None:
            positions = counted
        else:
            mine = real if context is None else queries
            limit = self.config.mechanism.limit
            positions = clean_positions(positions, x.shape[:-1], mine, limit, mask)
            seen = positions if context is None else seen
        v = self.value(attended)
        keys = self.mechanism.keys(attended, seen)
        y = self.mechanism.attend(x, keys, v, mask=mask, positions=positions, seen=seen)
        y = self._finish(y, v, rng)
        return y if queries is None else jnp.where(queries[..., None], y, 0)

    def init_cache(self, batch: int, length: int, dtype: Any = None) -> AttentionCache:
        """An empty cache for `batch` rows of up to `length` tokens."""
        check_sizes(0, batch=batch, length=length)
        limit = self.config.mechanism.limit
        if limit is not None and length > limit:
            raise ValueError(
                f"length: got {length}; expected at most max_length = {limit}, the "
                "length this mechanism was built for; build it for a greater one"
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
        check_tokens("x", x, self.config.d_model)
        check_valid(valid, x.shape[:-1])
        b, n = x.shape[:2]
        check_rows("x", b, cache.length.shape[0])
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

    def take(self, cache: AttentionCache, rows: Int[Array, "k"]) -> AttentionCache:
        """The cache whose row i is row rows[i] of this one, as in `Decoder.take`."""
        check_taken(rows, cache.length.shape[0])
        core, length = take_rows((cache.core, cache.length), rows)
        return AttentionCache(core, length, cache.room)

    def _finish(self, y: Array, v: Array, rng: Any) -> Array:
        if self.config.exclusive:
            y = exclude_self(y, v)
        return dropout(self.output(y), self.config.dropout_rate, rng)


def _scaled(scale: float) -> Any:
    return nnx.initializers.variance_scaling(scale**2, "fan_in", "truncated_normal")


def _clean(x: Array, real: Array | None) -> Array:
    return x if real is None else jnp.where(real[..., None], x, 0)
