"""The detectors on the library's own ops, layers and models: one line each."""

from functools import partial

import jax.numpy as jnp
import pytest

from attn_jax import ops
from attn_jax.ops import masks
from attn_jax.testing import (
    assert_causal,
    assert_decode_matches,
    assert_padding_invariant,
    assert_segments_isolated,
)
from tests.models.cases import B, T, decoder, ids
from tests.nn.cases import M, attention, normal
from tests.testing.leaky import D, E, arrays

QKV = arrays((4, D), (2, D), (2, E))


def softmax(q, k, v, **options):
    return ops.softmax_attention(q, k, v, mask=masks.causal(), **options)


def weights(q, k, v):
    w = ops.softmax_attention_weights(q, k, mask=masks.causal())
    y = jnp.einsum("bgrts,bsge->btgre", w.reshape(len(w), 2, 2, T, T), v)
    return y.reshape(*q.shape[:-1], E)


OPS = {
    "dense": partial(softmax, implementation="dense", logit_cap=5.0),
    "in tiles": partial(softmax, implementation="blockwise", block_size=3),
    "weights": weights,
    "scan": ops.linear_attention_scan,
    "chunked": lambda q, k, v: ops.linear_attention_chunked(q, k, v, chunk_size=3)[0],
    "recurrent": lambda q, k, v: ops.linear_attention_recurrent(q, k, v)[0],
    "exclusive": lambda q, k, v: ops.exclude_self(softmax(q, k, v), v),
}


@pytest.mark.parametrize("name", OPS)
def test_causal_ops_pass(name):
    assert_causal(OPS[name], *QKV)


def test_without_their_mask_the_ops_are_found_out():
    with pytest.raises(AssertionError, match="f sees the future"):
        assert_causal(ops.softmax_attention, *QKV)


# tests/nn/test_contract.py runs the same laws over every row.
@pytest.mark.parametrize("name", ["softmax", "linear", "factorized_dense"])
def test_layers_pass(name):
    layer, x = (
        attention(name, exclusive=True, rotary=True),
        jnp.asarray(normal(0, B, T, M)),
    )
    causal = partial(layer, mask=masks.causal())
    assert_causal(causal, x)
    assert_padding_invariant(
        lambda x, real: layer(x, mask=masks.causal() & masks.padding(real, real)),
        x,
        lengths=[3],
        zeros=True,
        gradients=False,
    )
    assert_segments_isolated(
        lambda x, ids: layer(x, mask=masks.causal() & masks.segments(ids)),
        x,
        lengths=[1, 2, 4],
        gradients=False,
    )
    cache = layer.init_cache(B, T)
    assert_decode_matches(causal, layer.decode, x, cache=cache, pieces=[[1] * T])


def test_models_pass():
    model, tokens = decoder(), jnp.asarray(ids(0, B, T))
    assert_causal(model, tokens)
    assert_padding_invariant(
        lambda n, real: model(n, mask=masks.padding(real, real)), tokens, lengths=[3]
    )
    assert_segments_isolated(
        lambda n, ids: model(n, mask=masks.segments(ids)), tokens, lengths=[3, 4]
    )
    cache = model.init_cache(B, T)
    pieces = [[1] * T, [1, 5, 1]]
    assert_decode_matches(model, model.decode, tokens, cache=cache, pieces=pieces)
