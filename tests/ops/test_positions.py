"""Positions against their closed formulas, one number at a time in float64."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import ops
from attn_jax.ops import masks
from tests.ops import oracle_positions
from tests.ops.oracles import assert_close, assert_same_bits

B, T, S, H, D = 2, 5, 7, 3, 8


def features(lead=(B,), t=T, h=H, d=D, dtype=np.float32, seed=0):
    """Random x and a cotangent of the output, rounded to dtype."""
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=(*lead, t, h, d)), dtype) for _ in range(2)]


@pytest.mark.parametrize("d_model", [1, 2, 7, 8])
def test_sinusoidal_table_equals_the_closed_formula(d_model):
    table = ops.sinusoidal_positions(T, d_model)
    want = [
        [oracle_positions.sinusoidal(i, j, d_model) for j in range(d_model)]
        for i in range(T)
    ]
    chex.assert_shape(table, (T, d_model))
    chex.assert_type(table, jnp.float32)
    np.testing.assert_allclose(table, want, rtol=0, atol=6e-8)


@pytest.mark.parametrize("d_model", [1, 2, 7, 8])
def test_concatenated_reduces_to_interleaved_with_even_columns_first(d_model):
    table = ops.sinusoidal_positions(T, d_model)
    assert_same_bits(
        ops.sinusoidal_positions(T, d_model, layout="concatenated"),
        jnp.concatenate([table[:, 0::2], table[:, 1::2]], axis=1),
    )


def test_sinusoidal_rows_are_exact_however_late():
    table = np.asarray(ops.sinusoidal_positions(60_001, 6))
    for position in (59_999, 60_000):
        want = [oracle_positions.sinusoidal(position, j, 6) for j in range(6)]
        np.testing.assert_allclose(table[position], want, rtol=0, atol=6e-8)


def test_sinusoidal_rows_do_not_depend_on_the_length():
    assert_same_bits(ops.sinusoidal_positions(9, 6)[:4], ops.sinusoidal_positions(4, 6))
    chex.assert_shape(ops.sinusoidal_positions(0, 6), (0, 6))


def test_sinusoidal_table_has_the_default_dtype(x64):
    table = ops.sinusoidal_positions(3, 7)
    chex.assert_type(table, jnp.float64)
    want = oracle_positions.sinusoidal(2, 5, 7)
    np.testing.assert_allclose(table[2, 5], want, rtol=1e-14)


@jax.jit
def turn(x, positions, base=10_000.0):
    return ops.apply_rotary(x, positions, base=base)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [{}, {"lead": (), "h": 1, "d": 2}, {"lead": (2, 3), "t": 4, "h": 4, "d": 4}],
    ids=str,
)
def test_rotary_equals_complex_rotation(x64, sizes, interleaved):
    """Outputs, and gradients: what turns one way is pulled back the other way."""
    x, cotangent = features(**sizes, dtype=np.float64)
    positions = np.random.default_rng(1).integers(0, 900, x.shape[:-2])
    options = {"base": 500.0, "interleaved": interleaved}
    out, pullback = jax.vjp(
        lambda x: ops.apply_rotary(x, jnp.asarray(positions), **options), x
    )
    want = oracle_positions.rotary(np.asarray(x), positions, **options)
    back = oracle_positions.rotary(np.asarray(cotangent), -positions, **options)
    assert_close(out, want, 1e-12)
    assert_close(pullback(cotangent)[0], back, 1e-12)


@pytest.mark.parametrize("shape", [(T,), (1, T), (B, T), (3, 1, T), (1, B, T)], ids=str)
def test_rotary_positions_broadcast_over_leading_axes(shape):
    x, _ = features((3, B))
    positions = jnp.asarray(np.random.default_rng(1).integers(0, 50, shape))
    assert_same_bits(
        turn(x, positions), turn(x, jnp.broadcast_to(positions, (3, B, T)))
    )


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_dot_products_depend_on_the_distance_alone(x64, interleaved):
    q, k = (x[0] for x in features(dtype=np.float64))

    def scores(start):
        q_, k_ = (
            ops.apply_rotary(x, start + jnp.arange(T), interleaved=interleaved)
            for x in (q, k)
        )
        return jnp.einsum("thd,shd->hts", q_, k_)

    assert_close(scores(1234), scores(0), 1e-12)
    assert not np.allclose(scores(0), jnp.einsum("thd,shd->hts", q, k))


def test_rotary_keeps_lengths():
    x, _ = features()
    turned = turn(x, jnp.arange(T) * 1000)
    np.testing.assert_allclose(
        jnp.linalg.norm(turned, axis=-1), jnp.linalg.norm(x, axis=-1), rtol=1e-6
    )


def test_rotary_reduces_to_x_at_position_0():
    x, _ = features()
    assert_same_bits(turn(x, jnp.zeros((B, T), int)), x)


def test_rotary_uses_the_positions_it_is_given():
    """Same length, two offsets, two results; a decoded token equals its row."""
    x, _ = features()
    full = turn(x, jnp.arange(T))
    assert not np.allclose(turn(x, 3 + jnp.arange(T)), full)
    for i in range(T):
        assert_close(turn(x[:, i : i + 1], jnp.asarray([i])), full[:, i : i + 1], 1e-6)


@pytest.mark.parametrize(
    ("dtype", "ceiling"),
    [(jnp.float32, 3e-5), (jnp.bfloat16, 3e-3), (jnp.float16, 5e-4)],
)
def test_rotary_error_stays_below_the_ceiling_of_the_dtype(dtype, ceiling):
    """Position 1001 is not a bfloat16: angles are computed in float32."""
    x, _ = features(dtype=dtype)
    positions = jnp.asarray([0, 1, 10, 100, 1001])
    out = turn(x, positions)
    chex.assert_type(out, dtype)
    want = oracle_positions.rotary(np.asarray(x, np.float64), np.asarray(positions))
    assert_close(out, want, ceiling)


def test_rotary_base_and_positions_may_be_traced_or_fractional():
    x, _ = features()
    halves = jnp.arange(T) / 2
    want = oracle_positions.rotary(np.asarray(x, np.float64), halves, 77.0)
    assert_close(turn(x, halves, jnp.asarray(77.0)), want, 1e-6)


@pytest.mark.parametrize("sizes", [{"t": 0}, {"lead": (0,)}, {"d": 0}], ids=str)
def test_rotary_of_nothing_is_nothing(sizes):
    x, _ = features(**sizes)
    chex.assert_shape(turn(x, jnp.arange(x.shape[-3])), x.shape)


@pytest.mark.parametrize("h", [1, 2, 3, 5, 6, 8, 12, 16])
def test_alibi_equals_the_formula_for_any_number_of_heads(h):
    assert_close(ops.alibi_bias(h, T, S), oracle_positions.alibi(h, T, S), 1e-7)


def test_alibi_slopes_of_the_paper():
    slopes = -ops.alibi_bias(8, 2, 1)[:, 1, 0]
    np.testing.assert_array_equal(slopes, [2.0**-k for k in range(1, 9)])


def test_alibi_reduces_to_0_on_the_diagonal():
    bias = ops.alibi_bias(H, T, S, offset=2)
    for i in range(T):
        assert (bias[:, i, i + 2] == 0).all()
        assert (np.delete(bias[:, i], i + 2, axis=-1) < 0).all()


def test_alibi_offset_moves_the_queries():
    """Same sizes, two offsets, two results; traced or not; one an example."""
    full = ops.alibi_bias(H, S, S)
    starts = jnp.asarray([0, 2, 6])
    each = ops.alibi_bias(H, 1, S, offset=starts)
    chex.assert_shape(each, (3, H, 1, S))
    for start, bias in zip((0, 2, 6), each, strict=True):
        row = full[:, start : start + 1]
        assert_same_bits(ops.alibi_bias(H, 1, S, offset=start), row)
        assert_same_bits(bias, row)
    before = ops.alibi_bias(H, 2, S, offset=-3)
    assert_close(before, oracle_positions.alibi(H, 2, S, -3), 1e-7)
    sizes = ops.alibi_bias._cache_size()
    assert_same_bits(ops.alibi_bias(H, 1, S, offset=1), full[:, 1:2])
    assert ops.alibi_bias._cache_size() == sizes


def test_alibi_decodes_as_the_full_forward_pass():
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(B, S, H, D)), np.float32) for _ in range(3))
    full = ops.softmax_attention(
        q, k, v, mask=masks.causal(), bias=ops.alibi_bias(H, S, S)
    )
    for i in range(S):
        step = ops.softmax_attention(
            q[:, i : i + 1],
            k,
            v,
            mask=masks.causal().offset(i),
            bias=ops.alibi_bias(H, 1, S, offset=i),
        )
        assert_close(step, full[:, i : i + 1], 1e-6)


def test_alibi_of_nothing_and_in_float64(x64):
    chex.assert_shape(ops.alibi_bias(H, 0, S), (H, 0, S))
    bias = ops.alibi_bias(6, T, S)
    chex.assert_type(bias, jnp.float64)
    assert_close(bias, oracle_positions.alibi(6, T, S), 1e-15)


def test_sizes_that_do_not_fit_raise_with_numbers(plain_errors):
    for length, d_model, message in (
        (-1, 4, r"length: got -1; .*>= 0"),
        (2.0, 4, r"length: got 2\.0; .*int"),
        (True, 4, r"length: got True; .*int"),
        (3, 0, r"d_model: got 0; .*>= 1"),
    ):
        with pytest.raises(ValueError, match=message):
            ops.sinusoidal_positions(length, d_model)
    with pytest.raises(ValueError, match=r"layout: got 'halves'; .*'concatenated'"):
        ops.sinusoidal_positions(3, 4, layout="halves")
    for sizes, message in (
        ((0, 3, 3), r"h: got 0; .*>= 1"),
        ((2, -1, 3), r"t: got -1; .*>= 0"),
        ((2, 3, 1.5), r"s: got 1\.5; .*int"),
    ):
        with pytest.raises(ValueError, match=message):
            ops.alibi_bias(*sizes)
    with pytest.raises(TypeError, match=r"offset: got dtype float32; .*integer"):
        ops.alibi_bias(2, 3, 3, offset=1.0)


@pytest.mark.parametrize(
    ("x", "positions", "message"),
    [
        ((2, 5, 3, 7), (5,), r"x: got d = 7 .*even.*head_dim"),
        ((5, 8), (5,), r"x: got shape \(5, 8\) with 2 axes.*x\[\.\.\., None, :\]"),
        ((2, 5, 3, 8), (1,), r"positions: got shape \(1,\).*\(2, 5\).*arange"),
        ((2, 5, 3, 8), (5, 2), r"positions: got shape \(5, 2\).*\(2, 5\)"),
        ((2, 5, 3, 8), (3, 5), r"positions: got shape \(3, 5\).*\(2, 5\)"),
        ((2, 5, 3, 8), (1, 2, 5), r"positions: got shape \(1, 2, 5\).*\(2, 5\)"),
        ((2, 5, 3, 8), (), r"positions: got shape \(\).*\(2, 5\)"),
    ],
)
def test_rotary_shapes_that_do_not_fit_raise_with_numbers(
    x, positions, message, plain_errors
):
    with pytest.raises(ValueError, match=message):
        ops.apply_rotary(jnp.ones(x), jnp.zeros(positions, int))


def test_rotary_of_integers_raises(plain_errors):
    with pytest.raises(TypeError, match=r"x: got dtype int32; .*astype"):
        ops.apply_rotary(jnp.ones((5, 3, 8), int), jnp.arange(5))
