"""Around exclusion in a layer: gates, a value residual, the diagonal it leaves out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import nn
from attn_jax.ops import masks
from tests.nn import oracle
from tests.nn.cases import (
    F32,
    SHORT,
    B,
    E,
    G,
    H,
    M,
    T,
    attention,
    normal,
    numbers,
    placed,
)
from tests.nn.errors import assert_raises
from tests.ops import oracle_exclusive
from tests.ops.oracles import assert_close, assert_same_bits

F64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}
GATES = {"softmax": "tanh", "linear": "sigmoid", "dense": None}


@pytest.mark.parametrize("name", GATES)
def test_gates_and_a_value_residual_equal_their_oracle(name, x64):
    """Values mixed, excluded from, then gated; decoding ragged rows does the same."""
    gate = GATES[name]
    module = attention(
        name,
        exclusive=True,
        exclusive_gate=gate,
        output_gate=True,
        value_residual=True,
        use_bias=True,
        **F64,
    )
    x = normal(0, B, SHORT, M, dtype=np.float64)
    first = normal(1, B, SHORT, G, E, dtype=np.float64)
    places = [[0, 1, 3, 4], [1, 2, 3, 4], [0, 1, 2, 3]]
    ragged, real = placed(x, places, 5)
    beside, _ = placed(first, places, 5, padding=50.0)

    def ways(x, first, ragged, beside, real):
        cache = module.init_cache(B, SHORT)
        decoded, _ = module.decode(ragged, cache, valid=real, first=beside)
        return module(x, mask=masks.causal(), first=first), decoded

    full, decoded = jax.jit(ways)(x, first, ragged, beside, real)
    causal = np.tril(np.ones((SHORT, SHORT), bool))
    options = {"exclusive": gate or True, "first": first}
    want = oracle.attention(name, numbers(module), x, causal, **options)
    assert_close(full, want, 1e-12, "at once")
    assert_close(np.asarray(decoded)[real].reshape(want.shape), want, 1e-12, "decoded")


def test_an_output_gate_of_a_context_goes_by_the_queries(x64):
    module = attention(output_gate=True, **F64)
    x = normal(0, B, T, M, dtype=np.float64)
    context = normal(1, B, SHORT, M, dtype=np.float64)
    everyone = np.ones((T, SHORT), bool)
    want = oracle.attention("softmax", numbers(module), x, everyone, context=context)

    def both(x, context):
        return module(x, context), module.attend_context(
            x, module.init_context(context)
        )

    for got in jax.jit(both)(x, context):
        assert_close(got, want, 1e-12)


@pytest.mark.parametrize("name", ["softmax", "linear"])
def test_a_layer_equals_its_weights_without_their_diagonal_then_projected(name, x64):
    """The diagonal counts in the normaliser and nowhere else; heads are grouped."""
    module = attention(name, exclusive=True, rotary=True, **F64)
    ids = np.array([[0] * T, [0] * 3 + [1] * 4, [0] + [1] * 6])
    x = normal(0, B, T, M, dtype=np.float64)

    def both(x):
        mask = masks.causal() & masks.segments(jnp.asarray(ids))
        mask = mask & masks.window(3) if name == "softmax" else mask
        return module.weights(x, mask=mask), module.value(x), module(x, mask=mask)

    weights, v, out = (np.array(each) for each in jax.jit(both)(x))
    weights[..., np.arange(T), np.arange(T)] = 0
    y = np.einsum("bhts,bshe->bthe", weights, np.repeat(v, H // G, axis=2))
    z = oracle_exclusive.exclude_self(y, v)
    want = np.einsum("bthe,hem->btm", z, numbers(module)["output"]["kernel"])
    assert_close(out, want, 1e-12)
    assert np.abs(want[:, 1:]).max() > 0.1


def initial(**options):
    """A layer with its initial values, drawn in one compiled function."""
    config = nn.AttentionConfig(d_model=M, num_heads=2, **options)

    def build():
        return nn.Attention(config, rngs=nnx.Rngs(3))

    graph = nnx.graphdef(nnx.eval_shape(build))
    return nnx.merge(graph, jax.jit(lambda: nnx.state(build()))())


def test_a_gate_begins_where_it_says():
    """tanh as the layer without exclusion, to the bit; sigmoid halfway."""
    x = jnp.asarray(normal(0, B, T, M))
    plain, whole = initial(), initial(exclusive=True)
    tanh, sigmoid = (
        initial(exclusive=True, exclusive_gate=gate, output_gate=False)
        for gate in ("tanh", "sigmoid")
    )
    assert_same_bits(tanh.exclusive_strength(), np.zeros((2, 1), np.float32))
    assert_same_bits(sigmoid.exclusive_strength(), np.full((2, 1), 0.5, np.float32))
    assert whole.exclusive_strength() is None
    assert_same_bits(tanh(x), plain(x))
    assert_close(sigmoid(x), (plain(x) + whole(x)) / 2, F32)
    assert np.linalg.norm(plain(x) - whole(x)) > 1e-2


def test_initial_values_have_the_deviation_that_is_asked_for():
    """Also those of the gate; the output's is scaled, and nothing else changes."""
    options = {"init_std": 0.02, "output_scale": 0.5, "output_gate": True}
    made = nn.AttentionConfig(d_model=64, num_heads=4, **options)
    layer = nn.Attention(made, rngs=nnx.Rngs(0))
    pair = layer.mechanism.query_key
    for part in (layer.value, layer.output_gate, pair.query, pair.key):
        assert np.std(part.kernel[...]) == pytest.approx(0.02, rel=0.05)
    assert np.std(layer.output.kernel[...]) == pytest.approx(0.01, rel=0.05)


def test_options_that_do_not_fit_raise(plain_errors):
    sizes = {"d_model": M, "num_heads": 2}
    for options, *parts in (
        (
            {"exclusive": True, "exclusive_gate": "relu"},
            "exclusive_gate: got 'relu'; expected 'tanh', 0 at first, 'sigmoid'",
        ),
        (
            {"exclusive_gate": "tanh"},
            "exclusive_gate: got 'tanh' with exclusive = False; expected None",
            "set exclusive=True",
        ),
        ({"init_std": 0.0}, "init_std: got 0.0; expected a number > 0"),
        ({"init_std": float("nan")}, "init_std: got nan; expected a number > 0"),
    ):
        assert_raises(
            ValueError, lambda o=options: nn.AttentionConfig(**sizes, **o), *parts
        )
