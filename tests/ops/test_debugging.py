"""Contract 12: which queries had nothing to attend to, in every mechanism."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attn_jax
from attn_jax import nn, ops
from attn_jax.ops import masks
from tests.nn.cases import DECODING, attention

B, T, H, G, D = 2, 5, 4, 2, 3
RNG = np.random.default_rng(0)
Q, K, V = (jnp.asarray(RNG.normal(size=(B, T, n, D)), jnp.float32) for n in (H, G, G))
LOGITS = jnp.zeros((H, T, T))
R = jnp.ones((H, T, 2))
# Example 1 starts with two keys that are no tokens, which nobody says of its queries.
KEYS = jnp.array([[True] * T, [False] * 2 + [True] * 3])
MASK = masks.causal() & masks.padding(KEYS)
BLIND = [((1,), 0), ((1,), 1)]

CALLS = {
    "dense": lambda mask: ops.softmax_attention(
        Q, K, V, mask=mask, implementation="dense"
    ),
    "blockwise": lambda mask: ops.softmax_attention(
        Q, K, V, mask=mask, implementation="blockwise"
    ),
    "weights": lambda mask: ops.softmax_attention_weights(Q, K, mask=mask),
    "linear": lambda mask: ops.linear_attention(Q, K, V, mask=mask),
    "linear, with a prefix": lambda mask: ops.linear_attention(
        Q, K, V, mask=masks.prefix(1) & mask
    ),
    "scan": lambda mask: ops.linear_attention_scan(Q, K, V, mask=mask),
    "chunked": lambda mask: ops.linear_attention_chunked(Q, K, V, mask=mask)[0],
    "recurrent": lambda mask: ops.linear_attention_recurrent(Q, K, V, mask=mask)[0],
    "synthesizer": lambda mask: ops.synthesizer_attention(LOGITS, V, mask=mask),
    "factorized random": lambda mask: ops.factorized_random_attention(
        R, R, V, mask=mask
    ),
    "factorized dense": lambda mask: ops.factorized_dense_attention(
        R, jnp.ones((H, T, 3)), V, mask=mask
    ),
    "lsh": lambda mask: ops.lsh_attention(
        Q, V, rng=jax.random.key(0), num_rounds=1, bucket_size=T, mask=mask
    ),
    "partial": lambda mask: ops.partial_attention(
        Q,
        K,
        V,
        selected=jnp.arange(2),
        reconstruction=jnp.ones((1, T, T, 2)),
        offset=jnp.zeros((1, T, T)),
        mask=mask,
    ),
}


def places(found):
    assert all(row.every_head and len(row.heads) == H for row in found)
    return sorted((row.example, row.query) for row in found)


@pytest.mark.parametrize("name", CALLS)
def test_every_op_reports_once_eagerly_and_under_jit(name, caplog):
    call = CALLS[name]
    compiled = jax.jit(call)
    silent = compiled(MASK), call(MASK)
    with attn_jax.debug() as eager:
        out = call(MASK)
    assert len(caplog.records) == len(BLIND)
    with attn_jax.debug() as traced:
        compiled(MASK)
    assert places(eager) == places(traced) == BLIND
    for before in silent:
        np.testing.assert_array_equal(out, before)
    with attn_jax.debug() as found:
        call(masks.causal() & masks.padding(KEYS, KEYS))
        call(masks.causal())
    assert found == []


@pytest.mark.parametrize("name", nn.MECHANISMS)
def test_every_layer_reports(name):
    layer = attention(name)
    x = jnp.ones((B, T, layer.config.d_model))
    with attn_jax.debug() as found:
        last = layer(x, mask=MASK)
        if name in DECODING:
            last = layer.decode(x, layer.init_cache(B, T), valid=KEYS)
    jax.block_until_ready(last)
    assert places(found) == BLIND


def test_nothing_is_left_after_the_context(caplog):
    call = jax.jit(CALLS["dense"])
    with attn_jax.debug() as found:
        call(MASK)
    assert [record.getMessage() for record in caplog.records] == [
        "query 0 of example 1 sees no key",
        "query 1 of example 1 sees no key",
    ]
    caplog.clear()
    call(MASK)
    jax.effects_barrier()
    assert places(found) == BLIND
    assert not caplog.records
    with attn_jax.debug() as again:
        call(MASK)
    assert places(again) == BLIND


def test_heads_that_see_and_heads_that_do_not():
    allowed = np.ones((H, T, T), bool)
    allowed[1:3, 4] = False
    with attn_jax.debug() as found:
        CALLS["dense"](masks.dense(jnp.asarray(allowed)))
    assert [row[1:] for row in found] == [(4, (1, 2), False)] * B
    assert str(found[1]) == "query 4 of example 1 sees no key in head 1, 2"


def test_no_keys_at_all(caplog):
    with attn_jax.debug() as found:
        ops.softmax_attention(Q, K[:, :0], V[:, :0])
    assert places(found) == [((b,), i) for b in range(B) for i in range(T)]
    assert caplog.records[-1].getMessage() == "and 2 more queries see no key"


def test_under_vmap_and_grad():
    def loss(q, keys):
        mask = masks.causal() & masks.padding(keys)
        return ops.softmax_attention(q, K[0], V[0], mask=mask).sum()

    with attn_jax.debug() as found:
        jax.vmap(jax.grad(loss))(Q, KEYS)
    assert places(found) == [((), 0), ((), 1)]


def test_contexts_nest():
    with attn_jax.debug() as outer:
        with attn_jax.debug() as inner:
            CALLS["dense"](MASK)
        CALLS["linear"](MASK)
    assert places(inner) == places(outer) == BLIND
