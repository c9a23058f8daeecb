"""Synthesizers: logits without dot products (Tay et al. 2021).

A logit belongs to a pair of positions: row = the query's, column = the key's. Where
positions are not 0, 1, 2, ... (padding, packed rows, decoding), rows and columns are
gathered by position.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from attn_jax.nn._checks import check_optional_sizes, check_sizes
from attn_jax.nn._naming import named_rngs
from attn_jax.nn.core import ALL_MASKS, Core, Mechanism, check_length
from attn_jax.ops._shapes import compute_dtype, lift

if TYPE_CHECKING:
    from attn_jax.nn.attention_config import AttentionConfig


class Fixed(nnx.Variable):
    """A value that is saved with the parameters but not trained."""


@dataclass(frozen=True, kw_only=True)
class PositionIndexed(Mechanism):
    """A mechanism whose parameters have an axis of positions.

    Attributes:
      max_length: the longest sequence, n; None takes the model's.
    """

    masks: ClassVar[frozenset[str]] = ALL_MASKS

    max_length: int | None = None

    def __post_init__(self) -> None:
        check_optional_sizes(max_length=self.max_length)

    def length(self) -> int:
        if self.max_length is None or self.max_length < 1:
            raise ValueError(
                f"max_length: got {self.max_length!r} for {type(self).__name__}; "
                "expected the longest sequence it will see, an int >= 1, since its "
                "parameters have one row or column a position"
            )
        return self.max_length


@dataclass(frozen=True, kw_only=True)
class RandomSynthesizer(PositionIndexed):
    """Logits that are parameters: one matrix a head, the same for every input.

    Attributes:
      trainable: False keeps the initial matrix (the paper's Fixed Random).
      init_std: standard deviation of the initial logits; 0 is uniform attention.
    """

    equation: ClassVar[str] = "y_i = Σ_j softmax_j(R_ij) v_j"
    cost: ClassVar[str] = "O(t s e)"
    function: ClassVar[str] = "synthesizer_attention"
    paper: ClassVar[str] = "Tay et al. 2021, Random"

    trainable: bool = True
    init_std: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_std(self.init_std)

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return RandomCore(self, config, rngs=rngs)


@dataclass(frozen=True, kw_only=True)
class FactorizedRandomSynthesizer(PositionIndexed):
    """Random logits of low rank, R = R1 R2ᵀ.

    Attributes:
      rank: k of the paper, 8.
      init_std: standard deviation of the initial logits R1 R2ᵀ.
    """

    equation: ClassVar[str] = "y_i = Σ_j softmax_j((R1 R2ᵀ)_ij) v_j"
    cost: ClassVar[str] = "O(t s (r + e))"
    function: ClassVar[str] = "factorized_random_attention"
    paper: ClassVar[str] = "Tay et al. 2021, Factorized Random"

    rank: int = 8
    init_std: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(rank=self.rank)
        _check_std(self.init_std)

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return FactorizedRandomCore(self, config, rngs=rngs)


class RandomCore(Core):
    """One matrix of logits a head."""

    def __init__(
        self, mechanism: RandomSynthesizer, config: "AttentionConfig", *, rngs: nnx.Rngs
    ):
        super().__init__(config)
        n = mechanism.length()
        kind = nnx.Param if mechanism.trainable else Fixed
        shape = (config.num_heads, n, n)
        self.random = kind(normal(rngs, shape, mechanism.init_std, config))

    def queries(self, x, keys, *, mask, positions, seen):
        """Rows as they stand, or else where they stand: gathered a block at a time."""
        if positions is None:
            return self.random[:, : x.shape[-2]], None
        return None, positions[..., None, :, None]

    def logits_of(self, queries, keys, s, *, seen):
        rows, places = queries
        if places is not None:
            rows = rows_at(self.random[...], places.shape[-2], places[..., 0, :, 0])
        return columns_at(rows, s, seen)


class FactorizedRandomCore(Core):
    """Two matrices a head whose product is the logits."""

    def __init__(
        self,
        mechanism: FactorizedRandomSynthesizer,
        config: "AttentionConfig",
        *,
        rngs: nnx.Rngs,
    ):
        super().__init__(config)
        shape = (config.num_heads, mechanism.length(), mechanism.rank)
        std = (mechanism.init_std / mechanism.rank**0.5) ** 0.5
        left, right = named_rngs(rngs, "r1", "r2")
        self.r1 = nnx.Param(normal(left, shape, std, config))
        self.r2 = nnx.Param(normal(right, shape, std, config))

    def queries(self, x, keys, *, mask, positions, seen):
        return rows_at(self.r1[...], x.shape[-2], positions)

    def logits_of(self, queries, keys, s, *, seen):
        right = rows_at(self.r2[...], s, seen)
        ndim, dtype = max(queries.ndim, right.ndim), compute_dtype(queries, right)
        left, right = (lift(a.astype(dtype), ndim) for a in (queries, right))
        return jnp.einsum("...htr,...hsr->...hts", left, right)


def _check_std(init_std: float) -> None:
    if not init_std >= 0:
        raise ValueError(
            f"init_std: got {init_std}; expected a number >= 0, the standard deviation "
            "of the initial logits"
        )


def normal(rngs: nnx.Rngs, shape: tuple[int, ...], std: float, config) -> Array:
    """Initial values N(0, std^2)."""
    return std * jax.random.normal(rngs.params(), shape, config.param_dtype)


def rows_at(
    table: Float[Array, "h n k"], t: int, positions: Any
) -> Float[Array, "*b h t k"]:
    """The rows of t positions, Int[*b t]; None is 0 .. t - 1. NaN out of range."""
    check_length(t, table.shape[-2])
    if positions is None:
        return table[:, :t]
    rows = table.at[:, positions].get(
        mode="fill", fill_value=jnp.nan, wrap_negative_indices=False
    )
    return jnp.moveaxis(rows, 0, -3)


def columns_at(
    logits: Float[Array, "*#b h t n"], s: int, seen: Any
) -> Float[Array, "*b h t s"]:
    """The columns of the keys' positions."""
    if seen is None:
        return logits[..., :s]
    leading = seen.shape[:-1]
    h, t = logits.shape[-3:-1]
    logits = jnp.broadcast_to(logits, (*leading, h, t, logits.shape[-1]))
    # A negative index would count from the end; past it, the logit is NaN.
    seen = jnp.where(seen < 0, logits.shape[-1], seen)
    index = jnp.broadcast_to(seen[..., None, None, :], (*leading, h, t, s))
    return jnp.take_along_axis(logits, index, axis=-1, mode="fill")
