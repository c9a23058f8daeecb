"""Masks: every rule and every conjunction against a loop over (example, query, key)."""

import dataclasses
import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_jax import ops
from attn_jax.ops import masks
from tests.ops import oracles

B, H = 2, 3
RNG = np.random.default_rng(0)
KEYS = RNG.random((B, 7)) < 0.6
QUERIES = RNG.random((B, 5)) < 0.6
QUERY_IDS, KEY_IDS = RNG.integers(0, 3, (B, 5)), RNG.integers(0, 3, (B, 7))
TABLE = RNG.random((B, H, 5, 7)) < 0.5
START, LENGTH = np.array([-2, 4]), np.array([3, 0])


def table(mask: masks.Mask, t: int, s: int) -> np.ndarray:
    """What the mask allows, on all axes."""
    return np.broadcast_to(np.asarray(mask.allowed(t, s)), (B, H, t, s))


def check(mask: masks.Mask, rules: list[oracles.Rule], t: int, s: int) -> None:
    np.testing.assert_array_equal(table(mask, t, s), oracles.allowed(rules, B, H, t, s))


def test_full_allows_everything_when_lengths_differ():
    check(masks.full(), [], 5, 7)
    check(masks.full().offset(3), [], 5, 7)


@pytest.mark.parametrize(
    ("mask", "rule"),
    [
        (masks.causal(), oracles.causal()),
        (masks.window(2), oracles.window(2, 0)),
        (masks.window(0), oracles.window(0, 0)),
        (masks.window(0, 3), oracles.window(0, 3)),
        (masks.window(1, 2), oracles.window(1, 2)),
        (masks.prefix(4), oracles.prefix(4)),
        (masks.prefix(0), oracles.prefix(0)),
        (masks.prefix(jnp.asarray(LENGTH)), oracles.prefix(LENGTH)),
    ],
)
def test_positional_rule_of_a_square_starts_at_the_first_key(mask, rule):
    check(mask, [rule], 7, 7)


@pytest.mark.parametrize("start", [-9, -2, 0, 2, 11, START])
@pytest.mark.parametrize(
    ("mask", "rule"),
    [
        (masks.causal(), lambda start: oracles.causal(start)),
        (masks.window(2, 1), lambda start: oracles.window(2, 1, start)),
        (masks.prefix(3), lambda start: oracles.prefix(3, start)),
        (
            masks.prefix(jnp.asarray(LENGTH)),
            lambda start: oracles.prefix(LENGTH, start),
        ),
    ],
)
def test_offset_places_the_first_query(mask, rule, start):
    given = start if isinstance(start, int) else jnp.asarray(start)
    check(mask.offset(given), [rule(start)], 5, 7)


def test_array_rules():
    keys, queries = jnp.asarray(KEYS), jnp.asarray(QUERIES)
    check(masks.padding(keys), [oracles.padding(KEYS)], 5, 7)
    check(masks.padding(keys, queries), [oracles.padding(KEYS, QUERIES)], 5, 7)
    check(masks.segments(jnp.asarray(KEY_IDS)), [oracles.segments(KEY_IDS)], 7, 7)
    check(
        masks.segments(jnp.asarray(QUERY_IDS), jnp.asarray(KEY_IDS)),
        [oracles.segments(QUERY_IDS, KEY_IDS)],
        5,
        7,
    )


def test_every_segment_id_is_alike():
    ids = np.array([[0, 0, -1, -1, 5], [7, 7, 7, 0, 0]])
    check(masks.segments(jnp.asarray(ids)), [oracles.segments(ids)], 5, 5)


@pytest.mark.parametrize("axes", list(itertools.product([0, 1], repeat=4)))
def test_dense_broadcasts_on_every_pattern_of_axes(axes):
    """All 16 patterns of a four-axis mask."""
    part = TABLE[tuple(slice(None) if full else slice(1) for full in axes)]
    mask = masks.dense(jnp.asarray(part))
    check(mask, [oracles.dense(part)], 5, 7)
    assert mask.allowed(5, 7).shape[-2:] == (5, 7)


