"""Pure functions on arrays: masks, positions and every attention mechanism."""

from attn_jax.ops import masks
from attn_jax.ops.exclusive import exclude_self
from attn_jax.ops.feature_maps import (
    elu_plus_one,
    exp_features,
    polynomial_features,
    relu_features,
    squared_relu_features,
)
from attn_jax.ops.linear import (
    LinearState,
    linear_attention,
    linear_attention_chunked,
    linear_attention_recurrent,
    linear_attention_scan,
    linear_attention_step,
)
from attn_jax.ops.lsh import lsh_attention
from attn_jax.ops.masks import Mask, UnsupportedMaskError
from attn_jax.ops.partial import (
    partial_attention,
    partial_logits,
    reconstruct_logits,
)
from attn_jax.ops.positions import alibi_bias, apply_rotary, sinusoidal_positions
from attn_jax.ops.softmax import softmax_attention, softmax_attention_weights
from attn_jax.ops.synthesizer import (
    dense_synthesizer_logits,
    factorized_dense_logits,
    factorized_random_logits,
    mix_logits,
    synthesizer_attention,
)
from attn_jax.ops.synthesizer_factorized import (
    factorized_dense_attention,
    factorized_random_attention,
)
from attn_jax.ops.synthesizer_variants import (
    convolution_synthesizer_logits,
    gated_synthesizer_logits,
)

__all__ = [
    "LinearState",
    "Mask",
    "UnsupportedMaskError",
    "alibi_bias",
    "apply_rotary",
    "convolution_synthesizer_logits",
    "dense_synthesizer_logits",
    "elu_plus_one",
    "exclude_self",
    "exp_features",
    "factorized_dense_attention",
    "factorized_dense_logits",
    "factorized_random_attention",
    "factorized_random_logits",
    "gated_synthesizer_logits",
    "linear_attention",
    "linear_attention_chunked",
    "linear_attention_recurrent",
    "linear_attention_scan",
    "linear_attention_step",
    "lsh_attention",
    "masks",
    "mix_logits",
    "partial_attention",
    "partial_logits",
    "polynomial_features",
    "reconstruct_logits",
    "relu_features",
    "sinusoidal_positions",
    "softmax_attention",
    "softmax_attention_weights",
    "squared_relu_features",
    "synthesizer_attention",
]
