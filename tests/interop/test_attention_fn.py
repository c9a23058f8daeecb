"""Functions of attention in Flax's own layers, beside Flax's own function."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from attn_jax.interop.attention_fn import attention_fn
from attn_jax.nn import MECHANISMS
from attn_jax.ops import (
    dense_synthesizer_logits,
    exclude_self,
    factorized_dense_attention,
    factorized_random_attention,
    linear_attention,
    lsh_attention,
    masks,
    partial_attention,
    softmax_attention,
    synthesizer_attention,
)
from tests.nn.cases import filled, normal
from tests.ops import oracles
from tests.ops.oracles import assert_close

B, T, M, H, G, D = 2, 5, 8, 4, 2, 3
X = normal(0, B, T, M)
REAL = np.arange(T) < np.array([[T], [3]])


def layer(function=None, **options):
    """Flax's layer, grouped unless it is said otherwise."""
    options = {"num_kv_heads": G, "qkv_features": H * D, "decode": False} | options
    if function is not None:
        options["attention_fn"] = attention_fn(function)
    return filled(lambda: nnx.MultiHeadAttention(H, M, rngs=nnx.Rngs(0), **options))


def forms(x):
    """Ways in which a layer is called."""
    padding = jnp.asarray(REAL)[:, None, None, :]
    causal = nnx.make_causal_mask(jnp.ones((B, T)))
    return {
        "full": {},
        "causal": {"is_causal": True},
        "padding": {"mask": padding},
        "padding in floats, and causal": {
            "mask": padding.astype(jnp.float32),
            "is_causal": True,
        },
        "dense": {"mask": nnx.combine_masks(causal, padding)},
        "one for all": {"mask": causal[:1]},
        "other keys": {"inputs_k": x[:, :3], "is_causal": True},
    }


def test_softmax_is_flax_own_in_every_way_it_is_called():
    ours, theirs = layer(softmax_attention), layer()

    @jax.jit
    def run(x):
        return {
            name: [each(x, **form) for each in (ours, theirs)]
            for name, form in forms(x).items()
        }

    for name, (got, want) in run(X).items():
        assert_close(got, np.asarray(want, np.float64), 1e-5, name)


def projected(one, x):
    return one.query(x), one.key(x), one.value(x)


def test_linear_attention_honours_causality_and_padding():
    one = layer(linear_attention)
    padding = jnp.asarray(REAL)[:, None, None, :]
    got, qkv = jax.jit(
        lambda x: (one(x, mask=padding, is_causal=True), projected(one, x))
    )(X)
    rules = [oracles.causal(), oracles.padding(REAL)]
    seen = oracles.allowed(rules, B, H, T, T)
    want = oracles.linear_attention(*(np.asarray(x, np.float64) for x in qkv), seen)
    kernel = np.asarray(one.out.kernel[...], np.float64)
    out = np.einsum("bthd,hdm->btm", want.out, kernel)
    assert_close(got, out + np.asarray(one.out.bias[...]), 1e-5)


@pytest.mark.parametrize("function", [softmax_attention, linear_attention])
def test_decoding_in_flax_equals_the_full_pass(function):
    graph, state = nnx.split(layer(function))

    @jax.jit
    def run(x):
        one = nnx.merge(graph, state)
        one.init_cache(x.shape)
        written = [one(x[:, i : i + 1], decode=True) for i in range(T)]
        return jnp.concatenate(written, axis=1), one(x, is_causal=True)

    got, want = run(X)
    assert_close(got, np.asarray(want, np.float64), 1e-5)


N, R = 7, 2
LOGITS = jnp.asarray(normal(1, H, N, N))
R1, R2 = jnp.asarray(normal(2, 2, H, N, R))
W1, B1, W2, B2 = map(
    jnp.asarray,
    (normal(3, H, H * D, D), normal(4, H, D), normal(5, H, D, N), normal(6, H, N)),
)


def dense(q, k, v, *, mask):
    x = q.reshape(*q.shape[:-2], H * D)
    return synthesizer_attention(
        dense_synthesizer_logits(x, W1, B1, W2, B2), v, mask=mask
    )


def factorized_dense(q, k, v, *, mask):
    a, b = (jnp.swapaxes(x, -2, -3) for x in (q[..., :2], q[..., :3]))
    return factorized_dense_attention(a, b, v, mask=mask)


