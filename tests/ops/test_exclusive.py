"""Exclusive self attention against equation 2 of the paper, written out in float64."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import ops
from attn_jax.ops import masks
from tests.ops import oracle_exclusive, oracles
from tests.ops.oracles import assert_close, assert_same_bits

B, T, H, G, E = 2, 5, 6, 3, 7


def arrays(lead=(B,), t=T, h=H, g=G, e=E, dtype=np.float32, seed=0):
    """Random y, v and a cotangent of the output, rounded to dtype."""
    rng = np.random.default_rng(seed)
    shapes = (t, h, e), (t, g, e), (t, h, e)
    return [jnp.asarray(rng.normal(size=(*lead, *shape)), dtype) for shape in shapes]


@jax.jit
def exclude(y, v, cotangent, strength=None):
    """The output and the gradients of y, v and strength (None where it is None)."""

    def output(y, v, strength):
        return ops.exclude_self(y, v, strength=strength)

    out, pullback = jax.vjp(output, y, v, strength)
    return out, *pullback(cotangent)


def check(inputs, ceiling, strength=1.0):
    y, v, cotangent = (np.asarray(x).astype(np.float64) for x in inputs)
    out, dy, dv, dstrength = exclude(*inputs, jnp.asarray(strength, inputs[1].dtype))
    strength = np.asarray(strength, np.float64)
    want_y, want_v, slopes = oracle_exclusive.pullback(y, v, strength, cotangent)
    want = slopes.sum(axis=tuple(range(slopes.ndim - strength.ndim)))
    axes = tuple(i for i, n in enumerate(strength.shape) if n == 1)
    want = want.sum(axis=axes, keepdims=True)
    assert_close(out, oracle_exclusive.exclude_self(y, v, strength), ceiling, "out")
    assert_close(dy, want_y, ceiling, "y")
    assert_close(dv, want_v, ceiling, "v")
    assert_close(dstrength, want.reshape(strength.shape), 4 * ceiling, "strength")
    chex.assert_type([out, dy, dv], inputs[1].dtype)


def test_gradients_of_the_oracle_are_the_slopes_of_its_outputs():
    y, v, cotangent = (np.asarray(x, np.float64) for x in arrays((), t=2, h=4, g=2))
    strength = np.full((2, 4, 1), 0.7)
    inputs = {"y": y, "v": v, "strength": strength}
    slopes = oracle_exclusive.pullback(**inputs, cotangent=cotangent)
    for (name, x), slope in zip(inputs.items(), slopes, strict=True):
        want = oracles.finite_differences(
            lambda x, name=name: np.sum(
                oracle_exclusive.exclude_self(**inputs | {name: x}) * cotangent
            ),
            x,
        )
        assert_close(slope, want, 1e-7, name)


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"lead": (), "h": 3, "g": 3, "e": 1},
        {"lead": (2, 3), "h": 4, "g": 1, "t": 4, "e": 4},
        {"lead": (1,), "h": 8, "g": 2, "e": 80},
    ],
    ids=str,
)
def test_every_shape_equals_the_oracle(x64, sizes):
    """Leading axes, grouped heads, any width, sizes that collide (t = h = e)."""
    check(arrays(**sizes, dtype=np.float64), 1e-12)


@pytest.mark.parametrize("shape", [(), (1,), (H, 1), (T, 1, 1), (B, T, H, 1)], ids=str)
def test_strength_broadcasts_to_a_number_per_vector(x64, shape):
    strength = np.random.default_rng(1).normal(size=shape)
    check(arrays(dtype=np.float64), 1e-12, strength)


@pytest.mark.parametrize(
    ("dtype", "ceiling"),
    [(jnp.float32, 1e-6), (jnp.bfloat16, 5e-3), (jnp.float16, 1e-3)],
)
def test_error_stays_below_the_ceiling_of_the_dtype(dtype, ceiling):
    check(arrays(dtype=dtype), ceiling)


@pytest.mark.parametrize(
    ("y", "v"), [("bfloat16", "float32"), ("float32", "float16")], ids=str
)
def test_the_output_has_the_dtype_of_v(y, v):
    inputs = arrays()
    chex.assert_type(ops.exclude_self(inputs[0].astype(y), inputs[1].astype(v)), v)


def test_is_orthogonal_to_the_own_value_and_no_longer_than_y():
    y, v, _ = arrays(t=101, e=64)
    z = np.asarray(ops.exclude_self(y, v), np.float64)
    own = np.repeat(np.asarray(v, np.float64), H // G, axis=-2)
    lengths = np.linalg.norm(z, axis=-1)
    cosine = np.sum(z * own, -1) / (lengths * np.linalg.norm(own, axis=-1))
    assert np.abs(cosine).max() < 1e-6
    assert (lengths <= np.linalg.norm(np.asarray(y, np.float64), axis=-1)).all()


@pytest.mark.parametrize("g", [1, 2, 8])
def test_grouped_heads_equal_repeated_ones(g):
    y, v, cotangent = arrays(h=8, g=g)
    repeated = jnp.repeat(v, 8 // g, axis=-2)
    out, dy, dv, _ = exclude(y, v, cotangent)
    want, want_dy, dr, _ = exclude(y, repeated, cotangent)
    assert_close(out, want, 1e-6)
    assert_close(dy, want_dy, 1e-6)
    assert_close(dv, dr.reshape(B, T, g, 8 // g, E).sum(-2), 1e-6)


def test_grouped_heads_are_not_repeated_in_memory():
    """64 query heads of one value head: nothing of y's size beside the output."""
    y, v = (jax.ShapeDtypeStruct((1, 128, n, 64), jnp.float32) for n in (64, 1))
    memory = jax.jit(ops.exclude_self).lower(y, v).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 4 * y.size / 8


