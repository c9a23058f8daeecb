"""Multi-head attention: one module for every mechanism of the table."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from attn_jax.nn._checks import (
    check_context,
    check_decodes,
    check_memory,
    check_room,
    check_rows,
    check_sizes,
    check_taken,
    check_tokens,
    check_valid,
)
from attn_jax.nn._entrance import clean, enter
from attn_jax.nn.core import take_rows
from attn_jax.nn.inside import AttentionInside
from attn_jax.nn.token_positions import token_positions
from attn_jax.ops._linear_masks import real_tokens
from attn_jax.ops.masks import Mask, as_mask, padding


class AttentionCache(NamedTuple):
    """What decoding carries from token to token."""

    core: Any  # the mechanism's own: keys and values, or a state
    length: Int[Array, "b"]  # real tokens so far
    room: Int[Array, ""]  # tokens it can hold


class ContextCache(NamedTuple):
    """What attention to a context needs of it: any number of queries may ask."""

    core: Any  # the mechanism's own: keys and values, or a state
    real: Bool[Array, "b s"]


class Attention(AttentionInside):
    """y = concat over heads (mechanism(x)) W_o, the same shell for every mechanism.

    What the mechanisms share stands here: value and output projections, the exclusive
    projection, gates, padding, dropout, positions and the bookkeeping of decoding.
    """

    def __call__(
        self,
        x: Float[Array, "*b t m"],
        context: Float[Array, "*b s m"] | None = None,
        *,
        mask: Mask | None = None,
        positions: Int[Array, "*b t"] | None = None,
        first: Float[Array, "*b t g e"] | None = None,
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
          first: values of the stack's first layer, for a value residual; None in that
            layer.
          rng: key for dropout and what a mechanism draws; None is evaluation.

        Returns:
          One vector a token; 0 at a padded query.

        Raises:
          UnsupportedMaskError: a rule the mechanism cannot honour.
          ValueError: cross-attention with a mechanism, or an exclusive layer, that is
            defined for self-attention only; positions past what a mechanism was built
            for (under jit, where nothing can raise, the output there is NaN).
        """
        x, attended, rules, where, queries = enter(
            self.config, x, context, mask, positions
        )
        v = self.values(attended, first)
        keys = self.mechanism.keys(attended, where["seen"])
        if self.config.mechanism.draws:
            where["rng"] = rng
        y = self.mechanism.attend(x, keys, v, mask=rules, **where)
        return clean(self._finish(x, y, v, rng), queries)

    def init_cache(self, batch: int, length: int, dtype: Any = None) -> AttentionCache:
        """An empty cache for `batch` rows of up to `length` tokens."""
        check_decodes(self.config.mechanism)
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
        none, room = jnp.zeros((batch,), jnp.int32), jnp.asarray(length, jnp.int32)
        return AttentionCache(core, none, room)

    def decode(
        self,
        x: Float[Array, "b n m"],
        cache: AttentionCache,
        *,
        valid: Bool[Array, "b n"] | None = None,
        first: Float[Array, "b n g e"] | None = None,
    ) -> tuple[Float[Array, "b n m"], AttentionCache]:
        """Causal self-attention of n more tokens to themselves and all before them.

        Args:
          x: the next tokens, one or many.
          cache: from `init_cache` or an earlier call.
          valid: real tokens, for ragged prompts padded left or right; None is all. The
            output at the others is 0 and they take no room.
          first: as in a call, of these tokens.

        Returns:
          Outputs and the new cache.

        Raises:
          ValueError: more tokens than the cache has room for. Under jit, where nothing
            can raise, that row's output is NaN and its cache unchanged.
        """
        check_decodes(self.config.mechanism)
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
            x = jnp.take_along_axis(clean(x, valid), order, axis=1)
            if first is not None:
                first = jnp.take_along_axis(first, order[..., None], axis=1)
        v = self.values(x, first)
        y, core = self.mechanism.decode(
            x, v, cache.core, length=cache.length, real=real
        )
        y = self._finish(x, y, v, None)
        if order is not None:
            y = jnp.take_along_axis(y, jnp.argsort(order, axis=1), axis=1)
            y = clean(y, valid)
        y = jnp.where(fits[:, None, None], y, jnp.nan)
        length = jnp.where(fits, after, cache.length)
        return y, AttentionCache(core, length, cache.room)

    def init_context(
        self, context: Float[Array, "b s m"], *, mask: Mask | None = None
    ) -> ContextCache:
        """Keys and values of a context, or the sums over them, computed once.

        Args:
          context: the attended tokens; at padding they may hold anything.
          mask: of it padding(keys) counts, which tokens of the context are real.

        Raises:
          UnsupportedMaskError: segments; each piece of a packed row is a row here.
          ValueError: a mechanism, or an exclusive layer, without cross-attention.
        """
        mask = as_mask(mask)
        check_context(context, context, self.config.mechanism, self.config.exclusive)
        check_tokens("context", context, self.config.d_model)
        check_memory(mask)
        b, s = context.shape[:2]
        real, _ = real_tokens(mask, (b,), s, s)
        real = jnp.ones((b, s), bool) if real is None else real
        context = clean(context, real)
        seen = token_positions(padding(real), (b,), s)
        v = self.value(context)
        core = self.mechanism.init_context(context, v, real=real, seen=seen)
        return ContextCache(core, real)

    def attend_context(
        self,
        x: Float[Array, "b t m"],
        context: ContextCache,
        *,
        positions: Int[Array, "b t"] | None = None,
        valid: Bool[Array, "b t"] | None = None,
    ) -> Float[Array, "b t m"]:
        """Attention of x to a context: self(x, context) with its padding, no dropout.

        Args:
          x: tokens; where `valid` is False they may hold anything.
          context: from `init_context`.
          positions: of the tokens of x, which rotary and ALiBi positions compare with
            those of the context; None is 0 .. t - 1.
          valid: real tokens; None is all. The output at the others is 0.
        """
        check_tokens("x", x, self.config.d_model)
        check_valid(valid, x.shape[:-1])
        b, s = context.real.shape
        check_rows("x", x.shape[0], b)
        x = clean(x, valid)
        y = self.mechanism.attend_context(
            x,
            context.core,
            real=context.real,
            positions=positions,
            seen=token_positions(padding(context.real), (b,), s),
        )
        return clean(self._join(x, self.mechanism.finish(y), None), valid)

    def take(self, cache: AttentionCache, rows: Int[Array, "k"]) -> AttentionCache:
        """The cache whose row i is row rows[i] of this one, as in `Decoder.take`."""
        check_taken(rows, cache.length.shape[0])
        core, length = take_rows((cache.core, cache.length), rows)
        return AttentionCache(core, length, cache.room)
