"""Histograms of attention weights against counting them one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.analysis.weights import weight_histogram
from attn_jax.ops import masks

B, H, T, S = 2, 3, 5, 7
EDGES = np.array([0.0, 0.05, 0.1, 0.3, 1.0])


@pytest.fixture(scope="module")
def weights():
    logits = 2 * jax.random.normal(jax.random.key(0), (B, H, T, S))
    return jax.nn.softmax(logits, axis=-1)


def oracle(weights, visible, edges):
    """Every visible weight looked at in turn, in float64."""
    found, counts = [], np.zeros(len(edges) - 1)
    for b, h, i, j in np.ndindex(weights.shape):
        if not visible[b, h, i, j]:
            continue
        w = float(weights[b, h, i, j])
        found.append(w)
        for k in range(len(counts)):
            last = k == len(counts) - 1
            if edges[k] <= w < edges[k + 1] or (last and w == edges[-1]):
                counts[k] += 1
    return counts / len(found), np.mean(found), np.std(found)


def check(histogram, expected):
    shares, mean, deviation = expected
    np.testing.assert_allclose(histogram.shares, shares, atol=1e-6)
    np.testing.assert_allclose(histogram.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(histogram.deviation, deviation, rtol=1e-5)


def test_only_pairs_that_the_mask_allows_count(weights):
    keys = jnp.array([[True] * 7, [True] * 4 + [False] * 3])
    queries = jnp.array([[True] * 5, [True] * 2 + [False] * 3])
    mask = masks.padding(keys, queries) & masks.window(2, 1).offset(1)
    visible = np.broadcast_to(mask.allowed(T, S), (B, H, T, S))
    hidden = jnp.where(visible, weights, jnp.nan)
    histogram = weight_histogram(hidden, mask=mask, edges=EDGES)
    check(histogram, oracle(weights, visible, EDGES))
    np.testing.assert_allclose(jnp.sum(histogram.shares), 1, atol=1e-6)


def test_reduces_to_a_numpy_histogram_without_a_mask(weights):
    histogram = weight_histogram(weights, edges=20)
    counts, edges = np.histogram(np.asarray(weights), 20, (0, 1))
    np.testing.assert_allclose(histogram.shares, counts / weights.size, atol=1e-6)
    np.testing.assert_allclose(histogram.edges, edges, atol=1e-6)
    check(histogram, oracle(weights, np.ones((B, H, T, S), bool), np.float32(edges)))


def test_a_weight_of_one_is_in_the_last_bin():
    alone = weight_histogram(jnp.ones((1, 2, 1)), edges=4)
    np.testing.assert_array_equal(alone.shares, [0, 0, 0, 1])
    assert (alone.mean, alone.deviation) == (1, 0)


def test_more_than_float32_can_count():
    shares = weight_histogram(jnp.ones((1, 1, 2**24 + 8)), edges=2).shares
    np.testing.assert_array_equal(shares, [0, 1])


def test_where_nothing_is_visible_all_is_zero(weights):
    mask = masks.dense(jnp.zeros((1, T, S), bool))
    histogram = weight_histogram(weights, mask=mask, edges=3)
    np.testing.assert_array_equal(histogram.shares, np.zeros(3))
    assert (histogram.mean, histogram.deviation) == (0, 0)


def test_narrow_weights_are_counted_in_float32(weights):
    narrow = weights.astype(jnp.bfloat16)
    histogram = weight_histogram(narrow, edges=EDGES)
    everything = np.ones((B, H, T, S), bool)
    check(histogram, oracle(narrow.astype(jnp.float32), everything, EDGES))


@pytest.mark.parametrize("edges", [0, -3, [0.5], [0.0, 0.5, 0.5]], ids=str)
def test_edges_that_do_not_increase_are_refused(weights, edges):
    with pytest.raises(ValueError, match="edges: got"):
        weight_histogram(weights, edges=edges)


def test_weights_without_heads_are_refused(plain_errors):
    with pytest.raises(ValueError, match=r"weights: got shape \(5, 7\).*heads"):
        weight_histogram(jnp.ones((5, 7)))