def test_reduces_to_y_when_strength_is_0():
    y, v, _ = arrays()
    assert_same_bits(ops.exclude_self(y, v, strength=0.0), y)


def test_the_length_of_v_does_not_matter():
    y, v, _ = arrays()
    for scale in (2.0**-40, 2.0**90):
        assert_close(ops.exclude_self(y, scale * v), ops.exclude_self(y, v), 1e-6)


def test_reduces_to_y_at_a_token_whose_value_has_no_direction():
    """0, a square that underflows, and what is not finite; gradients are finite."""
    y, v, cotangent = arrays()
    for value in (0.0, 1e-30, 1e-20, -1e-38, np.nan, np.inf, -np.inf):
        out, dy, dv, _ = exclude(y, v.at[1, 2].set(value), cotangent)
        want, want_dy, want_dv, _ = exclude(y, v, cotangent)
        others = np.ones((B, T), bool)
        others[1, 2] = False
        assert_same_bits(out[1, 2], y[1, 2], f"out for {value}")
        assert_same_bits(dy[1, 2], cotangent[1, 2], f"y for {value}")
        assert_same_bits(dv[1, 2], jnp.zeros((G, E)), f"v for {value}")
        for got, same in ((out, want), (dy, want_dy), (dv, want_dv)):
            assert_same_bits(got[others], same[others], f"others for {value}")