def conjunction(draw):
    """(mask, oracle rules, t, s), joined and moved in random order."""
    t, s = draw(st.sampled_from([(5, 7), (7, 5), (1, 7), (5, 5)]))
    starts = st.one_of(
        st.integers(-4, 9),
        st.tuples(st.integers(-4, 9), st.integers(-4, 9)).map(np.array),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))

    def positional(kind):
        start = draw(starts) if t != s or draw(st.booleans()) else None
        at = 0 if start is None else start
        if kind == "causal":
            mask, rule = masks.causal(), oracles.causal(at)
        elif kind == "window":
            left, right = draw(st.integers(0, 4)), draw(st.integers(0, 4))
            mask, rule = masks.window(left, right), oracles.window(left, right, at)
        else:
            length = draw(starts)
            mask, rule = masks.prefix(_jax(length)), oracles.prefix(length, at)
        if start is None:
            return mask, rule
        first = draw(st.integers(-3, 3))
        return mask.offset(first).offset(_jax(start - first)), rule

    def padding():
        keys, queries = rng.random((B, s)) < 0.7, rng.random((B, t)) < 0.7
        if draw(st.booleans()):
            return masks.padding(_jax(keys)), oracles.padding(keys)
        return (
            masks.padding(_jax(keys), _jax(queries)),
            oracles.padding(keys, queries),
        )

    def segments():
        queries, keys = rng.integers(0, 2, (B, t)), rng.integers(0, 2, (B, s))
        if t == s and draw(st.booleans()):
            return masks.segments(_jax(queries)), oracles.segments(queries)
        return (
            masks.segments(_jax(queries), _jax(keys)),
            oracles.segments(queries, keys),
        )

    def dense():
        full = draw(st.tuples(*[st.booleans()] * 4))
        shape = [n if keep else 1 for n, keep in zip((B, H, t, s), full, strict=True)]
        part = rng.random(shape) < 0.7
        return masks.dense(_jax(part)), oracles.dense(part)

    mask, rules = masks.full(), []
    kinds = st.sampled_from(["causal", "window", "prefix", padding, segments, dense])
    for kind in draw(st.lists(kinds, max_size=4)):
        part, rule = positional(kind) if isinstance(kind, str) else kind()
        mask = mask & part if draw(st.booleans()) else part & mask
        rules.append(rule)
    return mask, rules, t, s


def _jax(x):
    return jnp.asarray(x) if isinstance(x, np.ndarray) else x


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_a_conjunction_allows_what_every_rule_allows(data):
    check(*conjunction(data.draw))


def test_offset_of_a_conjunction_moves_positional_rules_only():
    keys, dense = jnp.asarray(KEYS), jnp.asarray(TABLE)
    ids = jnp.asarray(QUERY_IDS), jnp.asarray(KEY_IDS)
    still = masks.padding(keys) & masks.segments(*ids) & masks.dense(dense)
    rules = [
        oracles.padding(KEYS),
        oracles.segments(QUERY_IDS, KEY_IDS),
        oracles.dense(TABLE),
    ]
    moved = (masks.causal() & still & masks.window(3)).offset(jnp.asarray(START))
    check(moved, [*rules, oracles.causal(START), oracles.window(3, 0, START)], 5, 7)


def test_offsets_add_up():
    once = masks.causal().offset(jnp.asarray(START + 3))
    for mask in (
        masks.causal().offset(3).offset(jnp.asarray(START)),
        masks.causal().offset(jnp.asarray(START)).offset(3),
        masks.causal().offset(jnp.asarray(START)).offset(-4).offset(7),
    ):
        np.testing.assert_array_equal(table(mask, 5, 7), table(once, 5, 7))


def test_offset_before_joining_moves_one_rule():
    mask = masks.causal().offset(2) & masks.window(1).offset(-1)
    check(mask, [oracles.causal(2), oracles.window(1, 0, -1)], 5, 7)


