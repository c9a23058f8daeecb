"""Synthesizers: logits without dot products (Tay et al. 2021).

A logit belongs to a pair of positions: row = the query's, column = the key's. Where
positions are not 0, 1, 2, ... (padding, packed rows, decoding), rows and columns are
gathered by position.
"""

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from attn_jax.nn._checks import check_sizes
from attn_jax.nn._naming import named_rngs
from attn_jax.nn.core import Core, Mechanism
from attn_jax.ops import (
    dense_synthesizer_logits,
    factorized_dense_logits,
    factorized_random_logits,
)

if TYPE_CHECKING:
    from attn_jax.nn.attention import AttentionConfig


class Fixed(nnx.Variable):
    """A value that is saved with the parameters but not trained."""


@dataclass(frozen=True, kw_only=True)
class PositionIndexed(Mechanism):
    """A mechanism whose parameters have an axis of positions.

    Attributes:
      max_length: the longest sequence, n; None takes the model's.
    """

    max_length: int | None = None

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

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        check_sizes(rank=self.rank)
        return FactorizedRandomCore(self, config, rngs=rngs)


@dataclass(frozen=True, kw_only=True)
class DenseSynthesizer(PositionIndexed):
    """Logits from the query's token alone: two layers, one output a key position.

    Attributes:
      hidden: width of the hidden layer, a head; None is head_dim.
      share_heads: one second layer for all heads.
      bias: biases in both layers.
    """

    equation: ClassVar[str] = "y_i = Σ_j softmax_j((relu(x_i W1 + b1) W2 + b2)_j) v_j"
    cost: ClassVar[str] = "O(t m d + t s (d + e))"
    function: ClassVar[str] = "dense_synthesizer_logits"
    paper: ClassVar[str] = "Tay et al. 2021, Dense"

    hidden: int | None = None
    share_heads: bool = False
    bias: bool = True

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return DenseCore(self, config, rngs=rngs)


