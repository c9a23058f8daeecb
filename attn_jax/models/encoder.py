"""A model of whole sequences, with heads that predict tokens or classes."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int, Key

from attn_jax.models.block import make_norm
from attn_jax.models.config import EncoderConfig
from attn_jax.models.embedding import Embedding
from attn_jax.models.stack import Layer, Stack
from attn_jax.models.tokens import read
from attn_jax.nn import dropout
from attn_jax.nn._checks import extremes
from attn_jax.nn._naming import named_rngs
from attn_jax.nn.feed_forward import ACTIVATIONS
from attn_jax.ops._linear_masks import real_tokens
from attn_jax.ops._shapes import check_array, is_traced
from attn_jax.ops.masks import Mask, as_mask


class Encoder(nnx.Module):
    """tokens -> embedding -> blocks of self-attention, each token seeing all others.

    With `masked_lm`, `token_logits` predicts tokens (Devlin et al. 2019, section 3.1);
    with `num_classes`, `class_logits` classifies the sequence. The paper's model is
    `presets["bert-base"]`, with BERT's pooler and neither head.
    """

    def __init__(self, config: EncoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        embedding, norm, stack, pooler, classes, words = named_rngs(
            rngs, "embedding", "norm", "stack", "pooler", "classes", "words"
        )
        options = {"dtype": config.dtype, "param_dtype": config.param_dtype}
        m = config.d_model
        self.embedding = Embedding(config, num_types=config.num_types, rngs=embedding)
        self.norm = make_norm(config, norm) if config.embedding_norm else None
        self.stack = Stack(config, rngs=stack)
        if config.pooling != "none":
            self.pooler = nnx.Linear(m, m, rngs=pooler, **options)
        if config.num_classes is not None:
            self.classes = nnx.Linear(m, config.num_classes, rngs=classes, **options)
        if config.masked_lm:
            self.words = nnx.Linear(m, m, rngs=words, **options)
            self.words_norm = make_norm(config, words)
            self.words_bias = nnx.Param(
                jnp.zeros((config.vocab_size,), config.param_dtype)
            )

    def __call__(
        self,
        tokens: Int[Array, "*b t"],
        *,
        mask: Mask | None = None,
        positions: Int[Array, "*b t"] | None = None,
        types: Int[Array, "*b t"] | None = None,
        rng: Key[Array, ""] | None = None,
    ) -> Float[Array, "*b t m"]:
        """One vector a token; at padding without meaning.

        Args:
          tokens: ids in 0 .. vocab_size - 1; at padding, anything.
          mask: padding, segments, a window, ...; None is no padding.
          positions: None counts real tokens; a packed segment starts at 0.
          types: of each token, 0 .. num_types - 1; None is 0 everywhere.
          rng: key for dropout; None is evaluation.

        Raises:
          ValueError: more tokens than max_length, ids, types or positions out of range.
            Under jit, where nothing can raise, an id or a type is clipped and a
            position out of range gives NaN where it is looked up.
          UnsupportedMaskError: a rule the mechanism cannot honour.
        """
        x, around = self._read(tokens, mask, positions, types)
        first, second = (None, None) if rng is None else jax.random.split(rng)
        x = dropout(x, self.config.dropout_rate, first)
        return self.stack(x, **around, rng=second)

    def layers(
        self,
        tokens: Int[Array, "*b t"],
        *,
        mask: Mask | None = None,
        positions: Int[Array, "*b t"] | None = None,
        types: Int[Array, "*b t"] | None = None,
    ) -> Iterator[Layer]:
        """Every block with what it reads, to look into; arguments as in a call."""
        x, around = self._read(tokens, mask, positions, types)
        return self.stack.layers(x, **around)

    def attention_logits(
        self,
        tokens: Int[Array, "*b t"],
        *,
        mask: Mask | None = None,
        positions: Int[Array, "*b t"] | None = None,
        types: Int[Array, "*b t"] | None = None,
    ) -> Float[Array, "layer *b h t t"]:
        """What the softmax of every layer is taken of, for `analysis.eigen`.

        The arguments are those of a call; see `Attention.logits`.
        """
        found = [
            block.logits(x, mask=around["mask"], positions=around["positions"])
            for block, x, around in self.layers(
                tokens, mask=mask, positions=positions, types=types
            )
        ]
        return jnp.stack(found)

    def token_logits(self, x: Float[Array, "*b t m"]) -> Float[Array, "*b t vocab"]:
        """norm(activation(x W + b)) Eᵀ + c: scores of the token at each place.

        Args:
          x: what the encoder returned.
        """
        if not self.config.masked_lm:
            raise ValueError(
                "token_logits: the encoder has no head for tokens; build it with "
                "masked_lm=True"
            )
        hidden = ACTIVATIONS[self.config.activation](self.words(x))
        logits = self.embedding.logits(self.words_norm(hidden))
        bias = self.words_bias[...].astype(logits.dtype)
        return logits + jnp.broadcast_to(bias, logits.shape)

    def pool(
        self, x: Float[Array, "*b t m"], *, mask: Mask | None = None
    ) -> Float[Array, "*b m"]:
        """tanh(x̄ W + b), x̄ the first real token or the mean of the real ones.

        Args:
          x: what the encoder returned; at padding, anything.
          mask: the one it was called with; its padding counts.
        """
        if self.config.pooling == "none":
            raise ValueError(
                "pool: the encoder has no pooler; build it with pooling='first' or "
                "pooling='mean'"
            )
        *leading, t, _ = x.shape
        real, _ = real_tokens(as_mask(mask), tuple(leading), t, t)
        real = jnp.ones((*leading, t), bool) if real is None else real
        weights = real
        if self.config.pooling == "first":
            weights = real & (jnp.cumsum(real, axis=-1) == 1)
        x = jnp.where(real[..., None], x, 0)
        count = jnp.maximum(jnp.sum(weights, axis=-1, keepdims=True), 1)
        picked = jnp.einsum("...t,...tm->...m", weights.astype(x.dtype), x)
        return jnp.tanh(self.pooler(picked / count.astype(x.dtype)))

    def class_logits(
        self,
        x: Float[Array, "*b t m"],
        *,
        mask: Mask | None = None,
        rng: Key[Array, ""] | None = None,
    ) -> Float[Array, "*b classes"]:
        """Scores of the classes, from the pooled vector, which is dropped out.

        Args:
          x, mask: as in `pool`.
          rng: key for dropout, another than the encoder's; None is evaluation.
        """
        if self.config.num_classes is None:
            raise ValueError(
                "class_logits: the encoder has no classifier; build it with num_classes"
            )
        pooled = dropout(self.pool(x, mask=mask), self.config.dropout_rate, rng)
        logits = self.classes(pooled)
        return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))

    def _read(
        self, tokens: Array, mask: Any, positions: Any, types: Any
    ) -> tuple[Float[Array, "*b t m"], dict[str, Any]]:
        """The tokens' embeddings, and what the layers are told of them."""
        check_array("tokens", tokens)
        config = self.config
        tokens, real, around = read(
            "tokens", tokens, as_mask(mask), config, config.mechanism, positions
        )
        types = self._types(types, tokens, real)
        x = self.embedding(tokens, around["positions"], types)
        return (x if self.norm is None else self.norm(x)), around

    def _types(self, types: Array | None, tokens: Array, real: Array | None) -> Any:
        """Types with 0 at padding; a concrete one out of range raises."""
        n = self.config.num_types
        if types is None:
            return jnp.zeros_like(tokens) if n else None
        check_array("types", types)
        if not n:
            raise ValueError(
                "types: got some for an encoder without; expected None; build it with "
                "num_types, 2 in BERT"
            )
        if types.shape != tokens.shape or not jnp.issubdtype(types.dtype, jnp.integer):
            raise ValueError(
                f"types: got shape {types.shape} of dtype {types.dtype} for tokens of "
                f"shape {tokens.shape}; expected one integer a token"
            )
        types = types if real is None else jnp.where(real, types, 0)
        if is_traced(types) or not types.size:
            return types
        low, high = extremes(types)
        if low < 0 or high >= n:
            raise ValueError(
                f"types: got numbers from {low} to {high}; expected 0 to {n - 1} "
                "(num_types - 1)"
            )
        return types
