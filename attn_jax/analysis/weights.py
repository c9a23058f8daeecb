"""How attention weights are distributed over 0 .. 1."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attn_jax.ops._shapes import check_array, compute_dtype, lift
from attn_jax.ops.masks import Mask, as_mask


class WeightHistogram(NamedTuple):
    """The weights of the pairs that count.

    shares: of them in each bin, the last bin with its upper edge; they sum to 1 where
        the edges enclose all weights.
    edges: of the bins.
    mean, deviation: of the weights themselves, not of the bins.
    """

    shares: Float[Array, "n"]
    edges: Float[Array, "n+1"]
    mean: Float[Array, ""]
    deviation: Float[Array, ""]


def weight_histogram(
    weights: Float[Array, "*b h t s"],
    *,
    mask: Mask | None = None,
    edges: Any = 50,
) -> WeightHistogram:
    """How often attention weights of each size occur, over all heads and queries.

        share_k = |{(b, h, i, j) visible: edge_k <= w_bhij < edge_k+1}| / |{visible}|

    A pair that the mask forbids has weight 0 whatever the mechanism is, so it does not
    count. Reduces to `numpy.histogram` of all weights, divided by their number, where
    mask is None. Cost: O(t s) a head, and the t x s array of the mask.

    Reference: Tay et al. 2021, where such histograms stand beside each other by layer.

    Args:
      weights: of one layer, from `Attention.weights` or a model's `attention_weights`.
      mask: the rules that the layer was called with, causality included.
      edges: of the bins, increasing; or how many bins of equal width there are from 0
        to 1.

    Returns:
      A WeightHistogram; zeros where no pair counts.

    Raises:
      ValueError: edges that don't increase, fewer than two of them, or weights without
        a head axis.
    """
    check_array("weights", weights)
    edges = _edges(edges)
    if jnp.ndim(weights) < 3:
        raise ValueError(
            f"weights: got shape {weights.shape}; expected *b h t s; add an axis of "
            "heads with weights[None]"
        )
    weights = jnp.asarray(weights, compute_dtype(weights))
    visible = as_mask(mask).allowed(*weights.shape[-2:])
    ndim = max(visible.ndim, weights.ndim)
    shape = jnp.broadcast_shapes(lift(visible, ndim).shape, lift(weights, ndim).shape)
    counted = jnp.broadcast_to(lift(visible, ndim), shape)
    # What is forbidden may hold anything, and 0 · NaN is NaN.
    spread = jnp.where(counted, lift(weights, ndim), 0)
    total = jnp.maximum(jnp.sum(counted), 1).astype(weights.dtype)
    mean = jnp.sum(spread) / total
    squares = jnp.sum(jnp.square(spread - mean), where=counted) / total
    shares = _counts(spread, counted, edges) / total
    return WeightHistogram(shares, edges, mean, jnp.sqrt(squares))


def _counts(x: Array, counted: Array, edges: Array) -> Array:
    """How many are in each bin: in integers, since float32 ends counting at 2²⁴."""
    bins = jnp.searchsorted(edges, x, side="right")
    bins = jnp.where(x == edges[-1], len(edges) - 1, bins)
    ones = counted.astype(jnp.int32)
    return jnp.bincount(bins.ravel(), ones.ravel(), length=len(edges))[1:]


def _edges(edges: Any) -> Array:
    """The edges of the bins, checked."""
    if isinstance(edges, int | np.integer) and not isinstance(edges, bool):
        edges = np.linspace(0, 1, edges + 1) if edges > 0 else [edges]
    values = np.asarray(edges, np.float32)
    if values.ndim != 1 or len(values) < 2 or not np.all(np.diff(values) > 0):
        raise ValueError(
            f"edges: got {edges!r}; expected a number of bins, at least 1, or their "
            "edges, at least two, each above the one before"
        )
    return jnp.asarray(values)