@dataclass(frozen=True, kw_only=True)
class FactorizedDenseSynthesizer(PositionIndexed):
    """Dense logits as a product of two short vectors, C_j = A_{j // b} B_{j mod b}.

    Attributes:
      a, b: lengths of the two vectors, a b >= max_length; None takes the two nearest
        sqrt(max_length).
      hidden, bias: as in `DenseSynthesizer`.
    """

    equation: ClassVar[str] = (
        "y_i = Σ_j softmax_j(A(x_i)_{j // b} B(x_i)_{j mod b}) v_j"
    )
    cost: ClassVar[str] = "O(t m d + t d (a + b) + t s e)"
    function: ClassVar[str] = "factorized_dense_attention"
    paper: ClassVar[str] = "Tay et al. 2021, Factorized Dense"

    a: int | None = None
    b: int | None = None
    hidden: int | None = None
    bias: bool = True

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return FactorizedDenseCore(self, config, rngs=rngs)

    def factors(self) -> tuple[int, int]:
        n = self.length()
        a = self.a if self.a is not None else -(-n // self.b) if self.b else None
        a = a if a is not None else isqrt(n - 1) + 1
        b = self.b if self.b is not None else -(-n // a)
        if a < 1 or b < 1 or a * b < n:
            raise ValueError(
                f"a, b: got a = {a} and b = {b}, a b = {a * b}; expected a b >= "
                f"max_length = {n}, one logit a key position"
            )
        return a, b


class RandomCore(Core):
    """One matrix of logits a head."""

    def __init__(
        self, mechanism: RandomSynthesizer, config: "AttentionConfig", *, rngs: nnx.Rngs
    ):
        n = mechanism.length()
        kind = nnx.Param if mechanism.trainable else Fixed
        shape = (config.num_heads, n, n)
        self.random = kind(_normal(rngs, shape, mechanism.init_std, config))

    def logits(self, x, keys, s, *, positions, seen):
        rows = _rows(self.random[...], x.shape[-2], positions)
        return _columns(rows, s, seen)


class FactorizedRandomCore(Core):
    """Two matrices a head whose product is the logits."""

    def __init__(
        self,
        mechanism: FactorizedRandomSynthesizer,
        config: "AttentionConfig",
        *,
        rngs: nnx.Rngs,
    ):
        shape = (config.num_heads, mechanism.length(), mechanism.rank)
        std = (mechanism.init_std / mechanism.rank**0.5) ** 0.5
        left, right = named_rngs(rngs, "r1", "r2")
        self.r1 = nnx.Param(_normal(left, shape, std, config))
        self.r2 = nnx.Param(_normal(right, shape, std, config))

    def logits(self, x, keys, s, *, positions, seen):
        logits = factorized_random_logits(self.r1[...], self.r2[...])
        return _columns(_rows(logits, x.shape[-2], positions), s, seen)


class DenseCore(Core):
    """A hidden layer and one output a key position."""

    def __init__(
        self, mechanism: DenseSynthesizer, config: "AttentionConfig", *, rngs: nnx.Rngs
    ):
        n, d = mechanism.length(), mechanism.hidden or config.key_dim
        heads = 1 if mechanism.share_heads else config.num_heads
        first, second = named_rngs(rngs, "w1", "w2")
        self.heads = config.num_heads
        self.w1, self.b1 = _layer(
            first, config.num_heads, config.d_model, d, mechanism.bias, config
        )
        self.w2, self.b2 = _layer(second, heads, d, n, mechanism.bias, config)

    def logits(self, x, keys, s, *, positions, seen):
        w2, b2 = (_per_head(a, self.heads) for a in (self.w2, self.b2))
        logits = dense_synthesizer_logits(
            x, self.w1[...], _per_head(self.b1, self.heads), w2, b2
        )
        _check_length(x.shape[-2], logits.shape[-1])
        return _columns(logits, s, seen)


class FactorizedDenseCore(Core):
    """A hidden layer and two short outputs, repeated and tiled."""

    def __init__(
        self,
        mechanism: FactorizedDenseSynthesizer,
        config: "AttentionConfig",
        *,
        rngs: nnx.Rngs,
    ):
        h, d = config.num_heads, mechanism.hidden or config.key_dim
        a, b = mechanism.factors()
        self.n, self.split = mechanism.length(), a
        first, second = named_rngs(rngs, "w1", "w2")
        self.w1, self.b1 = _layer(first, h, config.d_model, d, mechanism.bias, config)
        self.w2, self.b2 = _layer(second, h, d, a + b, mechanism.bias, config)

    def logits(self, x, keys, s, *, positions, seen):
        _check_length(x.shape[-2], self.n)
        both = dense_synthesizer_logits(
            x,
            *(w if w is None else w[...] for w in (self.w1, self.b1, self.w2, self.b2)),
        )
        logits = factorized_dense_logits(
            both[..., : self.split], both[..., self.split :]
        )
        return _columns(logits[..., : self.n], s, seen)


def _layer(rngs, heads, width, out, bias, config):
    """Weights h in out of fan-in `width`, and biases h out or None."""
    w = nnx.Param(_normal(rngs, (heads, width, out), width**-0.5, config))
    b = nnx.Param(jnp.zeros((heads, out), config.param_dtype)) if bias else None
    return w, b


def _per_head(x: nnx.Param | None, heads: int) -> Array | None:
    if x is None:
        return None
    return jnp.broadcast_to(x[...], (heads, *x.shape[1:]))


def _normal(rngs: nnx.Rngs, shape: tuple[int, ...], std: float, config) -> Array:
    return std * jax.random.normal(rngs.params(), shape, config.param_dtype)


def _rows(
    table: Float[Array, "h n k"], t: int, positions: Any
) -> Float[Array, "*b h t k"]:
    """The rows of the queries' positions."""
    _check_length(t, table.shape[-2])
    if positions is None:
        return table[:, :t]
    rows = table.at[:, positions].get(
        mode="fill", fill_value=jnp.nan, wrap_negative_indices=False
    )
    return jnp.moveaxis(rows, 0, -3)


def _columns(
    logits: Float[Array, "*#b h t n"], s: int, seen: Any
) -> Float[Array, "*b h t s"]:
    """The columns of the keys' positions."""
    _check_length(s, logits.shape[-1])
    if seen is None:
        return logits[..., :s]
    leading = seen.shape[:-1]
    h, t = logits.shape[-3:-1]
    logits = jnp.broadcast_to(logits, (*leading, h, t, logits.shape[-1]))
    # A negative index would count from the end; past it, the logit is NaN.
    seen = jnp.where(seen < 0, logits.shape[-1], seen)
    index = jnp.broadcast_to(seen[..., None, None, :], (*leading, h, t, s))
    return jnp.take_along_axis(logits, index, axis=-1, mode="fill")


def _check_length(t: int, n: int) -> None:
    if t > n:
        raise ValueError(
            f"x: got {t} tokens; expected at most max_length = {n}, the length this "
            "Synthesizer was built for; build it for a longer one or shorten the input"
        )
