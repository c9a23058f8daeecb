"""Pure functions on arrays: masks, positions and every attention mechanism."""

from attn_jax.ops import masks
from attn_jax.ops.linear import (
    LinearState,
    elu_plus_one,
    linear_attention,
    linear_attention_chunked,
    linear_attention_recurrent,
    linear_attention_scan,
    linear_attention_step,
)
from attn_jax.ops.masks import Mask, UnsupportedMaskError
from attn_jax.ops.softmax import softmax_attention, softmax_attention_weights

__all__ = [
    "LinearState",
    "Mask",
    "UnsupportedMaskError",
    "elu_plus_one",
    "linear_attention",
    "linear_attention_chunked",
    "linear_attention_recurrent",
    "linear_attention_scan",
    "linear_attention_step",
    "masks",
    "softmax_attention",
    "softmax_attention_weights",
]
