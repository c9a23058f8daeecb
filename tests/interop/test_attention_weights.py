"""Weights of other libraries' attention layers: same outputs, and back to the bit."""

import jax
import ml_dtypes
import numpy as np
import pytest
from flax import nnx

from attn_jax.interop.attention_weights import from_flax, from_torch, to_flax, to_torch
from attn_jax.nn import Linear, Partial
from tests.nn.cases import attention, filled
from tests.ops.oracles import assert_close

M, H, T = 12, 4, 5
X = np.random.default_rng(1).normal(size=(2, T, M)).astype("f4")


def torch_weights(bias=True, dtype="f4"):
    rng = np.random.default_rng(0)
    shapes = {"in_proj_weight": (3 * M, M), "out_proj.weight": (M, M)}
    shapes |= {"in_proj_bias": (3 * M,), "out_proj.bias": (M,)} if bias else {}
    return {
        name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()
    }


def torch_layer(weights, x):
    """What PyTorch documents: softmax(Q W_Q (K W_K)^T / sqrt(d)) V W_V of each head.

    Heads stand side by side, times W_O; x W is x @ weight.T + bias.
    """
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    x = x.astype(np.float64)
    thirds = np.split(w["in_proj_weight"], 3)
    biases = np.split(w["in_proj_bias"], 3)
    q, k, v = (x @ each.T + bias for each, bias in zip(thirds, biases, strict=True))
    out, d = np.zeros_like(x), M // H
    for row, head in np.ndindex(len(x), H):
        at = slice(head * d, (head + 1) * d)
        scores = q[row, :, at] @ k[row, :, at].T / np.sqrt(d)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        out[row, :, at] = weights @ v[row, :, at]
    return out @ w["out_proj.weight"].T + w["out_proj.bias"]


def assert_same_arrays(got, want):
    assert got.keys() == want.keys()
    for name, x in want.items():
        assert got[name].dtype == x.dtype
        np.testing.assert_array_equal(got[name], x, err_msg=name)


def test_a_layer_of_pytorch_is_what_pytorch_documents():
    weights = torch_weights()
    layer = from_torch(weights, num_heads=H)
    got = jax.jit(lambda x: layer(x))(X)
    assert_close(got, torch_layer(weights, X), 1e-5)
    assert_same_arrays(to_torch(layer), weights)


@pytest.mark.parametrize("dtype", ["f2", ml_dtypes.bfloat16], ids=["f2", "bf16"])
def test_16_bits_and_no_biases_come_back_to_pytorch(dtype):
    weights = torch_weights(bias=False, dtype=dtype)
    layer = from_torch(weights, num_heads=H)
    assert layer.value.kernel.dtype == dtype
    assert_same_arrays(to_torch(layer), weights)


@pytest.mark.parametrize(
    "options",
    [{"num_kv_heads": 2, "qkv_features": 24}, {"use_bias": False}],
    ids=["grouped", "unbiased"],
)
def test_a_layer_of_flax_gives_the_same_and_comes_back(options):
    theirs = filled(
        lambda: nnx.MultiHeadAttention(H, M, decode=False, rngs=nnx.Rngs(0), **options)
    )
    params = nnx.to_pure_dict(nnx.state(theirs, nnx.Param))
    ours = from_flax(params)
    got, want = jax.jit(lambda x: (ours(x), theirs(x)))(X)
    assert_close(got, np.asarray(want, np.float64), 1e-5)
    back = to_flax(ours)
    assert back.keys() == params.keys()
    for name in params:
        assert_same_arrays(back[name], params[name])
    nnx.update(theirs, back)


def test_changes_are_fields_of_the_config():
    layer = from_torch(torch_weights(), num_heads=H, mechanism=Linear(), exclusive=True)
    assert layer.config.exclusive
    assert layer.config.mechanism == Linear()


def without(name, **more):
    weights = torch_weights()
    weights.pop(name)
    return weights | more


FLAX = {
    name: {"kernel": np.zeros((M, H, 3), "f4")} for name in ("query", "key", "value")
}
FLAX["out"] = {"kernel": np.zeros((H, 3, M), "f4")}
ERRORS = {
    "a name that is missing": (
        lambda: from_torch(without("out_proj.bias"), num_heads=H),
        "weights: got no out_proj.bias; expected in_proj_weight, .*PyTorch",
    ),
    "names of layers of other widths": (
        lambda: from_torch(
            without("in_proj_weight", q_proj_weight=1, bias_k=1), num_heads=H
        ),
        "weights: got no in_proj_weight, q_proj_weight, bias_k; expected in",
    ),
    "another shape": (
        lambda: from_torch(
            without("in_proj_bias", in_proj_bias=np.zeros(5, "f4")), num_heads=H
        ),
        r"in_proj_bias: got shape \(5,\); expected \(36,\)",
    ),
    "heads that don't divide": (
        lambda: from_torch(torch_weights(), num_heads=5),
        "num_heads: got 5 for d_model = 12",
    ),
    "more bits than parameters have": (
        lambda: from_torch(torch_weights(dtype="f8"), num_heads=H),
        "weights: got dtype float64 for parameters of float32; .*jax_enable_x64",
    ),
    "a mechanism with parameters of its own": (
        lambda: from_torch(
            torch_weights(), num_heads=H, mechanism=Partial(max_length=8)
        ),
        "weights: got others than mechanism.*which is all that Partial",
    ),
    "a norm of queries": (
        lambda: from_flax(FLAX | {"query_ln": {"scale": np.ones(3)}}),
        "weights: got query_ln; expected query, key, value, out of Flax",
    ),
    "an output of another width": (
        lambda: from_flax(FLAX | {"out": {"kernel": np.zeros((H, 3, 7), "f4")}}),
        r"weights: got others than output.kernel of shape \(4, 3, 12\)",
    ),
    "a query without heads": (
        lambda: from_flax(FLAX | {"query": {"kernel": np.zeros((M, M), "f4")}}),
        r"query.kernel: got shape \(12, 12\); expected \(d_model, heads",
    ),
    "a layer, where its weights are meant": (
        lambda: from_torch(attention(), num_heads=H),
        "weights: got Attention; expected a mapping.*layer.state_dict",
    ),
    "a layer of Flax, likewise": (
        lambda: from_flax(attention()),
        r"params: got Attention; .*of a layer pass nnx.to_pure_dict\(nnx.state\(layer",
    ),
    "an array, where a projection is meant": (
        lambda: from_flax(FLAX | {"key": np.zeros(3)}),
        r"params\['key'\]: got ndarray; expected a mapping",
    ),
    "weights, where a layer is meant": (
        lambda: to_torch(torch_weights()),
        "attention: got dict; expected an Attention of attn_jax.nn",
    ),
    "parameters, where a layer is meant": (
        lambda: to_flax(FLAX),
        "attention: got dict; expected an Attention of attn_jax.nn",
    ),
    "what PyTorch has no word for": (
        lambda: to_torch(attention(exclusive=True)),
        r"attention: got exclusive = True, num_kv_heads = 2, head_dim = 6; expected",
    ),
    "what Flax has no word for": (
        lambda: to_flax(attention("linear")),
        r"attention: got mechanism = Linear\(.*, value_dim = 5; expected plain softmax",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_does_not_fit_raises(case, plain_errors):
    call, message = ERRORS[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_field_that_the_weights_say_is_refused():
    with pytest.raises(
        TypeError, match=r"changes: .*expected fields of AttentionConfig"
    ):
        from_torch(torch_weights(), num_heads=H, width=3)