# The function of a row of the table, as a function of queries, keys and values.
FUNCTIONS = {
    "softmax": softmax_attention,
    "linear": linear_attention,
    "random": lambda q, k, v, *, mask: synthesizer_attention(
        LOGITS[:, : q.shape[-3]], v, mask=mask
    ),
    "factorized_random": lambda q, k, v, *, mask: factorized_random_attention(
        R1, R2, v, mask=mask
    ),
    "dense": dense,
    "factorized_dense": factorized_dense,
    "lsh": lambda q, k, v, *, mask: lsh_attention(
        q,
        v,
        rng=jax.random.key(0),
        num_rounds=1,
        bucket_size=2,
        mask=mask,
    ),
    "partial": functools.partial(
        partial_attention,
        selected=jnp.array([0, 1]),
        reconstruction=jnp.asarray(normal(7, H, T, T, 2)),
        offset=jnp.asarray(normal(8, H, T, T)),
    ),
    "softmax+exclusive": lambda q, k, v, *, mask: exclude_self(
        softmax_attention(q, k, v, mask=mask), v
    ),
}
# Other logits than `dense`'s, in the same place.
LIKE_DENSE = {"convolution", "bottleneck", "gated", "mixture"}


def test_every_mechanism_is_looked_at():
    assert MECHANISMS.keys() == FUNCTIONS.keys() - {"softmax+exclusive"} | LIKE_DENSE


def test_every_function_in_flax_is_the_function():
    layers = {name: layer(function) for name, function in FUNCTIONS.items()}
    mask = masks.causal() & masks.padding(jnp.asarray(REAL))
    padding = jnp.asarray(REAL)[:, None, None, :]

    @jax.jit
    def run(x):
        found = {}
        for name, one in layers.items():
            y = FUNCTIONS[name](*projected(one, x), mask=mask)
            found[name] = one(x, mask=padding, is_causal=True), one.out(y)
        return found

    for name, (got, want) in run(X).items():
        assert_close(got, np.asarray(want, np.float64), 1e-6, name)


def test_linen_calls_it_too():
    made = linen.MultiHeadDotProductAttention(
        H, attention_fn=attention_fn(softmax_attention), dtype=jnp.bfloat16
    )
    plain = linen.MultiHeadDotProductAttention(H)
    shapes = jax.eval_shape(made.init, jax.random.key(0), X)
    params = jax.tree.map(lambda x: normal(0, *x.shape), shapes)
    mask = nnx.make_causal_mask(jnp.ones((B, T)))
    got, want = jax.jit(
        lambda x: (made.apply(params, x, mask=mask), plain.apply(params, x, mask=mask))
    )(X)
    assert got.dtype == jnp.bfloat16
    assert_close(got, np.asarray(want, np.float64), 2e-2)


def call(function=softmax_attention, *, options=None, **form):
    return lambda: layer(function, **options or {})(jnp.asarray(X), **form)


DENSE = nnx.make_attention_mask(jnp.asarray(REAL), jnp.asarray(REAL))
BIASED = functools.partial(attention_fn(softmax_attention), *[jnp.ones((1, 1, 1))] * 3)
ERRORS = {
    "no function": (
        lambda: attention_fn(3),
        "function: got int; expected a function of q, k, v and mask=.*uncalled",
    ),
    "a dense mask for linear attention": (
        call(linear_attention, mask=DENSE),
        r"linear attention cannot honour dense.*mask=real\[:, None, None, :\]",
    ),
    "dropout of weights": (
        call(
            options={"dropout_rate": 0.1, "keep_rngs": False},
            deterministic=False,
            rngs=nnx.Rngs(0),
        ),
        "dropout_rate: got 0.1 for attention weights; expected 0.*nnx.Dropout",
    ),
    "weights to look at": (
        call(sow_weights=True),
        "sow_weights: got True; .*softmax_attention_weights",
    ),
    "precision": (
        call(options={"precision": "highest"}),
        "precision: got highest; expected None",
    ),
    "bias": (lambda: BIASED(jnp.ones((1, 1, 1))), "bias: got an array; .*partial"),
    "an additive mask": (
        call(mask=jnp.where(DENSE > 0, 0.0, -1e9)),
        r"mask: got dtype float32 with values from -1000000000.0 to 0.0; .*mask == 0",
    ),
    "a mask of another length": (
        call(mask=jnp.ones((B, 1, T, 3), bool)),
        r"mask: dense\(allowed\) has shape \(2, 1, 5, 3\)",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_honoured_raises(case, plain_errors):
    run, message = ERRORS[case]
    with pytest.raises((ValueError, TypeError), match=message):
        run()


def test_dropout_that_is_off_is_no_dropout():
    """A layer that was built with dropout, in evaluation."""
    off = attention_fn(lambda q, k, v, *, mask: v)
    v = jnp.ones((T, H, D))
    assert off(v, v, v, dropout_rate=0.5, deterministic=True) is v
