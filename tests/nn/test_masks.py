"""Masks through a whole layer, for every row of the mechanism table."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import nn
from attn_jax.ops import masks
from tests.models.cases import decoder, ids
from tests.nn.cases import EVERY, F32, B, M, T, attention, normal
from tests.ops.oracles import assert_close, assert_same_bits

REAL = np.array([[True] * 7, [True] * 4 + [False] * 3, [False] * 2 + [True] * 5])
WITH_DENSE = [name for name, kind in nn.MECHANISMS.items() if "dense" in kind.masks]


@pytest.mark.parametrize("row", EVERY)
def test_a_query_that_sees_nothing_gives_0_and_gets_0(row):
    """A row without a real key, and queries that stand before every key."""
    name, exclusive = row
    module = attention(name, exclusive=exclusive)
    graph, params = nnx.split(module)
    none, weights = REAL & [[True], [False], [True]], normal(1, B, T, M)

    def both(params, x, keys):
        def outputs(params, x):
            layer = nnx.merge(graph, params)
            blind = masks.causal() & masks.padding(keys)
            early = masks.causal().offset(-3)
            return layer(x, mask=blind)[1], layer(x, mask=early)[:, :3]

        out, pullback = jax.vjp(outputs, params, x)
        return out, pullback((weights[1], weights[:, :3]))

    (row_1, early), gradients = jax.jit(both)(params, normal(0, B, T, M), none)
    assert np.all(np.asarray(row_1) == 0)
    assert np.all(np.asarray(early) == 0)
    for gradient in jax.tree.leaves(gradients):
        assert np.all(np.asarray(gradient) == 0)


@pytest.mark.parametrize("name", WITH_DENSE)
def test_rules_alone_and_together_equal_the_explicit_mask(name):
    module = attention(name)
    rules = {
        "causal": masks.causal(),
        "padding": masks.padding(*[jnp.asarray(REAL)] * 2),
        "window": masks.window(2, 1),
        "both": masks.causal() & masks.padding(*[jnp.asarray(REAL)] * 2),
    }
    # The same positions for all: padding would count them anew.
    positions = np.broadcast_to(np.arange(T, dtype=np.int32), (B, T))

    def outputs(x, positions):
        def output(mask):
            return module(x, mask=mask, positions=positions)

        return {
            kind: (output(mask), output(masks.dense(mask.allowed(T, T))))
            for kind, mask in rules.items()
        }

    x = normal(0, B, T, M)
    found = jax.jit(outputs)(np.where(REAL[..., None], x, 0), positions)
    for kind, (got, want) in found.items():
        assert_close(got, want, F32, kind)
    assert np.any(found["both"][0] != found["causal"][0])


@pytest.mark.parametrize("name", nn.MECHANISMS)
def test_debug_nans_finds_nothing_in_what_a_mask_hides(name):
    """1e30 at padding, a row without a real token, values that are 0."""
    module = attention(name, exclusive=True)
    real = REAL & [[True], [True], [False]]
    x = np.where(real[..., None], normal(0, B, T, M), 1e30).astype(np.float32)
    x[0, 2] = 0

    def loss(x, real):
        mask = masks.causal() & masks.padding(real, real)
        return jnp.sum(module(x, mask=mask) ** 2)

    with jax.debug_nans(True), jax.debug_infs(True):
        gradient = jax.jit(jax.grad(loss))(jnp.asarray(x), jnp.asarray(real))
    assert np.all(np.asarray(gradient)[~real] == 0)
    assert np.any(np.asarray(gradient)[real])


RESTART = np.array([[0, 1, 2, 3, 0, 1, 2]] * B)


def test_positions_that_restart_without_segments_warn():
    """They do not keep documents apart: a mask does."""
    module, x = attention(rotary=True), jnp.asarray(normal(0, B, T, M))
    message = r"positions: .*row 0 .*token 4.*segments"
    with pytest.warns(UserWarning, match=message):
        module(x, mask=masks.causal(), positions=jnp.asarray(RESTART))
    with pytest.warns(UserWarning, match=message):
        decoder()(jnp.asarray(ids(0, B, T)), positions=jnp.asarray(RESTART))


def test_positions_that_restart_where_a_mask_keeps_documents_apart_do_not_warn():
    module, x = attention(rotary=True), jnp.asarray(normal(0, B, T, M))
    segments = masks.segments(jnp.repeat(jnp.array([3, 1]), jnp.array([4, 3])))
    tail = masks.padding(*[jnp.arange(T) < 4] * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        packed = module(x, mask=segments, positions=jnp.asarray(RESTART))
        module(x, mask=tail, positions=jnp.asarray(RESTART))
        module(
            x, mask=masks.dense(segments.allowed(T, T)), positions=jnp.asarray(RESTART)
        )
    assert_same_bits(packed, module(x, mask=segments), "positions it counts itself")
