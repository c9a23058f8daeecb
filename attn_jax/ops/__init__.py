"""Pure functions on arrays: masks, positions and every attention mechanism."""

from attn_jax.ops import masks
from attn_jax.ops.masks import Mask, UnsupportedMaskError
from attn_jax.ops.softmax import softmax_attention, softmax_attention_weights

__all__ = [
    "Mask",
    "UnsupportedMaskError",
    "masks",
    "softmax_attention",
    "softmax_attention_weights",
]
