"""The weights of a layer, for figures: what they make of the values is its output."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import UnsupportedMaskError, nn
from attn_jax.ops import masks
from tests.nn.cases import F32, B, E, G, H, M, T, attention, normal
from tests.ops.oracles import assert_close

S = 5
REAL = np.arange(T) != np.array([[0], [3], [6]])
RAGGED = np.arange(T) < np.array([[T], [4], [0]])
# Mechanism -> how its layer differs; all but one have grouped heads.
LAYERS = {
    "softmax": {"rotary": True},
    "linear": {"rotary": True, "use_bias": True},
    "dense": {"use_bias": True},
    "mixture": {"num_kv_heads": H},
    "lsh": {"rotary": True, "use_bias": True},
    "linear_normed": {"rotary": True},
}


def combined(layer, weights, x, seen):
    """output(weights values), query head j reading kv head j // (h / g); 0 unseen."""
    v = layer.value(x)
    v = jnp.repeat(v, H // layer.config.kv_heads, axis=-2)
    y = layer.mechanism.finish(jnp.einsum("bhts,bshe->bthe", weights, v))
    return jnp.where(seen[..., None], layer.output(y), 0)


def check_rows(weights, allowed):
    """Masked entries are 0 to the bit; the others of a row sum to 1, if there are."""
    allowed = np.broadcast_to(allowed, weights.shape)
    assert np.all(np.where(allowed, 0, weights) == 0)
    assert np.all(weights >= 0)
    sums = np.sum(weights, axis=-1, dtype=np.float64)
    np.testing.assert_allclose(sums, allowed.any(axis=-1), rtol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("seen", [REAL, RAGGED], ids=["holes", "ragged"])
def test_weights_of_values_are_the_output(name, seen):
    """Under causality and padding that holds NaN; a row may be padding alone."""
    layer = attention(name, **LAYERS[name])
    x = normal(0, B, T, M)

    def both(x, seen):
        mask = masks.causal() & masks.padding(seen, seen)
        weights = layer.weights(x, mask=mask)
        clean = jnp.where(seen[..., None], x, 0)
        again = combined(layer, weights, clean, seen)
        return weights, again, layer(x, mask=mask), mask.allowed(T, T)

    hidden = np.where(seen[..., None], x, np.nan)
    weights, again, want, allowed = jax.jit(both)(hidden, seen)
    assert weights.shape == (B, H, T, T)
    assert_close(again, want, F32, name)
    if name != "linear_normed":
        check_rows(np.asarray(weights), np.asarray(allowed))
    assert not np.asarray(weights)[~np.broadcast_to(seen[:, None], (B, H, T))].any()
    if name != "dense" and layer.config.kv_heads == G:
        assert np.any(weights[:, 0] != weights[:, 1]), "queries of a group are alike"


@pytest.mark.parametrize("name", [n for n, kind in nn.MECHANISMS.items() if kind.cross])
def test_weights_of_a_context_are_those_of_cross_attention(name):
    """Keys and queries are padded; one row has no context."""
    layer = attention(name, use_bias=True)
    real = np.array([[1, 1, 1, 1, 1], [0, 0, 1, 0, 1], [0, 0, 0, 0, 0]], bool)
    x = np.where(REAL[..., None], normal(0, B, T, M), np.nan)
    context = np.where(real[..., None], normal(1, B, S, M), np.nan)

    def both(x, context):
        mask = masks.padding(jnp.asarray(real), jnp.asarray(REAL))
        weights = layer.weights(x, context, mask=mask)
        clean = jnp.where(real[..., None], context, 0)
        again = combined(layer, weights, clean, REAL)
        return weights, again, layer(x, context, mask=mask), mask.allowed(T, S)

    weights, again, want, allowed = jax.jit(both)(x, context)
    assert weights.shape == (B, H, T, S)
    assert_close(again, want, F32, name)
    check_rows(np.asarray(weights), np.asarray(allowed))


def test_weights_come_before_the_exclusive_projection():
    """They are those of the layer without, and keep the diagonal."""
    plain, exclusive = (attention("softmax", exclusive=e) for e in (False, True))
    x = jnp.asarray(normal(0, B, T, M))
    want = plain.weights(x, mask=masks.window(2))
    np.testing.assert_array_equal(exclusive.weights(x, mask=masks.window(2)), want)
    assert np.all(np.diagonal(want, axis1=-2, axis2=-1) > 0)
    check_rows(np.asarray(want), np.asarray(masks.window(2).allowed(T, T)))


def test_weights_ask_for_what_a_call_asks_for(plain_errors):
    layer, x = attention("linear"), jnp.zeros((B, T, M))
    with pytest.raises(UnsupportedMaskError, match="window"):
        layer.weights(x, mask=masks.window(2))
    with pytest.raises(ValueError, match="context"):
        attention("dense").weights(x, jnp.zeros((B, S, M)))
    with pytest.raises(ValueError, match="x: "):
        layer.weights(jnp.zeros((B, T, M + 1)))


def test_sizes_in_tests_tell_axes_apart():
    assert len({B, T, S, M, H, G}) == 6
    assert E != M
