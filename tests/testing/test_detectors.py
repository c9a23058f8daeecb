"""Each detector passes right functions and names what leaks in the others."""

import re
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.testing import (
    assert_causal,
    assert_decode_matches,
    assert_padding_invariant,
    assert_segments_isolated,
)
from attn_jax.testing._compare import differences
from tests.testing import leaky
from tests.testing.leaky import QKV, B, T, X


def assert_finds(*parts):
    """A context in which a detector has to raise, with these parts in this order."""
    return pytest.raises(AssertionError, match=".*".join(map(re.escape, parts)))


CAUSAL = {
    "softmax": (leaky.causal, QKV),
    "means of the past": (leaky.past_means, [X]),
    "one row without a batch": (leaky.past_means, [X[0]]),
    "the token before": (leaky.shift, [X]),
    "nothing of itself": (lambda x: leaky.shift(x) - x, [X]),
    "16 bits": (lambda x: leaky.shift(x), [X.astype(jnp.bfloat16)]),
    "integers": (
        lambda n: leaky.past_means(jnp.eye(5)[n]),
        [jnp.arange(14).reshape(2, 7) % 5],
    ),
}


@pytest.mark.parametrize("case", CAUSAL)
def test_causal_functions_pass(case):
    f, inputs = CAUSAL[case]
    assert_causal(f, *inputs)


FUTURE = {
    "off by one": (leaky.off_by_one, QKV, "output at token 0", "token 1"),
    "weights requested": (leaky.weights_requested, QKV, "output at token"),
    "block means": (leaky.block_means, [X], "output at token 0", "token 1"),
    "a circular filter": (leaky.circular, [X], "output at token 0", "token 1"),
    "hidden by rounding": (
        leaky.hidden_by_rounding,
        [X],
        "gradient of the output at token 0",
        "with respect to token 6",
        "e-30",
    ),
    "a cumulative sum backwards": (
        lambda n: jnp.cumsum(jnp.eye(5)[n], 1)[:, ::-1],
        [jnp.arange(14).reshape(2, 7) % 5],
        "output at token",
    ),
}


@pytest.mark.parametrize("case", FUTURE)
def test_a_function_that_sees_the_future_is_found(case):
    f, inputs, *parts = FUTURE[case]
    with assert_finds("assert_causal: f sees the future", *parts):
        assert_causal(f, *inputs)


def test_the_message_says_which_output_moved_when_what_changed_and_by_how_much():
    with pytest.raises(AssertionError) as caught:
        assert_causal(leaky.block_means, X)
    assert re.fullmatch(
        r"assert_causal: f sees the future: the output at token 0 of row . moved by "
        r"[\d.]+ when token 1 of rows 0, 1 changed; expected outputs before it to stay "
        r"as they are, to the bit",
        str(caught.value),
    )


def test_the_order_of_sums_may_be_allowed_for():
    """A Fourier transform rounds the past differently when the future changes."""
    with assert_finds("output at token"):
        assert_causal(leaky.padded_filter, X, scales=(1.0,))
    assert_causal(leaky.padded_filter, X, scales=(1.0,), tolerance=1e-5)
    with assert_finds("output at token"):
        assert_causal(leaky.circular, X, scales=(1.0,), tolerance=1e-5)


def test_rows_that_mix_are_found_or_meant():
    with assert_finds("f mixes rows: the output at token 0 of row", "other rows"):
        assert_causal(leaky.batch_norm, X)
    assert_causal(leaky.batch_norm, X, independent_rows=False)

    def mixed_below_rounding(x):
        return leaky.past_means(x) + 1e-30 * x[::-1]

    with assert_finds(
        "f mixes rows: the gradient of the output at token 1 of rows 0, 1 with respect "
        "to token 1 of row 2 is",
        "other rows",
    ):
        assert_causal(mixed_below_rounding, X)


@pytest.mark.parametrize("jit", [True, False])
def test_a_function_that_ignores_its_inputs_proves_nothing(jit):
    with assert_finds("assert_causal: no output moved"):
        assert_causal(lambda x: 0 * x, X, jit=jit)
    with assert_finds("assert_padding_invariant: no output moved"):
        assert_padding_invariant(lambda x, real: jnp.zeros_like(x), X, jit=jit)
    with assert_finds("assert_segments_isolated: no output moved"):
        assert_segments_isolated(lambda x, ids: jnp.zeros_like(x), X, jit=jit)


def test_nan_is_a_difference_and_never_a_match():
    """Contract 13: a reference of NaN compared with numbers has passed elsewhere."""
    one, nan = np.ones((1, 2, 3)), np.ones((1, 2, 3))
    nan[0, 1, 2] = np.nan
    for got, want in ((one, nan), (nan, one), (nan, nan)):
        assert differences(got, want).tolist() == [[0, np.inf]]
    assert differences(np.full((1, 1, 1), np.inf), np.full((1, 1, 1), np.inf)) == 0
    with assert_finds("output at token 6", "is NaN before anything was changed"):
        assert_causal(lambda x: x.at[:, -1].set(jnp.nan), X)


