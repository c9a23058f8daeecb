"""How far rounding may carry every mechanism from its equation."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import nn
from attn_jax.ops import masks
from tests.contract import ceilings
from tests.nn.cases import DECODING, B, M, T, attention, normal
from tests.ops.oracles import assert_close

HALVES = {"bfloat16": 1e-2, "float16": 2e-3}


@pytest.mark.parametrize("name", nn.MECHANISMS)
def test_errors_at_4096_keys_stay_below_their_ceilings(name):
    for dtype, ceiling in ceilings.CEILINGS.items():
        for exclusive, error in ceilings.errors(name, dtype).items():
            assert error <= ceiling, f"{dtype}, exclusive={exclusive}: {error:.1e}"


@pytest.mark.parametrize("name", nn.MECHANISMS)
def test_exponentials_of_a_bfloat16_layer_are_computed_in_float32(name):
    module = attention(name, rotary=True, exclusive=True, dtype=jnp.bfloat16)
    x = jax.ShapeDtypeStruct((B, T, M), jnp.bfloat16)
    program = str(jax.make_jaxpr(lambda x: module(x, mask=masks.causal()))(x))
    dtypes = re.findall(r":(\w+)\[[^]]*\] = (?:exp2?|expm1|logistic)\b", program)
    assert set(dtypes) == {"f32"}


@pytest.mark.parametrize("name", nn.MECHANISMS)
def test_decoding_and_padding_move_16_bit_outputs_by_rounding_alone(name):
    """The full pass, a left-padded one and, where there is one, decoding in pieces."""
    x = normal(0, B, T, M)
    padded = np.concatenate([np.full((B, 2, M), np.nan, np.float32), x], axis=1)
    real = np.broadcast_to(np.arange(T + 2) >= 2, (B, T + 2))

    def outputs(x, padded, real):
        found = {}
        for dtype in HALVES:
            module = attention(name, rotary=True, dtype=jnp.dtype(dtype))
            mask = masks.causal() & masks.padding(real, real)
            found[dtype] = {
                "full": module(x, mask=masks.causal()),
                "padded": module(padded, mask=mask)[:, 2:],
            }
            if name in DECODING:
                first, cache = module.decode(x[:, :4], module.init_cache(B, T))
                pieces = [first, module.decode(x[:, 4:], cache)[0]]
                found[dtype]["decoded"] = jnp.concatenate(pieces, axis=1)
        return found

    for dtype, outs in jax.jit(outputs)(x, padded, real).items():
        want = outs["full"]
        assert want.dtype == dtype
        for what, out in outs.items():
            assert_close(out, np.asarray(want, np.float64), HALVES[dtype], what)
