"""The one table of mechanisms: name on the command line -> config class."""

from attn_jax.nn._table import Table
from attn_jax.nn.core import Mechanism
from attn_jax.nn.linear import Linear
from attn_jax.nn.lsh import LSH
from attn_jax.nn.mixture import MixtureSynthesizer
from attn_jax.nn.partial import Partial
from attn_jax.nn.softmax import Softmax
from attn_jax.nn.synthesizer import (
    FactorizedRandomSynthesizer,
    RandomSynthesizer,
)
from attn_jax.nn.synthesizer_dense import (
    BottleneckSynthesizer,
    DenseSynthesizer,
    FactorizedDenseSynthesizer,
)
from attn_jax.nn.synthesizer_variants import ConvolutionSynthesizer, GatedSynthesizer

MECHANISMS: Table[type[Mechanism]] = Table(
    "mechanism",
    {
        "softmax": Softmax,
        "linear": Linear,
        "random": RandomSynthesizer,
        "factorized_random": FactorizedRandomSynthesizer,
        "dense": DenseSynthesizer,
        "factorized_dense": FactorizedDenseSynthesizer,
        "convolution": ConvolutionSynthesizer,
        "bottleneck": BottleneckSynthesizer,
        "gated": GatedSynthesizer,
        "mixture": MixtureSynthesizer,
        "lsh": LSH,
        "partial": Partial,
    },
)
