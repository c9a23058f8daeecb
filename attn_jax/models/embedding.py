"""Tokens to vectors and back."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from attn_jax.models.stack_config import StackConfig
from attn_jax.nn._naming import named_rngs
from attn_jax.ops import sinusoidal_positions
from attn_jax.ops._mesh import in_rows, in_whole_rows
from attn_jax.ops._shapes import lift


class Embedding(nnx.Module):
    """embedding[token] + position, and logits from the (transposed) embedding.

    Concatenated positions stand behind the embedding, [embedding[token], position].
    With num_types, the embedding of each token's type is added.
    """

    def __init__(self, config: StackConfig, *, num_types: int = 0, rngs: nnx.Rngs):
        self.config = config
        tokens, places, types, head = named_rngs(
            rngs, "tokens", "positions", "types", "head"
        )
        root = config.d_model**0.5
        scaled = config.embedding_scale == "sqrt"
        std = 1 / root if scaled else 0.02

        def normal(rngs: nnx.Rngs, std: float, *shape: int) -> nnx.Param:
            drawn = jax.random.normal(rngs.params(), shape, config.param_dtype)
            return nnx.Param(std * drawn)

        self.embedding = normal(tokens, std, config.vocab_size, config.embedding_width)
        if config.positions == "learned":
            size = std * root if scaled else std
            self.positions = normal(places, size, config.max_length, config.d_model)
        if num_types:
            self.types = normal(types, std, num_types, config.d_model)
        if not config.tie_embeddings:
            self.kernel = normal(head, std, config.d_model, config.output_width)

    def __call__(
        self, tokens: Int[Array, "*b t"], positions: Any, types: Any = None
    ) -> Float[Array, "*b t m"]:
        """Vectors of the tokens; positions=None is 0 .. t - 1."""
        table = in_whole_rows(self.embedding[...])
        x = in_rows(jnp.take(table, tokens, axis=0, mode="clip"))
        if self.config.embedding_scale is not None:
            x = x * self.config.embedding_factor
        places = self._table()
        if places is not None:
            t = tokens.shape[-1]
            place = places[:t] if positions is None else _look_up(places, positions)
            x = self._placed(x, lift(place, x.ndim))
        if types is not None:
            x = x + jnp.take(self.types[...], types, axis=0, mode="clip")
        return x.astype(self.config.dtype)

    def logits(self, x: Float[Array, "*b t m"]) -> Float[Array, "*b t vocab"]:
        """Scores of the next token, or output_size numbers, in at least float32."""
        tied = self.config.tie_embeddings
        w = self.embedding[...].T if tied else self.kernel[...]
        dtype = jnp.promote_types(x.dtype, jnp.float32)
        logits = jnp.einsum(
            "...m,mv->...v", in_rows(x), w.astype(x.dtype), preferred_element_type=dtype
        )
        return in_rows(logits)

    def _placed(
        self, x: Float[Array, "*b t w"], place: Float[Array, "*#b t w"]
    ) -> Float[Array, "*b t m"]:
        """Embeddings with their positions, added or behind them."""
        if self.config.positions != "concatenated":
            return x + place
        return jnp.concatenate([x, jnp.broadcast_to(place, x.shape)], axis=-1)

    def _table(self) -> Array | None:
        if self.config.positions == "learned":
            return self.positions[...]
        if self.config.positions in ("sinusoidal", "concatenated"):
            table = sinusoidal_positions(
                self.config.max_length,
                self.config.embedding_width,
                layout=self.config.position_layout,
            )
            return table.astype(self.config.param_dtype)
        return None


def _look_up(
    table: Float[Array, "n m"], positions: Int[Array, "*b t"]
) -> Float[Array, "*b t m"]:
    """Rows of the table; NaN past its ends, rather than its last row."""
    return table.at[positions].get(
        mode="fill", fill_value=jnp.nan, wrap_negative_indices=False
    )
