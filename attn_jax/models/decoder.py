"""A causal language model over any attention mechanism."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from attn_jax.models.config import DecoderConfig
from attn_jax.models.embedding import Embedding
from attn_jax.models.stack import Stack
from attn_jax.nn import dropout, token_positions
from attn_jax.nn._checks import (
    check_mask,
    check_room,
    check_rows,
    check_sizes,
    check_taken,
    check_valid,
    clean_positions,
    extremes,
)
from attn_jax.nn._naming import named_rngs
from attn_jax.nn.core import take_rows
from attn_jax.ops import masks
from attn_jax.ops._linear_masks import real_tokens
from attn_jax.ops._mask_rules import Prefix
from attn_jax.ops._shapes import check_array, is_traced
from attn_jax.ops.masks import Mask, as_mask


class DecoderCache(NamedTuple):
    """What decoding carries from token to token."""

    layers: Any
    length: Int[Array, "b"]  # real tokens so far
    room: Int[Array, ""]  # tokens it can hold


class Decoder(nnx.Module):
    """tokens -> embedding -> blocks of causal self-attention -> logits."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        embedding, stack = named_rngs(rngs, "embedding", "stack")
        self.embedding = Embedding(config, rngs=embedding)
        self.stack = Stack(config, rngs=stack)

    def __call__(
        self,
        tokens: Int[Array, "*b t"],
        *,
        mask: Mask | None = None,
        positions: Int[Array, "*b t"] | None = None,
        rng: Key[Array, ""] | None = None,
    ) -> Float[Array, "*b t vocab"]:
        """Logits of the token after each token.

        Args:
          tokens: ids in 0 .. vocab_size - 1; at padding, anything.
          mask: padding, segments, a window, ...; the decoder adds causality itself.
            `prefix(length)` already says what of the future is visible, so that a
            prefix language model is `decoder(tokens, mask=masks.prefix(length))`.
          positions: None counts real tokens; a packed segment starts at 0. Concrete
            ones that start anew, without segments, warn: they keep nothing apart.
          rng: key for dropout; None is evaluation.

        Raises:
          ValueError: more tokens than max_length, ids or positions out of range.
            Under jit, where nothing can raise, an id is clipped and a position out of
            range gives NaN where it is looked up.
          UnsupportedMaskError: a rule the mechanism cannot honour.
        """
        check_array("tokens", tokens)
        mask = as_mask(mask)
        if not mask.find(Prefix):
            mask = mask & masks.causal()
        t, leading = tokens.shape[-1], tokens.shape[:-1]
        if t > self.config.max_length:
            raise ValueError(
                f"tokens: got {t} tokens a row; expected at most max_length = "
                f"{self.config.max_length}; shorten the rows, or build the model with "
                "a greater max_length"
            )
        real, _ = real_tokens(mask, leading, t, t)
        check_mask(mask, self.config.mechanism)
        tokens = self._check(tokens, real)
        if positions is None:
            positions = token_positions(mask, leading, t)
        else:
            limit = self.config.max_length
            positions = clean_positions(positions, tokens.shape, real, limit, mask)
        first, second = (None, None) if rng is None else jax.random.split(rng)
        x = self.embedding(tokens, positions)
        x = dropout(x, self.config.dropout_rate, first)
        x = self.stack(x, mask=mask, positions=positions, rng=second)
        return self.embedding.logits(x)

    def init_cache(self, batch: int, length: int, dtype: Any = None) -> DecoderCache:
        """An empty cache for `batch` rows of up to `length` tokens."""
        check_sizes(0, batch=batch, length=length)
        if length > self.config.max_length:
            raise ValueError(
                f"length: got {length}; expected at most max_length = "
                f"{self.config.max_length}; build the model with a greater max_length"
            )
        dtype = self.config.dtype if dtype is None else dtype
        return DecoderCache(
            self.stack.init_cache(batch, length, dtype),
            jnp.zeros((batch,), jnp.int32),
            jnp.asarray(length, jnp.int32),
        )

    def decode(
        self,
        tokens: Int[Array, "b n"],
        cache: DecoderCache,
        *,
        valid: Bool[Array, "b n"] | None = None,
    ) -> tuple[Float[Array, "b n vocab"], DecoderCache]:
        """Logits after n more tokens, of which there may be one or many.

        Args:
          tokens: the next tokens; where `valid` is False they are padding.
          cache: from `init_cache` or an earlier call.
          valid: real tokens of ragged rows; None is all.

        Raises:
          ValueError: more tokens than the cache has room for. Under jit, where nothing
            can raise, that row's logits are NaN and its cache is unchanged.
        """
        check_array("tokens", tokens)
        check_valid(valid, tokens.shape)
        tokens = self._check(tokens, valid)
        check_rows("tokens", tokens.shape[0], cache.length.shape[0])
        if valid is None:
            counted = jnp.ones(tokens.shape, jnp.int32)
        else:
            counted = valid.astype(jnp.int32)
        after = cache.length + jnp.sum(counted, axis=1, dtype=jnp.int32)
        check_room("tokens", cache.room, after)
        before = jnp.cumsum(counted, axis=1, dtype=jnp.int32) - counted
        positions = cache.length[:, None] + before
        if valid is not None:
            positions = jnp.where(valid, positions, 0)
        x = self.embedding(tokens, positions)
        x, layers = self.stack.decode(x, cache.layers, valid=valid)
        length = jnp.where(after <= cache.room, after, cache.length)
        return self.embedding.logits(x), DecoderCache(layers, length, cache.room)

    def take(self, cache: DecoderCache, rows: Int[Array, "k"]) -> DecoderCache:
        """The cache whose row i is row rows[i] of this one.

        A row may be taken several times or not at all: a prompt is repeated for every
        beam, and a beam goes on from the one it was chosen from.

        Args:
          cache: from `init_cache` or `decode`; it stays as it is.
          rows: numbers of its rows, any number of them, in any order.

        Raises:
          ValueError: a number the cache has no row for. Under jit, where nothing can
            raise, it is the nearest row.
        """
        check_taken(rows, cache.length.shape[0])
        layers = self.stack.take(cache.layers, rows)
        return DecoderCache(layers, take_rows(cache.length, rows), cache.room)

    def _check(self, tokens: Array, real: Any) -> Array:
        """Token ids with 0 at padding; a concrete id out of range raises."""
        if not jnp.issubdtype(tokens.dtype, jnp.integer):
            raise TypeError(
                f"tokens: got dtype {tokens.dtype}; expected integer ids, Int[*b t]; "
                "cast whole numbers with tokens.astype(jnp.int32)"
            )
        tokens = tokens if real is None else jnp.where(real, tokens, 0)
        if is_traced(tokens) or not tokens.size:
            return tokens
        low, high = extremes(tokens)
        if low < 0 or high >= self.config.vocab_size:
            raise ValueError(
                f"tokens: got ids from {low} to {high}; expected 0 to "
                f"{self.config.vocab_size - 1} (vocab_size - 1); mark padding with "
                "mask=masks.padding(...), and it may hold anything"
            )
        return tokens
