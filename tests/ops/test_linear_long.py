"""Linear attention over tens of thousands of tokens: the tail, rounding, programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import ops
from attn_jax.ops import masks
from tests.ops.oracles import assert_close, elu_plus_one

LONG = 65_537
ENDS = [2**10, 2**12, 2**14, 2**15, 2**16, LONG]


def arrays(t):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=(1, t, 1, 2)), jnp.float32) for _ in "qkv"]


def features(x):
    return elu_plus_one.phi(np.asarray(x, np.float64)[0, :, 0])


@pytest.fixture(scope="module")
def sums():
    """q, k, v, outputs and the last sums in float64: running sums over tokens."""
    q, k, v = arrays(LONG)
    phi_q, phi_k = features(q), features(k)
    kv = np.cumsum(phi_k[:, :, None] * np.asarray(v)[0, :, 0, None, :], axis=0)
    z = np.cumsum(phi_k, axis=0)
    num = np.einsum("tp,tpe->te", phi_q, kv)
    out = num / np.einsum("tp,tp->t", phi_q, z)[:, None]
    return (q, k, v), out, kv[-1], z[-1]


def test_the_tail_of_65537_tokens_is_as_exact_as_the_head(sums):
    """Rounding does not add up with the length, past 2^16 tokens and a chunk."""
    (q, k, v), want, kv, z = sums
    out, state = ops.linear_attention_chunked(q, k, v)
    for end in ENDS:
        at = slice(end - 64, end)
        assert_close(out[0, at, 0], want[at], 4e-5, f"outputs up to {end}")
    assert_close(state.kv[0, 0], kv, 1e-5, "state")
    assert_close(state.k[0, 0], z, 1e-6, "state")


def test_gradients_reach_the_first_of_65537_tokens(sums):
    """The last output's slope at the first value is its weight, and at the last."""
    q, k, v = sums[0]

    def last(v):
        return ops.linear_attention(q, k, v, mask=masks.causal())[0, -1, 0, 0]

    slope = np.asarray(jax.grad(last)(v))[0, :, 0]
    weights = features(k) @ features(q)[-1]
    assert_close(slope[:, 0], weights / weights.sum(), 1e-5)
    assert np.all(slope[:, 1] == 0)


def test_the_program_grows_with_the_logarithm_of_the_length_at_most():
    """64 times the tokens, gradients included, in less than twice the program."""

    def size(t):
        x = jax.ShapeDtypeStruct((1, t, 1, 2), jnp.float32)

        def loss(q, k, v):
            return jnp.sum(ops.linear_attention(q, k, v, mask=masks.causal()))

        return len(jax.jit(jax.grad(loss, (0, 1, 2))).lower(x, x, x).as_text())

    assert size(2**16) < 2 * size(2**10)