def test_a_nan_may_be_asked_to_stay_where_it_is():
    assert_causal(leaky.shift, X, scales=(1.0, jnp.nan))
    with assert_finds("output at token 0", "moved to NaN or infinity when token 1"):
        assert_causal(leaky.causal, *QKV, scales=(1.0, jnp.nan))


def test_other_axes_and_chosen_positions():
    seen = []

    def first_axis(x):
        return jnp.cumsum(x, axis=0)

    assert_causal(first_axis, jnp.ones((T, 2)), axis=0)
    assert_causal(lambda x: first_axis(x).T, jnp.ones((T, 2)), axis=0, out_axis=1)
    with assert_finds("output at token 0", "token 1"):
        assert_causal(lambda x: first_axis(x)[::-1], jnp.ones((T, 2)), axis=0)

    def watched(x):
        seen.append(np.flatnonzero(np.any(np.asarray(x) != 1, axis=(0, 2))).tolist())
        return jnp.cumsum(x, axis=1)

    ones, options = jnp.ones((1, 40, 2)), {"jit": False, "gradients": False}
    assert_causal(watched, ones, **options)
    changed = sorted({at for (at,) in seen[1:]})
    assert changed[0] == 0
    assert changed[-1] == 39
    assert {7, 8, 9, 15, 16, 17, 31, 32, 33} <= set(changed) < set(range(40))
    seen.clear()
    assert_causal(watched, ones, positions=[3, -1], **options)
    assert seen == [[], [3], [3], [39], [39]]


def masked(q, k, v, real, causal=True):
    """Attention of real tokens to real tokens, 0 at padding."""
    allowed = real[:, None] & real[..., None]
    allowed = allowed & leaky.tril(q.shape[1]) if causal else allowed
    return leaky.attend(q, k, v, allowed)


def local(x, real):
    return jnp.sin(jnp.where(real[..., None], x, 0))


PADDED = {
    "softmax": (masked, QKV, {"zeros": True}),
    "not causal": (partial(masked, causal=False), QKV, {"zeros": True}),
    "linear": (
        partial(leaky.linear, in_denominator=False),
        QKV,
        {},
    ),
    "token by token": (local, [X], {"zeros": True}),
    "one row": (local, [X[0]], {"lengths": [3]}),
    "integers": (
        lambda n, real: jnp.eye(5)[jnp.where(real, n, 0)],
        [jnp.arange(14).reshape(2, 7) % 5],
        {},
    ),
    "sums in order": (
        lambda x, real: jnp.cumsum(jnp.where(real[..., None], x, 0), 1),
        [X],
        {},
    ),
}


@pytest.mark.parametrize("case", PADDED)
def test_functions_that_ignore_padding_pass(case):
    f, inputs, options = PADDED[case]
    assert_padding_invariant(f, *inputs, **options)


def mean(x, real):
    """The mean of the real tokens, padding included in their number."""
    total = jnp.sum(jnp.where(real[..., None], x, 0), 1, keepdims=True)
    return x + total / x.shape[1]


def tail(x, real):
    """What right padding can't show: the last token is always counted."""
    shown = jnp.where(real[..., None], x, 0)
    return shown + shown[:, -1:]


OVER_PADDING = {
    "padded keys in a linear denominator": (
        partial(leaky.linear, in_denominator=True),
        QKV,
        {},
        "differs by",
        "from that of the row without its padding",
        "counted in a normaliser",
    ),
    "a mean over all tokens": (mean, [X], {}, "differs by", "row without its padding"),
    "no mask at all": (
        lambda q, k, v, real: leaky.causal(q, k, v),
        QKV,
        {"sides": ["left"]},
        "row without its padding, tokens 6 to 6 alone",
    ),
    "positions that count left padding": (
        lambda x, real: x + jnp.arange(x.shape[1], dtype=x.dtype)[None, :, None],
        [X],
        {},
        "moves positions",
    ),
    "NaN times 0": (
        lambda x, real: jnp.cumsum(x * real[..., None], 1),
        [X],
        {},
        "the output at token",
        "moved to NaN or infinity when padding held numbers around nan",
        "jnp.where(real, x, 0)",
    ),
    "NaN in a gradient": (
        lambda x, real: jnp.where(real[..., None], jnp.sqrt(x), 0),
        [jnp.abs(X)],
        {"contents": (jnp.nan,)},
        "the gradient at token",
        "is off 0 to NaN or infinity when padding held numbers around nan",
    ),
    "something at padding": (
        lambda x, real: x,
        [X],
        {"zeros": True},
        "the output at padding, token",
        "expected exactly 0 (zeros=True)",
    ),
    "ids of padding": (
        lambda n, real: jnp.cumsum(n[..., None].astype(float), 1),
        [jnp.arange(14).reshape(2, 7) % 5],
        {"sides": ["left"], "tolerance": 100.0},
        "moved by",
        "when padding held",
    ),
}