def test_none_is_full_on_either_side_of_a_conjunction():
    for mask in (masks.causal() & None, None & masks.causal()):
        check(mask, [oracles.causal()], 5, 5)


def test_a_mask_has_no_truth_and_says_how_to_join():
    real = masks.padding(jnp.asarray(KEYS))
    for use in (
        lambda: masks.causal() and real,
        lambda: masks.full() or real,
        lambda: not real,
        lambda: jax.jit(lambda mask: mask and masks.causal())(real),
    ):
        with pytest.raises(TypeError, match=r"mask: got `and`.*expected & between"):
            use()


def test_a_piece_of_the_queries_sees_what_its_rows_of_the_whole_see():
    """Window x segments x padding, prefilled in pieces."""
    n = 11
    ids, real = RNG.integers(0, 2, (B, n)), RNG.random((B, n)) < 0.8
    keys, segments = jnp.asarray(real), jnp.asarray(ids)
    positional = masks.causal() & masks.window(3) & masks.prefix(2)
    whole = positional & masks.padding(keys, keys) & masks.segments(segments)
    for start, stop in [(0, 1), (1, 4), (4, 8), (8, 11)]:
        piece = (
            positional.offset(start)
            & masks.padding(keys, keys[:, start:stop])
            & masks.segments(segments[:, start:stop], segments)
        )
        np.testing.assert_array_equal(
            table(piece, stop - start, n), table(whole, n, n)[:, :, start:stop]
        )


