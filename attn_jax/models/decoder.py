"""A causal language model over any attention mechanism."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from attn_jax.models.block import make_norm
from attn_jax.models.config import DecoderConfig
from attn_jax.models.embedding import Embedding
from attn_jax.models.stack import Layer, Stack
from attn_jax.models.tokens import check_capacity, next_tokens, read, with_causality
from attn_jax.nn import dropout
from attn_jax.nn._checks import check_sizes, check_taken
from attn_jax.nn._naming import named_rngs
from attn_jax.nn.core import take_rows
from attn_jax.ops._shapes import check_array
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
        embedding, norm, stack = named_rngs(rngs, "embedding", "norm", "stack")
        self.embedding = Embedding(config, rngs=embedding)
        self.norm = make_norm(config, norm) if config.embedding_norm else None
        self.stack = Stack(config, rngs=stack)

    def __call__(
        self,
        tokens: Int[Array, "*b t"],
        *,
        mask: Mask | None = None,
        positions: Int[Array, "*b t"] | None = None,
        rng: Key[Array, ""] | None = None,
    ) -> Float[Array, "*b t vocab"]:
        """Logits of the token after each token, or output_size numbers in their place.

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
        x, around = self._read(tokens, mask, positions)
        first, second = (None, None) if rng is None else jax.random.split(rng)
        x = dropout(x, self.config.dropout_rate, first)
        x = self.stack(x, **around, rng=second)
        return self.embedding.logits(x)

    def layers(
        self,
        tokens: Int[Array, "*b t"],
        *,
        mask: Mask | None = None,
        positions: Int[Array, "*b t"] | None = None,
    ) -> Iterator[Layer]:
        """Every block with what it reads, to look into; arguments as in a call."""
        x, around = self._read(tokens, mask, positions)
        return self.stack.layers(x, **around)

    def init_cache(self, batch: int, length: int, dtype: Any = None) -> DecoderCache:
        """An empty cache for `batch` rows of up to `length` tokens."""
        check_sizes(0, batch=batch, length=length)
        check_capacity(length, self.config)
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
        tokens, positions, length = next_tokens(
            tokens, valid, cache.length, cache.room, self.config
        )
        x = self._embed(tokens, positions)
        x, layers = self.stack.decode(x, cache.layers, valid=valid)
        return self.embedding.logits(x), DecoderCache(layers, length, cache.room)

    def _read(
        self, tokens: Array, mask: Any, positions: Any
    ) -> tuple[Float[Array, "*b t m"], dict[str, Any]]:
        """The tokens' embeddings, and what the layers are told of them."""
        check_array("tokens", tokens)
        mask = with_causality(as_mask(mask))
        config = self.config
        tokens, _, around = read(
            "tokens", tokens, mask, config, config.mechanism, positions
        )
        return self._embed(tokens, around["positions"]), around

    def _embed(self, tokens: Array, positions: Any) -> Float[Array, "*b t m"]:
        x = self.embedding(tokens, positions)
        return x if self.norm is None else self.norm(x)

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
