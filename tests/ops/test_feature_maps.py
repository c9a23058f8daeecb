"""Feature maps: what they are in 16 bits, that they leak nothing, which are refused."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import nn, ops
from attn_jax.ops import masks
from attn_jax.testing import assert_causal
from tests.nn.cases import B, M, T, attention, normal
from tests.nn.errors import assert_raises
from tests.ops import oracles
from tests.ops.oracles import assert_close

MAPS = {
    ops.elu_plus_one: oracles.elu_plus_one,
    ops.relu_features: oracles.relu,
    ops.squared_relu_features: oracles.squared_relu,
    ops.exp_features: oracles.exp_features,
    ops.polynomial_features: oracles.polynomial,
}
D = 5
ALL = pytest.mark.parametrize("phi", MAPS, ids=lambda phi: phi.__name__)


def qkv(seed=0, t=T, d=D):
    return [jnp.asarray(normal(seed + i, 2, t, n, d)) for i, n in enumerate((4, 2, 2))]


@ALL
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_maps_are_computed_in_at_least_float32(phi, dtype):
    with jax.enable_x64(dtype == "float64"):
        x = jnp.asarray(normal(0, 7, 3, D) * 4, dtype)
        got = phi(x)
        chex.assert_type(got, jnp.promote_types(dtype, jnp.float32))
        want = MAPS[phi].phi(np.asarray(x).astype(np.float64))
        assert_close(got, want, 1e-14 if dtype == "float64" else 1e-6)


def test_the_polynomial_is_one_plus_the_dot_product_squared(x64):
    x, y = (jnp.asarray(normal(i, 7, D, dtype=float)) for i in range(2))
    phi_x, phi_y = ops.polynomial_features(x), ops.polynomial_features(y)
    assert phi_x.shape == (7, (D + 1) * (D + 2) // 2)
    assert_close(jnp.sum(phi_x * phi_y, -1), (1 + np.sum(x * y, -1)) ** 2, 1e-14)


def test_exp_features_are_exp_for_queries(x64):
    """Whatever a query's features are divided by, the output stays."""
    q, k, v = (x.astype(float) for x in qkv())
    phi_k = oracles.exp_features.phi(np.asarray(k))
    weights = np.einsum("bthd,bshd->bhts", np.exp(q), np.repeat(phi_k, 2, axis=2))
    weights = weights * np.tri(T)
    weights = weights / weights.sum(-1, keepdims=True)
    want = np.einsum("bhts,bshe->bthe", weights, np.repeat(v, 2, axis=2))
    options = {"mask": masks.causal(), "feature_map": ops.exp_features}
    assert_close(ops.linear_attention(q, k, v, **options), want, 1e-13)


def test_exp_features_reduce_to_uniform_attention_when_x_is_0():
    _, k, v = qkv()
    y = ops.linear_attention(k * 0, k * 0, v, feature_map=ops.exp_features)
    assert_close(y, jnp.broadcast_to(v.mean(1, keepdims=True), v.shape), 1e-6)


@pytest.mark.parametrize("size", [100.0, 1e4, 1e30])
def test_exp_features_do_not_overflow(size):
    """exp(100) is infinite, and so is exp(1e4) in every dtype."""
    q, k, v = (size * x for x in qkv())

    def loss(q, k):
        y = ops.linear_attention_chunked(q, k, v / size, feature_map=ops.exp_features)
        return jnp.sum(y[0] ** 2)

    chex.assert_tree_all_finite(jax.value_and_grad(loss, (0, 1))(q, k))


@pytest.mark.parametrize("phi", [ops.relu_features, ops.squared_relu_features])
def test_relu_features_that_meet_nothing_give_0(phi):
    q, k, v = qkv()

    def attend(q, k, v):
        return ops.linear_attention(q, k, v, feature_map=phi)

    out, pull = jax.vjp(attend, -abs(q), k, v)
    assert (out == 0).all()
    chex.assert_tree_all_finite(pull(jnp.ones_like(out)))


@ALL
def test_maps_leak_nothing(phi):
    def attend(q, k, v):
        return ops.linear_attention_chunked(q, k, v, chunk_size=3, feature_map=phi)[0]

    assert_causal(attend, *qkv())


def test_a_maximum_over_time_leaks_the_future():
    """The stabilised exponential that `exp_features` isn't."""

    def attend(q, k, v):
        k = jnp.exp(k - k.max(axis=1, keepdims=True))
        sums = jnp.cumsum(jnp.einsum("btgd,btge->btgde", k, v), axis=1)
        return jnp.einsum("btgd,btgde->btge", jnp.exp(q[:, :, :2]), sums)

    with pytest.raises(AssertionError, match="f sees the future"):
        assert_causal(attend, *qkv())


@ALL
def test_a_layer_decodes_with_every_map(phi):
    layer = attention(mechanism=nn.Linear(feature_map=phi), exclusive=True)
    x = normal(0, B, T, M)

    def both(x):
        full = layer(x, mask=masks.causal())
        first, cache = layer.decode(x[:, :3], layer.init_cache(B, T))
        rest = []
        for i in range(3, T):
            out, cache = layer.decode(x[:, i : i + 1], cache)
            rest.append(out)
        return full, jnp.concatenate([first, *rest], axis=1)

    full, decoded = jax.jit(both)(x)
    assert_close(decoded, full, 1e-5)
    assert np.any(np.asarray(full) != 0)


