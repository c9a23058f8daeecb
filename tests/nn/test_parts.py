"""The small parts: dropout, the feed-forward layer, token positions, names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import nn
from attn_jax.nn._naming import named_rngs
from attn_jax.ops import masks
from tests.nn.cases import F32, filled, normal, numbers
from tests.ops.oracles import assert_close, assert_same_bits


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean(rate):
    """What is kept is divided by the share that is kept."""
    x = jnp.asarray(1 + normal(0, 400, 251) ** 2)
    out = np.asarray(nn.dropout(x, rate, jax.random.key(0)))
    kept = out != 0
    share = (1 - rate) * rate / x.size
    assert abs(kept.mean() - (1 - rate)) < 4 * share**0.5
    assert_close(out[kept], np.asarray(x)[kept] / (1 - rate), F32)
    # Which entries drop has nothing to do with their neighbours.
    assert abs(np.corrcoef(kept[:, 1:].ravel(), kept[:, :-1].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(kept[1:].ravel(), kept[:-1].ravel())[0, 1]) < 0.02


def test_dropout_without_a_key_or_a_rate_is_the_identity():
    x = jnp.asarray(normal(0, 3, 5))
    assert_same_bits(nn.dropout(x, 0.5, None), x)
    assert_same_bits(nn.dropout(x, 0.0, jax.random.key(0)), x)


def test_dropout_stops_what_it_drops_from_reaching_the_gradient():
    x = jnp.asarray(normal(0, 3, 50)).at[0, 0].set(jnp.nan)
    rng = next(
        rng
        for rng in map(jax.random.key, range(99))
        if nn.dropout(jnp.ones_like(x), 0.5, rng)[0, 0] == 0
    )
    out, gradient = jax.value_and_grad(lambda x: jnp.sum(nn.dropout(x, 0.5, rng)))(x)
    assert np.isfinite(out)
    assert set(np.unique(gradient)) == {0.0, 2.0}


def test_dropout_keeps_the_dtype():
    x = jnp.ones((3, 5), jnp.bfloat16)
    assert nn.dropout(x, 0.5, jax.random.key(0)).dtype == jnp.bfloat16


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward_equals_its_equation(activation, use_bias, x64):
    f64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}
    layer = filled(
        lambda: nn.FeedForward(
            5, 11, activation=activation, use_bias=use_bias, rngs=nnx.Rngs(0), **f64
        )
    )
    params = numbers(layer)
    assert params["up"]["kernel"].shape == (5, 11)
    assert ("bias" in params["up"]) == ("bias" in params["down"]) == use_bias
    x = normal(0, 2, 3, 5, dtype=np.float64)
    hidden = x @ params["up"]["kernel"] + params["up"].get("bias", 0.0)
    hidden = np.maximum(hidden, 0) if activation == "relu" else tanh_gelu(hidden)
    want = hidden @ params["down"]["kernel"] + params["down"].get("bias", 0.0)
    assert_close(jax.jit(layer)(x), want, 1e-12)


def counted(real, ids=None):
    """Real tokens before each token with its id, one token at a time."""
    out = np.zeros(real.shape, int)
    for b, t in np.ndindex(real.shape):
        mine = None if ids is None else ids[b, t]
        out[b, t] = sum(
            real[b, s] and (ids is None or ids[b, s] == mine) for s in range(t)
        )
    return out


def test_token_positions_count_real_tokens():
    rng = np.random.default_rng(0)
    real = np.concatenate(
        [rng.random((20, 9)) > 0.4, [[True] * 9, [False] * 9, [False] * 8 + [True]]]
    )
    rows = len(real)
    got = nn.token_positions(masks.padding(jnp.asarray(real)), (rows,), 9)
    np.testing.assert_array_equal(
        np.where(real, got, 0), np.where(real, counted(real), 0)
    )
    assert np.all((np.asarray(got) >= 0) & (np.asarray(got) < 9))


def test_token_positions_restart_in_each_segment():
    rng = np.random.default_rng(1)
    ids = np.sort(rng.integers(4, size=(20, 9)), axis=1)[:, ::-1]
    real = rng.random((20, 9)) > 0.3
    noisy = np.where(real, ids, rng.integers(9, size=ids.shape))
    packed = masks.segments(jnp.asarray(ids))
    got = nn.token_positions(packed, (20,), 9)
    np.testing.assert_array_equal(got, counted(np.ones_like(real), ids))
    mask = masks.causal() & masks.segments(jnp.asarray(noisy))
    got = nn.token_positions(mask & masks.padding(jnp.asarray(real)), (20,), 9)
    want = counted(real, ids)
    np.testing.assert_array_equal(np.where(real, got, 0), np.where(real, want, 0))
    assert np.all((np.asarray(got) >= 0) & (np.asarray(got) < 9))


def test_token_positions_of_whole_rows_are_not_built():
    assert nn.token_positions(masks.causal() & masks.window(2), (2,), 9) is None


def test_one_row_of_padding_serves_all():
    real = jnp.array([False, True, True])
    got = nn.token_positions(masks.padding(real), (2, 4), 3)
    np.testing.assert_array_equal(got, np.broadcast_to([0, 0, 1], (2, 4, 3)))


def test_a_stream_depends_on_its_name_alone():
    def draws(seed, *names):
        streams = named_rngs(nnx.Rngs(seed), *names)
        return {
            name: float(jax.random.normal(stream.params()))
            for name, stream in zip(names, streams, strict=True)
        }

    few, many = draws(0, "one", "two"), draws(0, "three", "two", "one")
    assert few == {name: many[name] for name in few}
    assert len(set(many.values())) == 3
    assert draws(1, "one")["one"] != few["one"]


def test_the_table_says_what_each_mechanism_is():
    for name, kind in nn.MECHANISMS.items():
        assert issubclass(kind, nn.Mechanism), name
        stated = (kind.equation, kind.cost, kind.function, kind.paper)
        assert all(isinstance(text, str) and text for text in stated), name
        assert kind.masks >= {"causal", "padding", "segments"}, name
        assert isinstance(kind.cannot_decode, str), name
        assert kind() == kind(), name
        hash(kind())
