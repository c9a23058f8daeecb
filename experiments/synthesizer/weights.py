"""Attention weights of a trained model, counted by layer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.analysis.weights import weight_histogram
from attn_jax.data import PairBatches
from attn_jax.models import EncoderDecoder
from attn_jax.ops import masks

# Powers of the square root of 2: weights differ by factors.
EDGES = (0.0, *(2.0 ** np.arange(-12, 0.5, 0.5)).tolist())


def of_translation(model: EncoderDecoder, pairs: PairBatches) -> dict[str, Any]:
    """Histograms of the self-attention of both stacks, over one validation batch.

    The batch is the one with most tokens, so that there are weights of many sizes.
    """
    batch = max(pairs.in_order(), key=lambda batch: batch.weights.sum())
    real, target = jnp.asarray(batch.source_real), jnp.asarray(batch.weights > 0)
    around = {
        "source_mask": masks.padding(real, real),
        "target_mask": masks.padding(target, target),
    }
    sides = (jnp.asarray(batch.source), jnp.asarray(batch.target_in))
    weights = model.attention_weights(*sides, **around)
    rules = {
        "encoder": around["source_mask"],
        "decoder": around["target_mask"] & masks.causal(),
    }
    return {
        "edges": list(EDGES),
        **{
            stack: [_of_layer(layer, mask) for layer in getattr(weights, stack)]
            for stack, mask in rules.items()
        },
    }


def _of_layer(weights: jax.Array, mask: masks.Mask) -> dict[str, Any]:
    histogram = weight_histogram(weights, mask=mask, edges=EDGES)
    return {
        "shares": np.asarray(histogram.shares, np.float64).round(6).tolist(),
        "mean": float(histogram.mean),
        "deviation": float(histogram.deviation),
    }
