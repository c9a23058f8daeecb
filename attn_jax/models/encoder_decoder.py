"""The Transformer of 2017, over any attention mechanism: an encoder and a decoder."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from attn_jax.models.config import EncoderDecoderConfig
from attn_jax.models.embedding import Embedding
from attn_jax.models.stack import Stack
from attn_jax.models.tokens import (
    check_capacity,
    cross_mask,
    next_tokens,
    read,
    with_causality,
)
from attn_jax.nn import dropout
from attn_jax.nn._checks import check_mask, check_sizes, check_taken
from attn_jax.nn._naming import named_rngs
from attn_jax.nn.core import take_rows
from attn_jax.ops._shapes import check_array
from attn_jax.ops.masks import Mask, as_mask


class EncoderDecoderCache(NamedTuple):
    """What decoding carries from token to token, and what it needs of the source."""

    layers: Any
    context: Any  # of each layer, computed once
    length: Int[Array, "b"]  # real tokens so far
    room: Int[Array, ""]  # tokens it can hold


class AttentionWeights(NamedTuple):
    """Of every layer and head: how much each query gets of each value."""

    encoder: Float[Array, "layer *b h s s"]
    decoder: Float[Array, "layer *b h t t"]
    cross: Float[Array, "layer *b h t s"]


class EncoderDecoder(nnx.Module):
    """Logits of a target sequence, given its beginning and a source sequence.

        memory = encoder(√m E[source] + PE)
        logits = decoder(√m E[target] + PE, memory) Eᵀ

    In each block, x <- norm(x + dropout(f(x))) (post-norm), f being self-attention,
    in the decoder attention to memory, and max(0, x W_1 + b_1) W_2 + b_2. Embeddings
    with positions are dropped out too.

    Reference: Vaswani et al. 2017, section 3 and figure 1. Between the stacks and the
    output the paper has no further norm; `final_norm=True` puts one after each stack.
    """

    def __init__(self, config: EncoderDecoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        embedding, encoder, decoder = named_rngs(rngs, "embedding", "encoder", "stack")
        self.embedding = Embedding(config, rngs=embedding)
        self.encoder = Stack(config.encoder(), rngs=encoder)
        self.decoder = Stack(config, rngs=decoder)

    def __call__(
        self,
        source: Int[Array, "*b s"],
        target: Int[Array, "*b t"],
        *,
        source_mask: Mask | None = None,
        target_mask: Mask | None = None,
        rng: Key[Array, ""] | None = None,
    ) -> Float[Array, "*b t vocab"]:
        """Logits of the token after each token of the target, which begins with bos.

        Args:
          source, target: ids in 0 .. vocab_size - 1; at padding, anything. A row of
            nothing but padding as source is no context: attention to it gives 0.
          source_mask: of the encoder, such as `padding(real, real)`. Nobody attends to
            its padding, the decoder neither.
          target_mask: of the decoder, which adds causality itself. Padded queries and
            segments count in cross-attention too; segments have to be in both masks.
          rng: key for dropout; None is evaluation.

        Raises:
          ValueError: more tokens than max_length, ids out of range, segments in one
            mask alone. Under jit, where nothing can raise, an id is clipped.
          UnsupportedMaskError: a rule that a mechanism cannot honour.
        """
        x, around = self._read(source, target, source_mask, target_mask)
        rngs = (None,) * 3 if rng is None else jax.random.split(rng, 3)
        x = self.decoder(
            dropout(x, self.config.dropout_rate, rngs[1]),
            **around,
            context=self.encode(source, mask=source_mask, rng=rngs[0]),
            rng=rngs[2],
        )
        return self.embedding.logits(x)

    def attention_weights(
        self,
        source: Int[Array, "*b s"],
        target: Int[Array, "*b t"],
        *,
        source_mask: Mask | None = None,
        target_mask: Mask | None = None,
    ) -> AttentionWeights:
        """How much of each token every head of every layer takes, for figures.

        The arguments are those of a call; see `Attention.weights`.
        """
        x, around = self._read(source, target, source_mask, target_mask)
        memory = self.encode(source, mask=source_mask)
        y, within = self._read_source(source, source_mask)
        encoder, _ = self.encoder.weights(y, **within)
        decoder, cross = self.decoder.weights(x, **around, context=memory)
        return AttentionWeights(encoder, decoder, cross)

    def _read(
        self, source: Array, target: Array, source_mask: Any, target_mask: Any
    ) -> tuple[Array, dict[str, Any]]:
        """The target's embeddings, and what the decoder's layers are told."""
        check_array("source", source)
        check_array("target", target)
        source_mask = as_mask(source_mask)
        target_mask = with_causality(as_mask(target_mask))
        t, leading = target.shape[-1], target.shape[:-1]
        if source.shape[:-1] != leading:
            raise ValueError(
                f"target: got leading axes {leading} for a source of "
                f"{source.shape[:-1]}; expected the same, one target a source"
            )
        config = self.config
        target, _, around = read(
            "target", target, target_mask, config, config.mechanism
        )
        between = cross_mask(source_mask, target_mask, leading, t, source.shape[-1])
        check_mask(between, config.cross_mechanism)
        x = self.embedding(target, around["positions"])
        return x, {**around, "context_mask": between}

    def encode(
        self,
        source: Int[Array, "*b s"],
        *,
        mask: Mask | None = None,
        rng: Key[Array, ""] | None = None,
    ) -> Float[Array, "*b s m"]:
        """The encoder's output, one vector a token of the source.

        Args:
          source: ids in 0 .. vocab_size - 1; at padding, anything.
          mask: padding, segments, a window, ...; None is no padding.
          rng: key for dropout; None is evaluation.

        Raises:
          ValueError, UnsupportedMaskError: as in a call of the whole.
        """
        x, around = self._read_source(source, mask)
        first, second = (None, None) if rng is None else jax.random.split(rng)
        x = dropout(x, self.config.dropout_rate, first)
        return self.encoder(x, **around, rng=second)

    def _read_source(self, source: Array, mask: Any) -> tuple[Array, dict[str, Any]]:
        """The source's embeddings, and what the encoder's layers are told."""
        check_array("source", source)
        config = self.config
        source, _, around = read(
            "source", source, as_mask(mask), config, config.encoder_mechanism
        )
        return self.embedding(source, around["positions"]), around

    def init_cache(
        self,
        memory: Float[Array, "b s m"],
        length: int,
        *,
        memory_mask: Mask | None = None,
        dtype: Any = None,
    ) -> EncoderDecoderCache:
        """A cache for targets of up to `length` tokens, none so far.

        What the decoder's layers need of the memory is computed here, once: keys and
        values, or the sums of linear attention.

        Args:
          memory: from `encode`, one row a target.
          length: the most tokens of a target, bos included.
          memory_mask: the mask that `encode` had; its padding counts.
          dtype: of the target's keys and values; None is the model's.
        """
        check_array("memory", memory)
        check_sizes(0, length=length)
        check_capacity(length, self.config)
        batch = memory.shape[0]
        dtype = self.config.dtype if dtype is None else dtype
        return EncoderDecoderCache(
            self.decoder.init_cache(batch, length, dtype),
            self.decoder.init_context(memory, mask=memory_mask),
            jnp.zeros((batch,), jnp.int32),
            jnp.asarray(length, jnp.int32),
        )

    def decode(
        self,
        tokens: Int[Array, "b n"],
        cache: EncoderDecoderCache,
        *,
        valid: Bool[Array, "b n"] | None = None,
    ) -> tuple[Float[Array, "b n vocab"], EncoderDecoderCache]:
        """Logits after n more tokens of the target, of which there may be one or many.

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
        x = self.embedding(tokens, positions)
        x, layers = self.decoder.decode(x, cache.layers, cache.context, valid=valid)
        cache = cache._replace(layers=layers, length=length)
        return self.embedding.logits(x), cache

    def take(
        self, cache: EncoderDecoderCache, rows: Int[Array, "k"]
    ) -> EncoderDecoderCache:
        """The cache whose row i is row rows[i] of this one, as in `Decoder.take`."""
        check_taken(rows, cache.length.shape[0])
        return EncoderDecoderCache(
            self.decoder.take(cache.layers, rows),
            self.decoder.take_context(cache.context, rows),
            take_rows(cache.length, rows),
            cache.room,
        )
