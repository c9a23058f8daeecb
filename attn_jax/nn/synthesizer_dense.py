"""Dense Synthesizers: logits from the query's token alone (Tay et al. 2021)."""

from dataclasses import dataclass
from math import isqrt, prod
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from attn_jax.nn._checks import check_optional_sizes
from attn_jax.nn._naming import named_rngs
from attn_jax.nn.core import Core
from attn_jax.nn.synthesizer import (
    PositionIndexed,
    columns_at,
    normal,
)
from attn_jax.ops import factorized_dense_logits
from attn_jax.ops._synthesizer_layers import first_layer, second_layer

if TYPE_CHECKING:
    from attn_jax.nn.attention_config import AttentionConfig


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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_optional_sizes(hidden=self.hidden)

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return DenseCore(self, config, rngs=rngs)

    def first_shape(self, config: "AttentionConfig") -> tuple[int, ...]:
        """h m d of the first layer."""
        hidden = config.key_dim if self.hidden is None else self.hidden
        return config.num_heads, config.d_model, hidden

    def second_shape(self, config: "AttentionConfig") -> tuple[int, ...]:
        """h d n of the second layer, or 1 d n."""
        heads, _, hidden = self.first_shape(config)[-3:]
        return 1 if self.share_heads else heads, hidden, self.outputs()

    def outputs(self) -> int:
        """Of the second layer, a head."""
        return self.length()


@dataclass(frozen=True, kw_only=True)
class BottleneckSynthesizer(DenseSynthesizer):
    """A dense Synthesizer with a narrow hidden layer, 16 wide in each head.

    The paper's supplement names it, without saying whether the 16 are a head's or the
    layer's; here `hidden` means what it means in `DenseSynthesizer`.
    """

    paper: ClassVar[str] = "Tay et al. 2021, supplement: bottleneck"

    hidden: int | None = 16


@dataclass(frozen=True, kw_only=True)
class FactorizedDenseSynthesizer(DenseSynthesizer):
    """Dense logits as a product of two short vectors, C_j = A_{j // b} B_{j mod b}.

    Attributes:
      a, b: lengths of the two vectors, a b = max_length; one that is None follows from
        the other. If both are, they are the two divisors nearest to each other, or, for
        a prime, which has none, the two numbers that nearest cover it: 4 · 3 for 11.
      hidden, share_heads, bias: as in `DenseSynthesizer`.
    """

    equation: ClassVar[str] = (
        "y_i = Σ_j softmax_j(A(x_i)_{j // b} B(x_i)_{j mod b}) v_j"
    )
    cost: ClassVar[str] = "O(t m d + t d (a + b) + t s e)"
    function: ClassVar[str] = "factorized_dense_attention"
    paper: ClassVar[str] = "Tay et al. 2021, Factorized Dense"

    a: int | None = None
    b: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_optional_sizes(a=self.a, b=self.b)
        if self.max_length is not None:
            self.factors()

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return FactorizedDenseCore(self, config, rngs=rngs)

    def outputs(self) -> int:
        return sum(self.factors())

    def factors(self) -> tuple[int, int]:
        """a and b, as they were given or chosen."""
        n = self.length()
        if self.a is None and self.b is None:
            return nearest_factors(n)
        a = n // self.b if self.a is None and self.b else self.a
        b = n // a if self.b is None and a else self.b
        if a is None or b is None or a * b != n:
            near = nearest_factors(n)
            raise ValueError(
                f"a, b: got a = {self.a} and b = {self.b}; expected a b = max_length = "
                f"{n}, one logit a key position; choose divisors of it, or another "
                f"max_length, or leave both out for a = {near[0]} and b = {near[1]}"
            )
        return a, b


def nearest_factors(n: int) -> tuple[int, int]:
    """The two divisors of n nearest to each other, the greater first.

    1 and n would be more outputs than without factors, so a prime is covered by the two
    numbers nearest to its root, and what is past n is cut off.
    """
    for b in range(isqrt(n), 1, -1):
        if n % b == 0:
            return n // b, b
    a = isqrt(n - 1) + 1
    return a, -(-n // a)


class DenseCore(Core):
    """A hidden layer and one output a key position."""

    def __init__(
        self, mechanism: DenseSynthesizer, config: "AttentionConfig", *, rngs: nnx.Rngs
    ):
        super().__init__(config)
        self.n, self.heads = mechanism.length(), config.num_heads
        first, second = named_rngs(rngs, "w1", "w2")
        shapes = mechanism.first_shape(config), mechanism.second_shape(config)
        self.w1, self.b1 = layer(first, shapes[0], mechanism.bias, config)
        self.w2, self.b2 = layer(second, shapes[1], mechanism.bias, config)

    def queries(self, x, keys, *, mask, positions, seen) -> Any:
        """The hidden layer, *b h t d."""
        return jax.nn.relu(first_layer(x, self.w1[...], value(self.b1)))

    def logits_of(self, queries, keys, s, *, seen):
        columns = slice(s if seen is None else self.n)
        return columns_at(self.outputs(queries, columns), s, seen)

    def outputs(
        self, hidden: Float[Array, "*b h t d"], columns: slice
    ) -> Float[Array, "*b h t k"]:
        """Some columns of the second layer, which heads may share."""
        w, b = self.w2[..., columns], value(self.b2, columns)
        w = jnp.broadcast_to(w, (self.heads, *w.shape[1:]))
        b = None if b is None else jnp.broadcast_to(b, (self.heads, b.shape[-1]))
        return second_layer(hidden, w, b)


class FactorizedDenseCore(DenseCore):
    """A hidden layer and two short outputs, repeated and tiled."""

    def __init__(
        self,
        mechanism: FactorizedDenseSynthesizer,
        config: "AttentionConfig",
        *,
        rngs: nnx.Rngs,
    ):
        super().__init__(mechanism, config, rngs=rngs)
        self.split, _ = mechanism.factors()

    def queries(self, x, keys, *, mask, positions, seen):
        """A(x): *b h t a and B(x): *b h t b, from one hidden layer."""
        hidden = super().queries(x, keys, mask=mask, positions=positions, seen=seen)
        both = self.outputs(hidden, slice(None))
        return both[..., : self.split], both[..., self.split :]

    def logits_of(self, queries, keys, s, *, seen):
        return columns_at(factorized_dense_logits(*queries)[..., : self.n], s, seen)


def layer(rngs, shape, bias, config):
    """Weights *c h in out of that fan-in, and biases h out or None."""
    *taps, heads, width, out = shape
    w = nnx.Param(normal(rngs, shape, prod((*taps, width)) ** -0.5, config))
    b = nnx.Param(jnp.zeros((heads, out), config.param_dtype)) if bias else None
    return w, b


def value(x: nnx.Param | None, columns: slice = slice(None)) -> Any:
    """The array of a parameter that may be absent, or some columns of it."""
    return None if x is None else x[..., columns]