@pytest.mark.parametrize("scale", [1e-17, 1e-12, 1e15, 1e30])
def test_values_of_any_length_in_float32(scale):
    """|v|^2 and its square, in the gradient, leave the range of float32."""
    y, v, cotangent = arrays()
    check((y, v * scale, cotangent), 1e-6)
    check((y, v * scale, cotangent), 1e-6, 0.5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_values_of_any_length_in_16_bits(dtype):
    y, v, cotangent = arrays(dtype=dtype)
    for scale in (2.0**-6, 2.0**13):
        check((y, (v * scale).astype(dtype), cotangent), 5e-3)
    assert_same_bits(ops.exclude_self(y, jnp.zeros_like(v)), y)


def test_debug_nans_finds_nothing_where_a_value_is_0():
    y, v, cotangent = arrays()
    with jax.debug_nans(True):
        exclude(y, v.at[0, 1].set(0), cotangent)


def attention(q, k, v, mask):
    y = ops.softmax_attention(q, k, v, mask=mask)
    return y, ops.exclude_self(y, v)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_token_that_sees_itself_alone_gives_0(dtype):
    """The first of a sequence and of each segment, and a window of one."""
    rng = np.random.default_rng(2)
    q, k, v = (jnp.asarray(rng.normal(size=(B, T, n, E)), dtype) for n in (H, G, G))
    mask = masks.causal() & masks.segments(jnp.asarray([0, 0, 0, 1, 1]))
    y, z = attention(q, k, v, mask)
    assert (jnp.abs(y[:, [0, 3]]).max(-1) > 0.1).all()
    assert (jnp.abs(z[:, [0, 3]]) < 1e-6).all()
    assert (jnp.abs(z[:, [1, 2, 4]]).max(-1) > 1e-3).all()
    assert (jnp.abs(attention(q, k, v, masks.window(0))[1]) < 1e-6).all()


def test_equals_the_diagonal_zeroed_after_the_softmax_then_projected(x64):
    rng = np.random.default_rng(2)
    q, k, v = (jnp.asarray(rng.normal(size=(B, T, n, E))) for n in (H, G, G))
    mask = masks.causal()
    _, z = attention(q, k, v, mask)
    weights = np.array(ops.softmax_attention_weights(q, k, mask=mask))
    weights[..., np.arange(T), np.arange(T)] = 0
    values = np.repeat(np.asarray(v), H // G, axis=-2)
    y = np.einsum("bhts,bshe->bthe", weights, values)
    assert_close(z, oracle_exclusive.exclude_self(y, np.asarray(v)), 1e-12)


def test_a_padded_query_stays_0_whatever_its_value_holds():
    y, v, cotangent = arrays()
    y = y.at[:, 3].set(0)
    out, _, dv, _ = exclude(y, v.at[:, 3].set(np.nan), cotangent)
    assert (out[:, 3] == 0).all()
    assert (dv[:, 3] == 0).all()


@pytest.mark.parametrize("sizes", [{"t": 0}, {"lead": (0,)}], ids=str)
def test_nothing_in_gives_nothing_of_the_right_shape(sizes):
    inputs = arrays(**sizes)
    out, dy, dv, _ = exclude(*inputs)
    chex.assert_trees_all_equal_shapes((out, dy, dv), (inputs[0], *inputs[:2]))


def test_jit_equals_eager_and_vmap_a_loop():
    y, v, _ = arrays()
    got = ops.exclude_self(y, v)
    with jax.disable_jit():
        assert_close(got, ops.exclude_self(y, v), 1e-6)
    assert_same_bits(jax.vmap(ops.exclude_self)(y, v), got)
    assert_same_bits(jnp.stack([ops.exclude_self(y[b], v[b]) for b in range(B)]), got)


def test_the_second_call_traces_nothing():
    def call(seed, strength):
        y, v, _ = arrays(seed=seed)
        ops.exclude_self(y, v, strength=strength)
        return ops.exclude_self._cache_size()

    assert call(0, 0.5) == call(1, 0.25)


def test_forward_mode_and_second_derivatives(x64):
    y, v, cotangent = arrays(dtype=np.float64)
    dy, dv, _ = arrays(dtype=np.float64, seed=1)

    def gradient(y, v):
        return jax.vjp(ops.exclude_self, y, v)[1](cotangent)[1]

    def theirs(step):
        moved = (np.asarray(y + step * dy), np.asarray(v + step * dv))
        return (
            oracle_exclusive.exclude_self(*moved),
            oracle_exclusive.pullback(*moved, 1.0, np.asarray(cotangent))[1],
        )

    for f, above, below in zip(
        (ops.exclude_self, gradient), theirs(1e-6), theirs(-1e-6), strict=True
    ):
        _, slope = jax.jvp(f, (y, v), (dy, dv))
        assert_close(slope, (above - below) / 2e-6, 1e-6)


@pytest.mark.parametrize(
    ("y", "v", "message"),
    [
        ((2, 5, 3, 7), (2, 5, 2, 7), r"v: got 2 heads for y's 3; .*divides"),
        ((2, 5, 2, 7), (2, 5, 3, 7), r"v: got 3 heads for y's 2; .*divides"),
        ((2, 5, 2, 7), (2, 6, 2, 7), r"v: got 6 tokens .* y's 5 .*cross-attention"),
        ((2, 5, 2, 7), (2, 5, 2, 8), r"v: got 8 features .* y's 7 .*same e"),
        ((2, 5, 2, 7), (1, 5, 2, 7), r"v: got leading axes \(1,\).*broadcast"),
        ((5, 7), (5, 7), r"v: got shape \(5, 7\) with 2 axes.*at least 3"),
    ],
)
def test_shapes_that_do_not_fit_raise_with_numbers(y, v, message, plain_errors):
    with pytest.raises(ValueError, match=message):
        ops.exclude_self(jnp.ones(y), jnp.ones(v))


def test_arguments_that_do_not_fit_raise_with_numbers(plain_errors):
    y, v, _ = arrays()
    for shape in ((H,), (B, T, H, E), (1, B, T, H, 1)):
        with pytest.raises(ValueError, match=r"strength: got.*\(2, 5, 6, 1\)"):
            ops.exclude_self(y, v, strength=jnp.ones(shape))
    with pytest.raises(TypeError, match=r"y: got dtype int32; .*astype"):
        ops.exclude_self(y.astype(int), v)
