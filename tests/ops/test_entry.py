"""Every op refuses what is no array, no mask and no number, in one style."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import ops
from attn_jax.ops import masks
from tests.nn.errors import assert_raises

pytestmark = pytest.mark.usefixtures("plain_errors")


def ones(*shape):
    return jnp.ones(shape, jnp.float32)


B, T, H, G, D, E, M, N = 2, 5, 4, 2, 3, 6, 8, 7
Q, K, V = ones(B, T, H, D), ones(B, T, G, D), ones(B, T, G, E)
STATE = ops.LinearState(ones(B, G, D, E), ones(B, G, D))
QKV = {"q": Q, "k": K, "v": V}
X, W1, B1 = ones(B, T, M), ones(H, M, D), ones(H, D)
W2, B2 = ones(H, D, N), ones(H, N)

# One call of every op that takes arrays.
CALLS = {
    "softmax_attention": QKV,
    "softmax_attention_weights": {"q": Q, "k": K},
    "linear_attention": QKV,
    "linear_attention_scan": QKV,
    "linear_attention_chunked": QKV,
    "linear_attention_recurrent": QKV,
    "linear_attention_step": {name: x[:, 0] for name, x in QKV.items()}
    | {"state": STATE},
    "exclude_self": {"y": ones(B, T, H, E), "v": V},
    "dense_synthesizer_logits": {"x": X, "w1": W1, "b1": B1, "w2": W2, "b2": B2},
    "convolution_synthesizer_logits": {
        "x": X,
        "w1": ones(3, H, M, D),
        "b1": B1,
        "w2": W2,
        "b2": B2,
    },
    "gated_synthesizer_logits": {
        "x": X,
        "w1": W1,
        "b1": B1,
        "v1": W1,
        "c1": B1,
        "w2": W2,
        "b2": B2,
    },
    "factorized_dense_logits": {"a": ones(H, T, 2), "b": ones(H, T, 3)},
    "factorized_random_logits": {"r1": ones(H, N, 2), "r2": ones(H, N, 2)},
    "mix_logits": {"logits": [ones(H, T, N)], "alphas": ones(H, 1)},
    "synthesizer_attention": {"logits": ones(H, T, T), "v": V},
    "factorized_dense_attention": {"a": ones(H, T, 2), "b": ones(H, T, 3), "v": V},
    "factorized_random_attention": {"r1": ones(H, N, 2), "r2": ones(H, N, 2), "v": V},
    "lsh_attention": {"qk": Q, "v": V},
    "partial_logits": {"q": Q, "k": K, "selected": jnp.arange(2)},
    "reconstruct_logits": {
        "partial": ones(B, H, T, 2),
        "reconstruction": ones(H, T, N, 2),
        "offset": ones(H, T, N),
    },
    "partial_attention": QKV,
    "apply_rotary": {"x": ones(B, T, H, 6), "positions": jnp.arange(T)},
}
# What has no default.
REQUIRED = {
    "lsh_attention": {"rng": jax.random.key(0), "num_rounds": 2, "bucket_size": 2},
    "partial_attention": {
        "selected": jnp.arange(2),
        "reconstruction": ones(1, T, T, 2),
        "offset": ones(1, T, T),
    },
}
INTEGERS = ("positions", "selected")
# These take numbers, or one array of any shape.
WITHOUT_ARRAYS = {"alibi_bias", "sinusoidal_positions"}
MAPS = {"elu_plus_one", "relu_features", "squared_relu_features"}
MAPS |= {"exp_features", "polynomial_features"}

ARRAYS = [
    (name, argument)
    for name, arguments in CALLS.items()
    for argument, x in arguments.items()
    if hasattr(x, "dtype")
]
MASKED = [
    name for name in CALLS if "mask" in inspect.signature(getattr(ops, name)).parameters
]


def call(name, **changes):
    op, arguments = getattr(ops, name), CALLS[name]
    positional = [changes.pop(each, x) for each, x in arguments.items()]
    return op(*positional, **REQUIRED.get(name, {}) | changes)


def test_no_op_is_forgotten():
    functions = {name for name in ops.__all__ if inspect.isfunction(getattr(ops, name))}
    functions |= {name for name in ops.__all__ if hasattr(getattr(ops, name), "lower")}
    assert functions == CALLS.keys() | WITHOUT_ARRAYS | MAPS
    for name, arguments in CALLS.items():
        parameters = inspect.signature(getattr(ops, name)).parameters.values()
        positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert positional == list(arguments), name


@pytest.mark.parametrize(("name", "argument"), ARRAYS)
def test_what_is_no_array_is_refused_by_name(name, argument):
    x = CALLS[name][argument]
    for bad in (np.asarray(x).tolist(), "array", 1.0):
        assert_raises(
            TypeError,
            partial(call, name, **{argument: bad}),
            f"{argument}: got {type(bad).__name__}; expected an array",
            f"jnp.asarray({argument})",
        )
    if argument not in ("b1", "c1", "b2"):
        parts = f"{argument}: got NoneType; expected an array"
        assert_raises(TypeError, lambda: call(name, **{argument: None}), parts)


@pytest.mark.parametrize(("name", "argument"), ARRAYS)
def test_integers_and_missing_axes_are_refused_by_name(name, argument):
    x = CALLS[name][argument]
    if argument not in INTEGERS:
        assert_raises(
            TypeError,
            lambda: call(name, **{argument: x.astype(jnp.int32)}),
            f"{argument}: got dtype int32; expected a floating dtype",
            f"{argument}.astype(jnp.float32)",
        )
    parts = (f"{argument}: got shape ()", "expected")
    if name == "linear_attention_step":
        return
    assert_raises(ValueError, lambda: call(name, **{argument: x.ravel()[0]}), *parts)


@pytest.mark.parametrize("name", CALLS)
def test_numpy_arrays_are_arrays(name):
    arguments = jax.tree.map(np.asarray, CALLS[name])
    got, want = call(name, **arguments), call(name)
    jax.tree.map(np.testing.assert_array_equal, got, want)


NO_MASKS = {
    "'causal'": ("causal", "str"),
    "a list": ([[True] * T] * T, "list"),
    "a constructor": (masks.causal, "function"),
    "True": (True, "bool"),
    "an array": (np.tri(T, dtype=bool), "an array of dtype bool and shape (5, 5)"),
}


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("kind", NO_MASKS)
def test_what_is_no_mask_is_refused_with_the_constructors(name, kind):
    mask, got = NO_MASKS[kind]
    assert_raises(
        TypeError,
        lambda: call(name, mask=mask),
        f"mask: got {got}; expected None or a Mask from attn_jax.ops.masks",
        "dense(allowed)",
        "padding(keys)",
        "causal()",
    )


NUMBERS = {
    "a cap of 0": (
        ("softmax_attention", "softmax_attention_weights"),
        {"logit_cap": 0.0},
        ValueError,
        "logit_cap: got 0; expected a number > 0",
    ),
    "a negative cap": (
        ("softmax_attention",),
        {"logit_cap": jnp.float32(-3)},
        ValueError,
        "logit_cap: got -3; expected a number > 0",
    ),
    "a cap in words": (
        ("softmax_attention",),
        {"logit_cap": "none"},
        TypeError,
        "logit_cap: got str; expected a number > 0",
    ),
    "a scale in a list": (
        ("softmax_attention", "softmax_attention_weights"),
        {"scale": [1.0]},
        TypeError,
        "scale: got list; expected a number, or an array",
    ),
    "a negative eps": (
        [name for name in CALLS if name.startswith("linear")],
        {"eps": -1e-6},
        ValueError,
        "eps: got -1e-06; expected a number >= 0",
    ),
    "a bias in lists": (
        ("softmax_attention", "softmax_attention_weights"),
        {"bias": [[[0.0]]]},
        TypeError,
        "bias: got list; expected an array",
    ),
    "a strength in a list": (
        ("exclude_self",),
        {"strength": [1.0]},
        TypeError,
        "strength: got list; expected a number, or an array",
    ),
    "a base of 0": (
        ("apply_rotary",),
        {"base": 0},
        ValueError,
        "base: got 0; expected a number > 0",
    ),
    "no state": (
        ("linear_attention_step",),
        {"state": (1.0, 2.0)},
        TypeError,
        "state: got tuple; expected a LinearState",
    ),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_that_do_not_fit_are_refused(case):
    names, options, kind, part = NUMBERS[case]
    for name in names:
        assert_raises(kind, partial(call, name, **options), part)


def test_a_number_that_is_traced_is_the_callers_promise():
    got = jax.jit(lambda cap: call("softmax_attention", logit_cap=cap))(2.0)
    want = call("softmax_attention", logit_cap=2.0)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
