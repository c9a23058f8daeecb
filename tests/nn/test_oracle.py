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
    VARIANTS,
    B,
    M,
    T,
    attention,
    in_one_bucket,
    normal,
    numbers,
)
from tests.ops.oracles import assert_close

F64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}
EXACT = 1e-12
BF16 = 3e-2


def causal(t=T):
    return np.tril(np.ones((t, t), bool))


def full_and_decoded(module, x):
    """The full pass and, where there is one, a prefill followed by one token."""
    decodes = not module.config.mechanism.cannot_decode

    def both(x):
        outs, pieces = {"full pass": module(x, mask=masks.causal())}, []
        cache = module.init_cache(B, T) if decodes else None
        for start, stop in ((0, T - 1), (T - 1, T)) if decodes else ():
            piece, cache = module.decode(x[:, start:stop], cache)
            pieces.append(piece)
        if decodes:
            outs["decoding"] = jnp.concatenate(pieces, axis=1)
        return outs, cache

    outs, cache = jax.jit(both)(x)
    # Contract 66: 64-bit mode leaves the dtypes of a cache alone, step after step.
    first = module.init_cache(B, T) if decodes else None
    assert dtypes(cache) == dtypes(first)
    return outs


def dtypes(cache):
    return [a.dtype for a in jax.tree.leaves(cache)]


def test_every_mechanism_has_an_oracle():
    assert set(oracle.LOGITS) | set(oracle.OUTPUTS) == {*nn.MECHANISMS, *VARIANTS}


@pytest.mark.parametrize("row", EVERY)
def test_layer_equals_its_oracle_in_float64(row, x64):
    name, exclusive = row
    options = {"exclusive": exclusive, "rotary": True, "qk_norm": True}
    module = attention(name, use_bias=True, **options, **F64)
    x = normal(0, B, T, M, dtype=np.float64)
    options["mechanism"] = module.config.mechanism
    want = oracle.attention(name, numbers(module), x, causal(), **options)
    for what, out in full_and_decoded(module, x).items():
        assert out.dtype == jnp.float64
        assert_close(out, want, EXACT, what)


@pytest.mark.parametrize("name", nn.MECHANISMS)
def test_layer_in_bfloat16(name, x64):
    """The bfloat16 layer of a float32 one, to 3 in a hundred of the oracle.

    In one bucket: rounding moves a token from one into another.
    """
    kind = in_one_bucket(name)
    options = {"exclusive": True, "rotary": True, "mechanism": kind}
    module = attention(name, dtype=jnp.bfloat16, **options)
    x = normal(0, B, T, M)
    params, exact = numbers(module), x.astype(np.float64)
    want = oracle.attention(name, params, exact, causal(), **options)
    for what, out in full_and_decoded(module, x).items():
        assert out.dtype == jnp.bfloat16
        assert_close(out, want, BF16, what)
    assert all(a.dtype == jnp.float32 for a in jax.tree.leaves(nnx.state(module)))
