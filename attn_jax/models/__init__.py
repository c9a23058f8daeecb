"""Models assembled from attention layers, and presets of the papers."""

from attn_jax.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    StackConfig,
)
from attn_jax.models.decoder import Decoder, DecoderCache
from attn_jax.models.encoder import Encoder
from attn_jax.models.encoder_decoder import EncoderDecoder, EncoderDecoderCache
from attn_jax.models.parameters import count_parameters
from attn_jax.models.presets import presets

__all__ = [
    "Decoder",
    "DecoderCache",
    "DecoderConfig",
    "Encoder",
    "EncoderConfig",
    "EncoderDecoder",
    "EncoderDecoderCache",
    "EncoderDecoderConfig",
    "StackConfig",
    "count_parameters",
    "presets",
]
