"""Flax NNX modules that own parameters and call ops."""

from attn_jax.nn.attention import Attention, AttentionCache, ContextCache
from attn_jax.nn.attention_config import AttentionConfig
from attn_jax.nn.core import ALL_MASKS, Core, Mechanism
from attn_jax.nn.dropout import dropout
from attn_jax.nn.feed_forward import FeedForward
from attn_jax.nn.linear import Linear
from attn_jax.nn.linear_cell import LinearAttentionCell, LinearCarry
from attn_jax.nn.lsh import LSH
from attn_jax.nn.mechanisms import MECHANISMS
from attn_jax.nn.mixture import MixtureSynthesizer
from attn_jax.nn.partial import Partial, Shared
from attn_jax.nn.softmax import Softmax
from attn_jax.nn.synthesizer import (
    FactorizedRandomSynthesizer,
    Fixed,
    RandomSynthesizer,
)
from attn_jax.nn.synthesizer_dense import (
    BottleneckSynthesizer,
    DenseSynthesizer,
    FactorizedDenseSynthesizer,
)
from attn_jax.nn.synthesizer_variants import ConvolutionSynthesizer, GatedSynthesizer
from attn_jax.nn.token_positions import token_positions

__all__ = [
    "ALL_MASKS",
    "LSH",
    "MECHANISMS",
    "Attention",
    "AttentionCache",
    "AttentionConfig",
    "BottleneckSynthesizer",
    "ContextCache",
    "ConvolutionSynthesizer",
    "Core",
    "DenseSynthesizer",
    "FactorizedDenseSynthesizer",
    "FactorizedRandomSynthesizer",
    "FeedForward",
    "Fixed",
    "GatedSynthesizer",
    "Linear",
    "LinearAttentionCell",
    "LinearCarry",
    "Mechanism",
    "MixtureSynthesizer",
    "Partial",
    "RandomSynthesizer",
    "Shared",
    "Softmax",
    "dropout",
    "token_positions",
]
