"""Dense Synthesizers with another hidden layer (Tay et al. 2021, supplement).

The supplement names them without equations; those here are ours.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import jax
from flax import nnx

from attn_jax.nn._checks import check_sizes
from attn_jax.nn._naming import named_rngs
from attn_jax.nn.core import Core
from attn_jax.nn.synthesizer_dense import DenseCore, DenseSynthesizer, layer, value
from attn_jax.ops._convolution import convolved
from attn_jax.ops.synthesizer_variants import gated

if TYPE_CHECKING:
    from attn_jax.nn.attention_config import AttentionConfig


@dataclass(frozen=True, kw_only=True)
class ConvolutionSynthesizer(DenseSynthesizer):
    """Dense logits whose hidden layer reads the tokens just before the query's too.

    The convolution looks back, in encoders as in decoders, by position: across neither
    padding nor segments, and only at what the mask lets the query see.

    Attributes:
      kernel: tokens it reads, the query's own among them; 1 is `DenseSynthesizer`.
      hidden, share_heads, bias: as there.
    """

    equation: ClassVar[str] = (
        "y_i = Σ_j softmax_j((relu(Σ_c x_{i−c} W1_c + b1) W2 + b2)_j) v_j"
    )
    cost: ClassVar[str] = "O(c t m d + t s (d + e))"
    function: ClassVar[str] = "convolution_synthesizer_logits"
    paper: ClassVar[str] = "Tay et al. 2021, supplement: convolution"

    kernel: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(kernel=self.kernel)

    def first_shape(self, config: "AttentionConfig") -> tuple[int, ...]:
        """c h m d of the first layer."""
        return self.kernel, *super().first_shape(config)

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return ConvolutionCore(self, config, rngs=rngs)


@dataclass(frozen=True, kw_only=True)
class GatedSynthesizer(DenseSynthesizer):
    """Dense logits whose hidden layer is a gated linear unit (Dauphin et al. 2017).

    Attributes:
      hidden, share_heads, bias: as in `DenseSynthesizer`.
    """

    equation: ClassVar[str] = (
        "y_i = Σ_j softmax_j((((x_i W1 + b1) σ(x_i V1 + c1)) W2 + b2)_j) v_j"
    )
    function: ClassVar[str] = "gated_synthesizer_logits"
    paper: ClassVar[str] = "Tay et al. 2021, supplement: GLU"

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return GatedCore(self, config, rngs=rngs)


class ConvolutionCore(DenseCore):
    """A matrix a tap in the first layer; the cache keeps the tokens themselves."""

    def keys(self, x, positions):
        return x

    def queries(self, x, keys, *, mask, positions, seen):
        # Only in a cache do tokens stand by position while the queries say theirs.
        cached = keys if seen is None and positions is not None else None
        w, b = self.w1[...], value(self.b1)
        hidden = convolved(x, w, b, mask=mask, positions=positions, cached=cached)
        return jax.nn.relu(hidden)


class GatedCore(DenseCore):
    """A second matrix beside the first layer's, whose sigmoid multiplies it."""

    def __init__(
        self, mechanism: GatedSynthesizer, config: "AttentionConfig", *, rngs: nnx.Rngs
    ):
        super().__init__(mechanism, config, rngs=rngs)
        (gate,) = named_rngs(rngs, "v1")
        shape = mechanism.first_shape(config)
        self.v1, self.c1 = layer(gate, shape, mechanism.bias, config)

    def queries(self, x, keys, *, mask, positions, seen):
        w, v = self.w1[...], self.v1[...]
        return gated(x, w, value(self.b1), v, value(self.c1))
