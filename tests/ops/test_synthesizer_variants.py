"""Convolved and gated logits against their formulas, written out in float64."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import ops
from attn_jax.ops import masks
from tests.ops import oracle_synthesizer as oracle
from tests.ops import oracles
from tests.ops.oracles import assert_close, assert_same_bits
from tests.ops.test_synthesizer import check_logits, normal, wide

B, T, M, H, D, N, TAPS = 2, 7, 5, 3, 2, 11, 4
CONVOLVED = {
    "w1": (TAPS, H, M, D),
    "b1": (H, D),
    "w2": (H, D, N),
    "b2": (H, N),
}
GATED = {
    "w1": (H, M, D),
    "b1": (H, D),
    "v1": (H, M, D),
    "c1": (H, D),
    "w2": (H, D, N),
    "b2": (H, N),
}
CONVOLUTION, GATE = ops.convolution_synthesizer_logits, ops.gated_synthesizer_logits


@pytest.mark.parametrize("lead", [(), (2, 1)], ids=str)
def test_convolved_logits_equal_the_oracle(x64, lead):
    """Four taps on seven tokens: some reach before the first."""
    inputs = normal((*lead, T, M), *CONVOLVED.values())
    check_logits(CONVOLUTION, oracle.convolution_logits, inputs)


@pytest.mark.parametrize("lead", [(), (2, 1)], ids=str)
def test_gated_logits_equal_the_oracle(x64, lead):
    inputs = normal((*lead, T, M), *GATED.values())
    check_logits(GATE, oracle.gated_logits, inputs)


def test_logits_without_biases(x64):
    x, w1, b1, w2, b2 = normal((B, T, M), *CONVOLVED.values())
    want = oracle.convolution_logits(*wide(x, w1, 0 * b1, w2, 0 * b2))
    assert_close(CONVOLUTION(x, w1, None, w2, None), want, 1e-12)
    x, w1, b1, v1, c1, w2, b2 = normal((B, T, M), *GATED.values())
    want = oracle.gated_logits(*wide(x, w1, 0 * b1, v1, 0 * c1, w2, 0 * b2))
    assert_close(GATE(x, w1, None, v1, None, w2, None), want, 1e-12)


RNG = np.random.default_rng(1)
REAL = np.array([[0, 1, 1, 0, 1, 1, 1], [1, 0, 1, 1, 1, 0, 1]], bool)
IDS = np.array([[3, 3, 3, 3, 3, 1, 1], [2, 2, 2, 0, 0, 0, 0]])
TABLE = RNG.random((B, H, T, T)) < 0.6
EVERY = np.ones((B, T), bool)
# Mask -> its rules, and which tokens count.
HIDING = {
    "causal": (lambda: masks.causal(), [oracles.causal()], EVERY),
    "window": (lambda: masks.window(1), [oracles.window(1)], EVERY),
    "late": (lambda: masks.causal().offset(-2), [oracles.causal(-2)], EVERY),
    "padding": (
        lambda: masks.padding(jnp.asarray(REAL)),
        [oracles.padding(REAL)],
        REAL,
    ),
    "segments": (
        lambda: masks.segments(jnp.asarray(IDS)),
        [oracles.segments(IDS)],
        EVERY,
    ),
    "padded segments": (
        lambda: masks.segments(jnp.asarray(IDS)) & masks.padding(jnp.asarray(REAL)),
        [oracles.segments(IDS), oracles.padding(REAL)],
        REAL,
    ),
    "dense": (
        lambda: masks.dense(jnp.asarray(TABLE)),
        [oracles.dense(TABLE)],
        EVERY,
    ),
}


@pytest.mark.parametrize("name", HIDING)
def test_taps_are_real_tokens_that_the_query_may_see(x64, name):
    """The c-th real one before it, of its segment and window; each head its own."""
    make, rules, real = HIDING[name]
    allowed = oracles.allowed(rules, B, H, T, T)

    def place(b, head, i, c):
        before = np.flatnonzero(real[b][:i])
        j = before[-c] if c <= len(before) else -1
        return j if j >= 0 and allowed[(*b, head, i, j)] else -1

    inputs = normal((B, T, M), *CONVOLVED.values())
    check_logits(
        lambda *xs: CONVOLUTION(*xs, mask=make()),
        lambda *xs: oracle.convolution_logits(*xs, place=place),
        inputs,
    )


def test_what_padding_and_other_segments_hold_moves_no_other_logit():
    """To the bit, and with NaN behind it no gradient of a token but its own."""
    x, *layers = normal((B, T, M), *CONVOLVED.values(), dtype=np.float32)
    mask = HIDING["padded segments"][0]()
    hidden = ~REAL[..., None]

    def rows(x):
        out = CONVOLUTION(x, *layers, mask=mask)
        return jnp.where(hidden[:, None], 0, out)

    want = rows(x)
    for junk in (np.nan, np.inf, 1e30):
        assert_same_bits(rows(jnp.where(hidden, junk, x)), want, f"{junk}")
    slope = jax.grad(lambda x: jnp.sum(rows(x)[0, :, 5:]))(x)
    assert (np.asarray(slope)[0, 5:] != 0).all()
    assert (np.asarray(slope)[0, :5] == 0).all()
    assert (np.asarray(slope)[1] == 0).all()


def test_convolved_logits_reduce_to_dense_ones_with_one_tap():
    x, w1, b1, w2, b2 = normal((B, T, M), *CONVOLVED.values(), dtype=np.float32)
    got = CONVOLUTION(x, w1[:1], b1, w2, b2, mask=masks.causal())
    assert_same_bits(got, ops.dense_synthesizer_logits(x, w1[0], b1, w2, b2))
    assert (CONVOLUTION(x, w1, b1, w2, b2) != got)[..., 1:, :].any()


def test_gated_logits_reduce_to_half_a_linear_map_when_the_gate_is_0():
    x, w1, _, v1, _, w2, _ = normal((B, T, M), *GATED.values(), dtype=np.float32)
    got = GATE(x, w1, None, 0 * v1, None, w2, None)
    assert_close(got, 0.5 * jnp.einsum("btm,hmd,hdn->bhtn", x, w1, w2), 1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_logits_are_computed_in_float32(dtype):
    for op, formula, shapes in (
        (CONVOLUTION, oracle.convolution_logits, CONVOLVED),
        (GATE, oracle.gated_logits, GATED),
    ):
        inputs = normal((B, T, M), *shapes.values(), dtype=dtype)
        got = op(*inputs)
        chex.assert_type(got, jnp.float32)
        assert_close(got, formula(*wide(*inputs)), 1e-6)


@pytest.mark.parametrize("token", [0, 3, T - 1])
def test_no_token_moves_a_row_before_it(token):
    """To the bit; and it moves its own and the TAPS - 1 after it, of every head."""
    x, *layers = normal((B, T, M), *CONVOLVED.values(), dtype=np.float32)
    want = CONVOLUTION(x, *layers)
    got = CONVOLUTION(x.at[:, token].set(1e3), *layers)
    assert_same_bits(got[:, :, :token], want[:, :, :token])
    moved = (got != want).any((0, -1))
    reach = (np.arange(T) >= token) & (np.arange(T) < token + TAPS)
    np.testing.assert_array_equal(moved, np.broadcast_to(reach, (H, T)))


FAMILY = {
    "dense": (
        ops.dense_synthesizer_logits,
        {"w1": (H, M, D), "b1": (H, D), "w2": (H, D, N), "b2": (H, N)},
    ),
    "convolution": (CONVOLUTION, CONVOLVED),
    "gated": (GATE, GATED),
}


@pytest.mark.parametrize("name", FAMILY)
def test_logits_of_a_head_do_not_move_with_the_weights_of_another(name):
    op, shapes = FAMILY[name]
    x, *layers = normal((B, T, M), *shapes.values(), dtype=np.float32)
    want = op(x, *layers)
    for i, (weight, shape) in enumerate(shapes.items()):
        axis = shape.index(H)
        other = jnp.arange(H).reshape(
            [H if k == axis else 1 for k in range(len(shape))]
        )
        moved = jnp.where(other == 1, layers[i] + 1, layers[i])
        got = op(x, *layers[:i], moved, *layers[i + 1 :])
        assert_same_bits(got[:, 0], want[:, 0], weight)
        assert (got[:, 1] != want[:, 1]).any(), weight


def test_nothing_in_gives_logits_of_the_right_shape():
    x, *layers = normal((0, T, M), *CONVOLVED.values(), dtype=np.float32)
    assert CONVOLUTION(x, *layers, mask=masks.causal()).shape == (0, H, T, N)
    empty = jnp.zeros((B, 0, M))
    assert CONVOLUTION(empty, *layers, mask=masks.causal()).shape == (B, H, 0, N)
    gated = normal(*GATED.values(), dtype=np.float32)
    assert GATE(empty, *gated).shape == (B, H, 0, N)


X, W1, W2 = jnp.ones((B, T, M)), jnp.ones((TAPS, H, M, D)), jnp.ones((H, D, N))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: CONVOLUTION(X, W1[:, :, 1:], None, W2, None),
            r"w1: got m = 4 .*c h m d.* m = 5 in x",
        ),
        (
            lambda: CONVOLUTION(X, W1[0], None, W2, None),
            r"w1: got shape \(3, 5, 2\) with 3 axes; expected 4.*c h m d",
        ),
        (
            lambda: CONVOLUTION(X, W1[:0], None, W2, None),
            r"w1: got no tap .*expected at least one",
        ),
        (
            lambda: CONVOLUTION(X, W1, None, W2[:1], None),
            r"w2: got h = 1 .*h = 3 in w1",
        ),
        (
            lambda: CONVOLUTION(
                X, W1, None, W2, None, mask=masks.padding(jnp.ones((3, T), bool))
            ),
            r"mask: .*shape \(3, .*batch axes \(2,\)",
        ),
        (
            lambda: GATE(X, W1[0], None, W1[0, :, :, 1:], None, W2, None),
            r"v1: got d = 1 .*d = 2 in w1",
        ),
        (
            lambda: GATE(X, W1[0], None, W1[0], jnp.ones((1, D)), W2, None),
            r"c1: got h = 1 .*h = 3 in w1",
        ),
    ],
)
def test_what_does_not_fit_raises_with_numbers(call, message, plain_errors):
    with pytest.raises(ValueError, match=message):
        call()


def test_types_that_do_not_fit_raise(plain_errors):
    with pytest.raises(TypeError, match=r"x: got dtype int32; .*astype"):
        CONVOLUTION(X.astype(int), W1, None, W2, None)
    with pytest.raises(TypeError, match=r"mask: got an array .*dense\(allowed\)"):
        CONVOLUTION(X, W1, None, W2, None, mask=jnp.ones((T, T), bool))
