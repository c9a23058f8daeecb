"""Each mechanism's layer against its NumPy float64 oracle; other dtypes against it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import nn
from attn_jax.ops import masks
from tests.nn import oracle
from tests.nn.cases import (
    EVERY,
    B,
    M,
    T,
    attention,
    light_jit,
    normal,
    numbers,
)
from tests.ops.oracles import assert_close

F64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}
EXACT = 1e-12
BF16 = 3e-2


def causal(t=T):
    return np.tril(np.ones((t, t), bool))


def full_and_decoded(module, x, cache_dtype=None):
    """The full pass, and a prefill followed by one token."""

    def both(x):
        full = module(x, mask=masks.causal())
        cache, outs = module.init_cache(B, T, cache_dtype), []
        for start, stop in ((0, T - 1), (T - 1, T)):
            out, cache = module.decode(x[:, start:stop], cache)
            outs.append(out)
        return full, jnp.concatenate(outs, axis=1), cache

    return light_jit(both)(x)


def test_every_mechanism_has_an_oracle():
    assert set(oracle.LOGITS) | {"linear"} == set(nn.MECHANISMS)


@pytest.mark.parametrize("row", EVERY)
def test_layer_equals_its_oracle_in_float64(row, x64):
    name, exclusive = row
    options = {"exclusive": exclusive, "rotary": True, "qk_norm": True}
    module = attention(name, use_bias=True, **options, **F64)
    x = normal(0, B, T, M, dtype=np.float64)
    want = oracle.attention(name, numbers(module), x, causal(), **options)
    full, decoded, cache = full_and_decoded(module, x)
    assert full.dtype == decoded.dtype == jnp.float64
    assert_close(full, want, EXACT, "full pass")
    assert_close(decoded, want, EXACT, "decoding")
    # Contract 66: 64-bit mode leaves the dtypes of a cache alone, step after step.
    kinds = [a.dtype for a in jax.tree.leaves(cache)]
    assert kinds == [a.dtype for a in jax.tree.leaves(module.init_cache(B, T))]


@pytest.mark.parametrize("name", nn.MECHANISMS)
def test_layer_in_bfloat16(name, x64):
    """The bfloat16 layer of a float32 one, to 3 in a hundred of the oracle."""
    module = attention(name, exclusive=True, rotary=True, dtype=jnp.bfloat16)
    x = normal(0, B, T, M)
    params = numbers(module)
    want = oracle.attention(
        name, params, x.astype(np.float64), causal(), exclusive=True, rotary=True
    )
    full, decoded, cache = full_and_decoded(module, x)
    assert full.dtype == decoded.dtype == jnp.bfloat16
    assert all(a.dtype == jnp.float32 for a in jax.tree.leaves(nnx.state(module)))
    assert_close(full, want, BF16, "full pass")
    assert_close(decoded, want, BF16, "decoding")
    kinds = [a.dtype for a in jax.tree.leaves(cache)]
    assert kinds == [a.dtype for a in jax.tree.leaves(module.init_cache(B, T))]