@pytest.mark.parametrize("case", OVER_PADDING)
def test_an_influence_of_padding_is_found(case):
    f, inputs, options, *parts = OVER_PADDING[case]
    with assert_finds("assert_padding_invariant: ", *parts):
        assert_padding_invariant(f, *inputs, **options)


def test_one_side_alone_is_not_enough():
    assert_padding_invariant(tail, X[:, :4], sides=["left"])
    with assert_finds("row without its padding"):
        assert_padding_invariant(tail, X[:, :4], sides=["right"])


def isolated(q, k, v, ids):
    same = ids[:, None] == ids[..., None]
    return leaky.attend(q, k, v, same & leaky.tril(q.shape[1]))


def test_functions_that_isolate_segments_pass():
    assert_segments_isolated(isolated, *QKV)
    assert_segments_isolated(leaky.shift_inside, X)
    assert_segments_isolated(leaky.shift_inside, X, lengths=[1, 1, 5])
    assert_segments_isolated(lambda x, ids: x, X[0], lengths=[3, 4])
    tokens = jnp.arange(14).reshape(2, 7) % 5
    assert_segments_isolated(lambda n, ids: jnp.eye(5)[n], tokens)


ACROSS = {
    "a shift across documents": (
        leaky.shift_across,
        {},
        "the output at token 2",
        "when tokens 0 to 1 changed",
        "restart states, shifts and positions",
    ),
    "causality alone": (
        lambda x, ids: leaky.past_means(x),
        {},
        "when tokens 0 to 1 changed",
    ),
    "a share that rounding hides": (
        lambda x, ids: leaky.shift_inside(x, ids) + 1e-30 * x[:, :1],
        {},
        "the gradient of the outputs at tokens 2 to 2 with respect to token 0",
        "is off 0 by",
    ),
    "positions that go on": (
        lambda x, ids: x + jnp.arange(x.shape[1], dtype=x.dtype)[None, :, None],
        {},
        "the output at token 2",
        "from that of tokens 2 to 2 alone",
    ),
}


@pytest.mark.parametrize("case", ACROSS)
def test_what_crosses_into_a_segment_is_found(case):
    f, options, *parts = ACROSS[case]
    with assert_finds("assert_segments_isolated: ", *parts):
        assert_segments_isolated(f, X, **options)


def test_positions_may_go_on_where_that_is_meant():
    f = ACROSS["positions that go on"][0]
    assert_segments_isolated(f, X, alone=False)


def sums(x):
    """Sums of the past, and how far each token stands from the start."""
    places = jnp.arange(x.shape[1], dtype=x.dtype)
    return jnp.cumsum(x, axis=1) + places[None, :, None]


def step(x, cache, offset=True):
    total, length = cache
    out = total[:, None] + sums(x) + (length if offset else 0)
    return out, (total + x.sum(1), length + x.shape[1])


EMPTY = jnp.zeros((B, leaky.D)), jnp.float32(0)


def test_decoding_that_equals_the_full_pass_passes():
    assert_decode_matches(sums, step, X, cache=EMPTY)
    assert_decode_matches(sums, step, X, cache=EMPTY, pieces=[[2, 5], [3, 3, 1]])
    assert_decode_matches(sums, step, X, cache=EMPTY, jit=False)


def test_a_decode_that_ignores_its_offset_is_found():
    with assert_finds(
        "assert_decode_matches: the output at token 1 of row",
        "differs by 1 from that of the full pass, decoded in pieces of 1;",
        "the piece that starts at token 1 is off",
    ):
        assert_decode_matches(sums, partial(step, offset=False), X, cache=EMPTY)
    # All at once the offset is 0, and the fault can't be seen.
    careless = partial(step, offset=False)
    assert_decode_matches(sums, careless, X, cache=EMPTY, pieces=[[T]])
    with assert_finds("pieces of 5, 2", "starts at token 5"):
        assert_decode_matches(sums, careless, X, cache=EMPTY, pieces=[[5, 2]])


def test_a_decode_that_returns_nan_is_found():
    def broken(x, cache):
        out, cache = step(x, cache)
        return out * jnp.nan, cache

    with assert_finds("the output at token 0", "differs to NaN or infinity"):
        assert_decode_matches(sums, broken, X, cache=EMPTY)


def test_an_output_whose_time_stands_elsewhere_is_no_leak():
    x = np.random.default_rng(0).normal(size=(2, 7, 6)).astype(np.float32)

    def heads(x):
        return x.reshape(*x.shape[:-1], 2, 3)

    with pytest.raises(ValueError, match=r"2 entries .* for 7 tokens.*out_axis"):
        assert_causal(heads, x)
    assert_causal(heads, x, out_axis=-3)


def test_bytes_are_changed_into_bytes():
    tokens = np.random.default_rng(0).integers(0, 9, size=(2, 7)).astype(np.uint8)
    assert_padding_invariant(
        lambda x, real: np.float32(1) * jnp.where(real, x, 0)[..., None], tokens
    )
