"""The detectors on the library's own ops, layers and models: one line each."""

from functools import partial

import jax
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
from tests.models.cases import decoder
from tests.nn.cases import EVERY, B, M, T, attention, normal
from tests.testing.leaky import E, arrays

G, H, D = 2, 4, 3
QKV = arrays((H, D), (G, D), (G, E))


def real_only(real):
    return masks.causal() & masks.padding(real, real)


def softmax(q, k, v, mask, **options):
    return ops.softmax_attention(q, k, v, mask=mask, **options)


def synthesizer(q, k, v, mask):
    """Logits that depend on positions alone, indexed from a row's first real token."""
    return ops.synthesizer_attention(jnp.sin(jnp.outer(*(jnp.arange(1.0, 8.0),) * 2)))


OPS = {
    "softmax dense": partial(softmax, implementation="dense", logit_cap=5.0),
    "softmax in tiles": partial(softmax, implementation="blockwise", block_size=3),
    "linear": lambda q, k, v, mask: ops.linear_attention(q, k, v, mask=mask),
    "linear scan": lambda q, k, v, mask: ops.linear_attention_scan(q, k, v, mask=mask),
    "linear in chunks": lambda q, k, v, mask: ops.linear_attention_chunked(
        q, k, v, mask=mask, chunk_size=3
    )[0],
    "linear recurrent": lambda q, k, v, mask: ops.linear_attention_recurrent(
        q, k, v, mask=mask
    )[0],
    "exclusive": lambda q, k, v, mask: ops.exclude_self(softmax(q, k, v, mask), v),
    "weights": lambda q, k, v, mask: jnp.einsum(
        "bgrts,bsge->btgre",
        ops.softmax_attention_weights(q, k, mask=mask).reshape(-1, G, 2, *[len(q[0])] * 2),
        jnp.where(jnp.isfinite(v), v, 0),
    ).reshape(*q.shape[:-1], E),
}


@pytest.mark.parametrize("name", OPS)
def test_ops_leak_nothing(name):
    f = OPS[name]
    assert_causal(lambda *qkv: f(*qkv, masks.causal()), *QKV, scales=(1.0, 1e30))