def test_joining_and_moving_leave_the_parts_alone():
    mask = masks.causal()
    _ = mask & masks.window(1), mask.offset(3)
    check(mask, [oracles.causal()], 5, 5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mask.rules = ()


@pytest.mark.parametrize("mask", [masks.causal(), masks.window(2), masks.prefix(2)])
@pytest.mark.parametrize(("t", "s"), [(1, 5), (3, 5), (5, 3)])
def test_alignment_is_never_guessed(mask, t, s):
    for ambiguous in (mask, mask & masks.causal().offset(1), masks.full() & mask):
        with pytest.raises(ValueError, match=rf"t = {t} .*s = {s} .*offset"):
            ambiguous.allowed(t, s)
    q, k = jnp.ones((t, 1, 2)), jnp.ones((s, 1, 2))
    with pytest.raises(ValueError, match="ambiguous"):
        ops.softmax_attention(q, k, k, mask=mask)


def test_both_alignments_of_a_causal_mask_can_be_said():
    np.testing.assert_array_equal(
        masks.causal().offset(0).allowed(3, 5)[0], np.tri(3, 5, dtype=bool)
    )
    np.testing.assert_array_equal(
        masks.causal().offset(2).allowed(3, 5)[0], np.tri(3, 5, 2, dtype=bool)
    )
    assert masks.causal().offset(4).allowed(1, 5).all()


@pytest.mark.parametrize("w", [1, 2, 3])
def test_window_lets_exactly_w_keys_through(w):
    n = 3 * w + 4
    counts = masks.window(w - 1).allowed(n, n)[0].sum(-1)
    np.testing.assert_array_equal(counts, np.minimum(np.arange(n) + 1, w))
    both = masks.window(w, w).allowed(n, n)[0].sum(-1)
    assert both[w] == both[n - w - 1] == 2 * w + 1
    assert both[0] == both[n - 1] == w + 1


@pytest.mark.parametrize("left", [6, 7, 100])
def test_window_as_long_as_the_sequence_reduces_to_causal(left):
    np.testing.assert_array_equal(
        table(masks.window(left), 7, 7), table(masks.causal(), 7, 7)
    )


@pytest.mark.parametrize("length", [-3, 0, 1])
def test_prefix_of_at_most_one_reduces_to_causal(length):
    np.testing.assert_array_equal(
        table(masks.prefix(length), 7, 7), table(masks.causal(), 7, 7)
    )


def test_allowed_keeps_axes_of_size_1_where_nothing_varies():
    keys, dense = jnp.asarray(KEYS), jnp.asarray(TABLE)
    shapes = {
        (1, 5, 7): masks.full(),
        (1, 1, 5, 7): masks.padding(keys[:1]),
        (B, 1, 5, 7): masks.padding(keys),
        (H, 5, 7): masks.dense(dense[0, :, :1]),
        (B, H, 5, 7): masks.padding(keys) & masks.dense(dense[0]),
    }
    for shape, mask in shapes.items():
        chex.assert_shape(mask.allowed(5, 7), shape)
        chex.assert_type(mask.allowed(5, 7), bool)
    chex.assert_shape(masks.causal().allowed(5, 5), (1, 5, 5))
    chex.assert_shape(masks.causal().offset(2).allowed(5, 7), (1, 5, 7))
    moved = masks.causal().offset(jnp.asarray(START))
    chex.assert_shape(moved.allowed(5, 7), (B, 1, 5, 7))


def test_two_leading_axes():
    keys = jnp.asarray(RNG.random((3, B, 7)) < 0.6)
    mask = masks.padding(keys) & masks.causal().offset(jnp.asarray(START))
    got = mask.allowed(5, 7)
    chex.assert_shape(got, (3, B, 1, 5, 7))
    for x in range(3):
        rules = [oracles.padding(np.asarray(keys[x])), oracles.causal(START)]
        np.testing.assert_array_equal(got[x], oracles.allowed(rules, B, 1, 5, 7))


@pytest.mark.parametrize(("t", "s"), [(0, 3), (3, 0), (0, 0), (1, 1)])
def test_lengths_of_0_and_1(t, s):
    mask = masks.causal() & masks.window(2) & masks.prefix(jnp.asarray(LENGTH))
    mask = mask.offset(0) & masks.padding(jnp.ones((B, s), bool))
    check(mask, [oracles.causal()], t, s)


def _everything() -> masks.Mask:
    return (
        (masks.causal() & masks.window(3, 1) & masks.prefix(jnp.asarray(LENGTH)))
        .offset(jnp.asarray(START))
        .offset(1)
    ) & (
        masks.padding(jnp.asarray(KEYS), jnp.asarray(QUERIES))
        & masks.segments(jnp.asarray(QUERY_IDS), jnp.asarray(KEY_IDS))
        & masks.dense(jnp.asarray(TABLE))
    )


EVERYTHING = [
    oracles.causal(START + 1),
    oracles.window(3, 1, START + 1),
    oracles.prefix(LENGTH, START + 1),
    oracles.padding(KEYS, QUERIES),
    oracles.segments(QUERY_IDS, KEY_IDS),
    oracles.dense(TABLE),
]


def test_a_mask_is_a_pytree():
    mask = _everything()
    leaves, structure = jax.tree.flatten(mask)
    check(jax.tree.unflatten(structure, leaves), EVERYTHING, 5, 7)
    assert structure == jax.tree.structure(_everything())
    assert len(leaves) == 3 + 1 + 2 + 2 + 1, "one a start, length and array"


def test_jit_takes_a_mask_and_traces_once():
    allowed = jax.jit(lambda mask: mask.allowed(5, 7))
    want = oracles.allowed(EVERYTHING, B, H, 5, 7)
    np.testing.assert_array_equal(allowed(_everything()), want)
    swapped = jax.tree.map(lambda x: x[::-1], _everything())
    np.testing.assert_array_equal(allowed(swapped), want[::-1])
    assert allowed._cache_size() == 1
    built = jax.jit(lambda start: masks.causal().offset(start).allowed(5, 7))
    np.testing.assert_array_equal(built(2), masks.causal().offset(2).allowed(5, 7))
    np.testing.assert_array_equal(built(-2), masks.causal().offset(-2).allowed(5, 7))
    assert built._cache_size() == 1


def test_vmap_over_a_mask_equals_a_loop():
    mask = _everything()
    got = jax.vmap(lambda mask: mask.allowed(5, 7))(mask)
    for b in range(B):
        one = jax.tree.map(lambda x, b=b: x[b], mask)
        np.testing.assert_array_equal(got[b], one.allowed(5, 7))
    want = oracles.allowed(EVERYTHING, B, H, 5, 7)
    np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_numpy_arrays_build_the_same_masks(plain_errors):
    check(
        masks.padding(KEYS, QUERIES) & masks.segments(QUERY_IDS, KEY_IDS),
        [oracles.padding(KEYS, QUERIES), oracles.segments(QUERY_IDS, KEY_IDS)],
        5,
        7,
    )
    check(
        masks.dense(TABLE) & masks.causal().offset(START),
        [oracles.dense(TABLE), oracles.causal(START)],
        5,
        7,
    )


@pytest.mark.parametrize(
    ("raw", "got"),
    [
        (np.ones((2, 1, 3, 3), bool), r"bool.*\(2, 1, 3, 3\)"),
        (np.ones((2, 3), bool), r"bool.*\(2, 3\)"),
        (np.ones((2, 3), np.int32), r"int32.*\(2, 3\)"),
        (np.zeros((3, 3), np.float32), r"float32.*\(3, 3\)"),
    ],
)
def test_a_raw_array_is_no_mask(raw, got, plain_errors):
    q = jnp.ones((2, 3, 1, 4))
    for mask in (raw, jnp.asarray(raw)):
        for use in (
            lambda mask=mask: ops.softmax_attention(q, q, q, mask=mask),
            lambda mask=mask: ops.softmax_attention_weights(q, q, mask=mask),
            lambda mask=mask: masks.causal() & mask,
        ):
            with pytest.raises(TypeError, match=got) as raised:
                use()
            for remedy in ("dense(", "padding(", "segments(", "bias="):
                assert remedy in str(raised.value)


def test_a_flag_is_no_mask(plain_errors):
    q = jnp.ones((2, 3, 1, 4))
    with pytest.raises(TypeError, match="mask"):
        ops.softmax_attention(q, q, q, mask=True)
    with pytest.raises(TypeError, match=r"(?s)got bool.*causal\(\)"):
        masks.causal() & True


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_padding_and_dense_want_booleans(dtype, plain_errors):
    ones = jnp.ones((2, 1, 3, 3), dtype)
    name = np.dtype(dtype).name
    for call, argument in (
        (lambda: masks.padding(ones[:, 0, 0]), r"padding\(keys\)"),
        (lambda: masks.padding(ones[:, 0, 0] > 0, ones[:, 0, 0]), r"padding\(queries"),
        (lambda: masks.dense(ones), r"dense\(allowed\)"),
    ):
        with pytest.raises(TypeError, match=rf"{argument}.*{name}.*Bool.*!= 0"):
            call()


def test_ranks_name_the_axes_they_lack(plain_errors):
    square = jnp.ones((3, 3), bool)
    with pytest.raises(ValueError, match=r"dense\(allowed\).*\(3, 3\).*#b #h #t #s"):
        masks.dense(square)
    with pytest.raises(ValueError, match=r"padding\(keys\).*\(\).*\*b s"):
        masks.padding(square[0, 0])
    with pytest.raises(ValueError, match=r"segments\(queries\).*scalar.*\*b t"):
        masks.segments(jnp.asarray(3))


def test_ids_and_positions_want_integers(plain_errors):
    real = jnp.ones((2, 3), bool)
    with pytest.raises(TypeError, match=r"segments\(queries\).*bool.*padding"):
        masks.segments(real)
    with pytest.raises(TypeError, match=r"segments\(keys\).*float32"):
        masks.segments(real.astype(int), real.astype(jnp.float32))
    with pytest.raises(TypeError, match=r"prefix\(length\).*float32"):
        masks.prefix(jnp.ones(2))
    with pytest.raises(TypeError, match=r"prefix\(length\).*bool"):
        masks.prefix(real)
    with pytest.raises(TypeError, match=r"offset\(start\).*float"):
        masks.causal().offset(1.0)


@pytest.mark.parametrize("bad", [-1, 1.5, True, None])
def test_a_window_counts_keys(bad, plain_errors):
    with pytest.raises(ValueError, match=rf"window\(left\).*{bad!r}.*>= 0"):
        masks.window(bad)
    with pytest.raises(ValueError, match=rf"window\(right\).*{bad!r}.*>= 0"):
        masks.window(1, bad)


def test_arrays_of_another_length_raise_with_numbers(plain_errors):
    for mask, message in (
        (masks.padding(jnp.asarray(KEYS)), r"padding\(keys\).*\(2, 7\).*6 keys"),
        (
            masks.padding(jnp.ones((B, 6), bool), jnp.asarray(QUERIES)),
            r"padding\(queries\).*\(2, 5\).*4 queries",
        ),
        (
            masks.segments(jnp.asarray(QUERY_IDS), jnp.ones((B, 6), int)),
            r"segments\(queries\).*\(2, 5\).*4 queries",
        ),
        (
            masks.segments(jnp.ones((B, 4), int), jnp.asarray(KEY_IDS)),
            r"segments\(keys\).*\(2, 7\).*6 keys",
        ),
        (masks.segments(jnp.ones((B, 4), int)), r"segments\(keys\).*\(2, 4\).*6 keys"),
        (
            masks.dense(jnp.asarray(TABLE)),
            r"dense.*\(2, 3, 5, 7\).*t = 4.*s = 6.*slice or pad",
        ),
        (masks.dense(jnp.asarray(TABLE[..., :4, :])), r"dense.*s = 6"),
        (masks.dense(jnp.asarray(TABLE[..., :6])), r"dense.*t = 4"),
    ):
        with pytest.raises(ValueError, match=message):
            mask.allowed(4, 6)


@pytest.mark.parametrize(
    "mask",
    [
        masks.padding(jnp.ones((3, 5), bool)),
        masks.dense(jnp.ones((1, 3, 5, 5), bool)),
        masks.causal().offset(jnp.zeros(3, int)),
        masks.padding(jnp.ones((1, 2, 5), bool)),
    ],
)
def test_axes_that_do_not_fit_the_logits_raise_with_numbers(mask, plain_errors):
    q = jnp.ones((2, 5, 4, 3))
    with pytest.raises(ValueError, match=r"mask.*\(2,\).*h = 4") as raised:
        ops.softmax_attention(q, q, q, mask=mask)
    assert str(mask.allowed(5, 5).shape) in str(raised.value)


def attended(form, logits, v, mask):
    """Attention of one form from logits, or from queries and keys cut out of them."""
    if form == "synthesizer":
        return ops.synthesizer_attention(logits, v, mask=mask)
    q = jnp.swapaxes(logits[..., :2], -3, -2)
    options = {"implementation": form} | ({"block_size": 3} if form != "dense" else {})
    return ops.softmax_attention(q, v[..., :2], v, mask=mask, **options)


@pytest.mark.parametrize("form", ["blockwise", "synthesizer"])
def test_every_pattern_of_axes_equals_the_materialised_mask(form):
    b, h, t, s = 2, 3, 5, 7
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(b, h, t, s)).astype(np.float32)
    v = rng.normal(size=(b, s, 1, 4)).astype(np.float32)
    whole = rng.random((b, h, t, s)) < 0.5
    parts = [
        whole[tuple(slice(None) if full else slice(1) for full in axes)]
        for axes in itertools.product([0, 1], repeat=4)
    ]

    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def outputs(logits, v, parts):
        return [attended(form, logits, v, masks.dense(part)) for part in parts]

    tables = np.stack([np.broadcast_to(part, whole.shape) for part in parts])
    many = (jnp.asarray(np.stack([x] * 16)) for x in (logits, v))
    plain = "dense" if form == "blockwise" else form
    want = attended(plain, *many, masks.dense(jnp.asarray(tables)))
    seen = np.swapaxes(tables.any(-1), -1, -2)
    for got, right, some in zip(outputs(logits, v, parts), want, seen, strict=True):
        np.testing.assert_allclose(got, right, atol=1e-6)
        assert np.all(np.asarray(got)[~some] == 0)