def random_waves(x):
    w = jnp.asarray(normal(3, D, 8))
    return jnp.concatenate([jnp.cos(x @ w), jnp.sin(x @ w)], axis=-1)


SIGNED = {
    "identity": lambda x: x,
    "tanh": jnp.tanh,
    "cosine": jnp.cos,
    "random waves": random_waves,
    "shifted far": lambda x: x + 20,
    "leaky": jax.nn.leaky_relu,
    "elu": jax.nn.elu,
    "seldom": lambda x: jnp.where(x > 2.5, -1.0, 1.0),
}
POSITIVE = {
    "softplus": jax.nn.softplus,
    "two sided": lambda x: jax.nn.relu(jnp.concatenate([x, -x], -1)),
    "squares": jnp.square,
    "exp": jnp.exp,
    "ones": jnp.ones_like,
    "squared products": lambda x: (x[..., None] * x[..., None, :]).reshape(
        *x.shape[:-1], -1
    ),
}
FORMS = {
    "attention": ops.linear_attention,
    "scan": ops.linear_attention_scan,
    "chunked": ops.linear_attention_chunked,
    "recurrent": ops.linear_attention_recurrent,
}


@pytest.mark.parametrize("name", SIGNED)
def test_signed_maps_are_refused(name, plain_errors):
    parts = (
        "feature_map: ",
        "gives phi(x).phi(y) = -",
        "expected dot products that are nowhere negative",
        "use elu_plus_one, relu_features",
    )
    for eps in (None, 1e-6):
        options = {"feature_map": SIGNED[name], "eps": eps}
        call = partial(ops.linear_attention, *qkv(), **options)
        assert_raises(ValueError, call, *parts)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_refuses_a_signed_map_also_under_jit(form, plain_errors):
    def call(*args):
        return FORMS[form](*args, feature_map=SIGNED["identity"])

    for run in (call, jax.jit(call), jax.vmap(call)):
        args = qkv() if run is not jax.vmap else [x[None] for x in qkv()]
        assert_raises(ValueError, partial(run, *args), "feature_map: <lambda> gives")


def test_a_step_and_a_layer_refuse_a_signed_map(plain_errors):
    q, k, v = (x[:, 0] for x in qkv())
    state = ops.LinearState(jnp.zeros((2, 2, D, D)), jnp.zeros((2, 2, D)))
    assert_raises(
        ValueError,
        lambda: ops.linear_attention_step(q, k, v, state, feature_map=jnp.tanh),
        "feature_map: tanh gives",
    )
    layer = attention(mechanism=nn.Linear(feature_map=jnp.tanh))
    x = jnp.asarray(normal(0, B, T, M))
    assert_raises(ValueError, lambda: layer(x), "feature_map: tanh gives")
    assert_raises(
        ValueError,
        lambda: layer.decode(x, layer.init_cache(B, T)),
        "feature_map: tanh gives",
    )


@pytest.mark.parametrize("name", SIGNED)
def test_signed_maps_are_taken_where_nothing_is_divided(name):
    options = {"feature_map": SIGNED[name], "normalize": False}
    for form in FORMS.values():
        out = form(*qkv(), **options)
        assert np.isfinite(jax.tree.leaves(out)[0]).all()


@pytest.mark.parametrize("name", POSITIVE)
def test_maps_whose_dot_products_are_positive_are_taken(name):
    """A feature may be negative: x_i x_j is, and its dot products are squares."""
    y = ops.linear_attention(*qkv(), feature_map=POSITIVE[name])
    assert np.isfinite(y).all()


def test_a_map_with_parameters_is_taken_and_learns():
    """Under jit they have no values, and nothing can be tried."""
    q, k, v = qkv()

    @jax.jit
    @jax.grad
    def slope(w):
        def phi(x):
            return jax.nn.softplus(x @ w)

        return ops.linear_attention(q, k, v, feature_map=phi).sum()

    assert np.any(np.asarray(slope(jnp.asarray(normal(5, D, 3)))) != 0)


def test_a_map_is_tried_once():
    calls = []

    def phi(x):
        calls.append(x.shape)
        return ops.elu_plus_one(x)

    for _ in range(3):
        ops.linear_attention(*qkv(), feature_map=phi)
    assert calls[0] == (1, 60, 4, D)
    assert len(calls) == 3


def test_what_is_no_map_is_refused(plain_errors):
    assert_raises(
        TypeError,
        lambda: ops.linear_attention(*qkv(), feature_map="relu"),
        "feature_map: got str; expected a function from *b t h d to *b t h p",
        "elu_plus_one",
    )
    assert_raises(
        ValueError,
        lambda: ops.linear_attention(*qkv(), feature_map=lambda x: x.sum(-1)),
        "feature_map: returned shape (1, 60, 4) for (1, 60, 4, 5); expected the same",
    )
    assert_raises(
        ValueError,
        lambda: ops.linear_attention(
            *qkv(), feature_map=lambda x: x.sum(-1), normalize=False
        ),
        "feature_map: returned shape (1, 60, 4) for (1, 60, 4, 5)",
    )
