"""LSH attention against unions of sets of keys, written out in float64."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import UnsupportedMaskError, ops
from attn_jax.ops import masks
from attn_jax.testing import (
    assert_causal,
    assert_padding_invariant,
    assert_segments_isolated,
)
from tests.ops import oracle_lsh as oracle
from tests.ops import oracles
from tests.ops.oracles import assert_close, assert_same_bits

B, T, H, G, D, E = 5, 13, 4, 2, 6, 7
SIZES = {"num_rounds": 3, "bucket_size": 2}
RNG = jax.random.key(7)


def arrays(lead=(B,), t=T, h=H, g=G, d=D, e=E, dtype=np.float64, seed=0):
    """Random qk, v and a cotangent of the output, rounded to dtype."""
    rng = np.random.default_rng(seed)
    shapes = (t, h, d), (t, g, e), (t, h, e)
    return [jnp.asarray(rng.normal(size=(*lead, *shape)), dtype) for shape in shapes]


def wide(*xs):
    return [np.asarray(x).astype(np.float64) for x in xs]


def rotations(t, h, d, num_rounds, bucket_size):
    """As the documentation says: column i is drawn from fold_in(rng, i)."""
    columns = [
        jax.random.normal(jax.random.fold_in(RNG, i), (num_rounds, h, d), jnp.float32)
        for i in range(-(-t // (2 * bucket_size)))
    ]
    return np.stack(columns).astype(np.float64)


def lsh(qk, v, mask=None, rng=RNG, **sizes):
    return ops.lsh_attention(qk, v, rng=rng, mask=mask, **SIZES | sizes)


run = jax.jit(lsh, static_argnames=tuple(SIZES))


@functools.partial(jax.jit, static_argnames=tuple(SIZES))
def attend(qk, v, cotangent, mask, **sizes):
    """The output and the gradients of qk and v."""
    out, pullback = jax.vjp(lambda *x: lsh(*x, mask, **sizes), qk, v)
    return out, *pullback(cotangent)


def check(inputs, ceiling, mask=None, rules=(), *, real=None, ids=None, **sizes):
    sizes = SIZES | sizes
    got = attend(*inputs, mask, **sizes)
    qk, v, cotangent = wide(*inputs)
    *lead, t, h, d = qk.shape
    want = oracle.attention(
        qk,
        v,
        oracles.allowed(rules, int(np.prod(lead)), h, t, t),
        rotations(t, h, d, **sizes),
        sizes["bucket_size"],
        real=real,
        ids=ids,
        cotangent=cotangent,
    )
    for name, x, y in zip(("out", "qk", "v"), got, want, strict=True):
        assert_close(x, y, ceiling, name)
    chex.assert_type(got[::2], inputs[1].dtype)
    return got


def test_gradients_of_the_oracle_are_the_slopes_of_its_outputs(x64):
    qk, v, cotangent = wide(*arrays((2,), t=5, h=2, g=1, d=3, e=2))
    rest = (
        oracles.allowed([oracles.causal([1, 0])], 2, 2, 5, 5),
        rotations(5, 2, 3, 2, 1),
        1,
    )
    gradients = oracle.attention(qk, v, *rest, cotangent=cotangent)
    for name, x in (("qk", qk), ("v", v)):

        def value(x, name=name):
            given = {"qk": qk, "v": v} | {name: x}
            found = oracle.attention(given["qk"], given["v"], *rest)
            return np.sum(found.out * cotangent)

        slopes = oracles.finite_differences(value, x)
        assert_close(getattr(gradients, name), slopes, 1e-7, name)


CHOICE = np.random.default_rng(2)
KEYS, QUERIES = CHOICE.random((B, T)) < 0.7, CHOICE.random((B, T)) < 0.7
KEYS[1] = False
START = np.array([-3, 1, 0, -20, 4])
LENGTHS = np.array([0, 4, 13, 7, 1])
IDS = np.sort(CHOICE.integers(-2, 3, (B, T)), axis=1)[:, ::-1].astype(np.int32)
MIXED = CHOICE.integers(0, 3, (B, T)).astype(np.int8)

MASKS = {
    "none": (None, [], {}),
    "causal": (masks.causal(), [oracles.causal()], {}),
    "causal, an offset each": (
        masks.causal().offset(jnp.asarray(START)),
        [oracles.causal(START)],
        {},
    ),
    "window": (masks.window(4, 1), [oracles.window(4, 1)], {}),
    "prefix": (
        masks.prefix(jnp.asarray(LENGTHS)).offset(1),
        [oracles.prefix(LENGTHS, 1)],
        {},
    ),
    "padding": (
        masks.causal() & masks.padding(jnp.asarray(KEYS), jnp.asarray(QUERIES)),
        [oracles.causal(), oracles.padding(KEYS, QUERIES)],
        {"real": KEYS},
    ),
    "padded keys": (
        masks.padding(jnp.asarray(KEYS)),
        [oracles.padding(KEYS)],
        {"real": KEYS},
    ),
    "segments": (
        masks.causal() & masks.segments(jnp.asarray(IDS)),
        [oracles.causal(), oracles.segments(IDS)],
        {"ids": IDS},
    ),
    "segments in several runs, padding between": (
        masks.segments(jnp.asarray(MIXED)) & masks.padding(jnp.asarray(KEYS)),
        [oracles.segments(MIXED), oracles.padding(KEYS)],
        {"ids": MIXED, "real": KEYS},
    ),
    "segments twice": (
        masks.segments(jnp.asarray(MIXED)) & masks.segments(jnp.asarray(IDS)),
        [oracles.segments(MIXED), oracles.segments(IDS)],
        {"ids": 10 * IDS + MIXED},
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_every_mask_equals_the_oracle(x64, name):
    mask, rules, given = MASKS[name]
    check(arrays(), 1e-12, mask, rules, **given)


SHAPES = {
    "no batch axis, one key/value head": {"lead": (), "g": 1},
    "two batch axes, sizes that collide": {
        "lead": (2, 3),
        "t": 4,
        "h": 4,
        "g": 4,
        "d": 4,
        "e": 4,
    },
    "one feature, one value": {"d": 1, "e": 1, "num_rounds": 2},
    "one token a chunk": {"bucket_size": 1, "num_rounds": 1},
    "several blocks of columns": {"lead": (), "t": 23, "bucket_size": 1},
    "two chunks, the last with one token": {"bucket_size": 12, "num_rounds": 5},
    "whole chunks": {"t": 12, "bucket_size": 3},
    "one chunk": {"bucket_size": T},
    "chunks longer than the row": {"bucket_size": 64},
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_equals_the_oracle(x64, name):
    shape = dict(SHAPES[name])
    sizes = {key: shape.pop(key) for key in SIZES if key in shape}
    check(arrays(**shape), 1e-12, masks.causal(), [oracles.causal()], **sizes)


def test_every_length_equals_the_oracle(x64):
    lengths = (1, 2, 3, 5, 9)
    qk, v, _ = arrays((2,), t=9)

    @jax.jit
    def outputs(qk, v):
        return [lsh(qk[:, :n], v[:, :n]) for n in lengths]

    for n, out in zip(lengths, outputs(qk, v), strict=True):
        want = oracle.attention(
            *wide(qk[:, :n], v[:, :n]), True, rotations(n, H, D, **SIZES), 2
        )
        assert_close(out, want.out, 1e-12, f"{n} tokens")


@pytest.mark.parametrize(
    ("dtype", "ceiling"),
    [(jnp.float32, 2e-6), (jnp.bfloat16, 4e-3), (jnp.float16, 5e-4)],
    ids=["float32", "bfloat16", "float16"],
)
def test_error_stays_below_the_ceiling_of_the_dtype(dtype, ceiling):
    check(arrays(dtype=dtype), ceiling, masks.causal(), [oracles.causal()])


@pytest.mark.parametrize("causal", [False, True])
def test_reduces_to_softmax_without_the_diagonal_when_a_chunk_holds_everything(causal):
    qk, v, _ = arrays(dtype=np.float32)
    mask = masks.causal() if causal else masks.full()
    k = qk / jnp.linalg.norm(qk, axis=-1, keepdims=True)
    others = mask & masks.dense(~jnp.eye(T, dtype=bool)[None])
    want = ops.softmax_attention(qk, k, jnp.repeat(v, H // G, axis=-2), mask=others)
    for size in (T, T + 1, 1000):
        out = run(qk, v, mask, bucket_size=size)
        assert_close(out[:, 1:], want[:, 1:], 1e-6, f"{size} tokens a chunk")


def test_a_token_that_is_alone_gives_its_own_value():
    """The first one under causality, and all of a window that is as wide as a token."""
    qk, v, _ = arrays(dtype=np.float32)
    own = jnp.repeat(v, H // G, axis=-2)
    assert_same_bits(run(qk, v, masks.causal())[:, 0], own[:, 0])
    assert_same_bits(run(qk, v, masks.window(0)), own)
    assert_same_bits(run(qk[:, :1], v[:, :1]), own[:, :1])
    # Queries that stand before all keys don't see themselves either.
    assert not run(qk, v, masks.causal().offset(-T)).any()


def test_a_pair_that_meets_in_several_rounds_counts_once():
    """Vectors of no length hash as before, and all of their logits are 0."""
    qk, _, _ = arrays((), dtype=np.float32)
    v = jnp.broadcast_to(jnp.eye(T)[:, None], (T, G, T))
    seen = np.asarray(run(qk, v, num_rounds=5)) > 0
    weights = run(1e-8 * qk, v, num_rounds=5)
    assert_close(weights, seen / seen.sum(axis=-1, keepdims=True), 1e-6)
    assert len(set(seen.sum(axis=-1).ravel().tolist())) > 3


def test_more_rounds_see_more():
    """With eye(t) as values the outputs are the weights."""
    qk, _, _ = arrays((), dtype=np.float32)
    v = jnp.broadcast_to(jnp.eye(T)[:, None], (T, G, T))
    seen = [np.sum(run(qk, v, num_rounds=n) > 0) for n in (1, 2, 8)]
    assert seen[0] < seen[1] < seen[2] <= H * T * (T - 1)


def test_no_later_value_moves_what_came_before_it():
    qk, v, _ = arrays(dtype=np.float32)
    assert_causal(lambda v: lsh(qk, v, masks.causal()), v, axis=-3)


def test_no_later_token_contributes_to_what_came_before_it():
    """Its qk has no gradient; what it does have is a place in the sorted order."""
    qk, v, _ = arrays((), dtype=np.float32)

    def early(qk, v):
        return lsh(qk, v, masks.causal())[:9]

    slopes = jax.jit(jax.jacrev(early, argnums=(0, 1)))(qk, v)
    for slope in slopes:
        by_token = np.abs(slope).max(axis=(1, 2, 4, 5))
        assert np.all(by_token[~np.tri(9, T, dtype=bool)] == 0)
        assert np.any(by_token != 0)
    first = jax.jit(early)
    want = first(qk, v)
    # A vector of another length hashes alike: nothing moves, to the bit.
    assert_same_bits(first(qk.at[9:].multiply(1e20), v), want)
    assert np.any(first(qk.at[9:].multiply(-1), v) != want)


def test_a_finite_value_moves_none_but_those_that_see_it():
    qk, v, _ = arrays((), dtype=np.float32)
    once = functools.partial(run, num_rounds=1)
    weights = once(qk, jnp.broadcast_to(jnp.eye(T)[:, None], (T, G, T)))
    for at in (0, 5, T - 1):
        out = once(qk, v)
        seeing = np.asarray(weights)[:, :, at] > 0
        assert 0 < seeing.sum() < seeing.size / 2
        huge = once(qk.at[at].multiply(1e29), v.at[at].set(1e30))
        others = ~seeing
        others[at] = False
        assert np.isfinite(huge).all()
        assert_same_bits(np.asarray(huge)[others], np.asarray(out)[others])


def test_padding_has_no_influence():
    """What it holds, how much there is, where it stands: buckets do not know."""
    qk, v, _ = arrays((3,), dtype=np.float32)

    def attention(qk, v, real):
        mask = masks.causal() & masks.padding(real, real)
        return lsh(qk, v, mask)

    assert_padding_invariant(attention, qk, v, lengths=[6], zeros=True)


def test_segments_are_on_their_own():
    qk, v, _ = arrays((3,), dtype=np.float32)

    def attention(qk, v, ids):
        return lsh(qk, v, masks.segments(ids))

    assert_segments_isolated(attention, qk, v, lengths=[5, 8])


def test_a_query_that_sees_nothing_gives_0_and_gets_0():
    """A row of padding, queries before every key, and padding that holds NaN."""
    qk, v, cotangent = arrays((2,), dtype=np.float32)
    real = jnp.array([[True] * 9 + [False] * 4, [False] * T])
    hidden = real[..., None, None]
    mask = masks.causal().offset(-2) & masks.padding(real, real)
    qk, v = jnp.where(hidden, qk, jnp.nan), jnp.where(hidden, v, jnp.inf)
    out, dqk, dv = (np.asarray(x) for x in attend(qk, v, cotangent, mask, **SIZES))
    assert np.all(out[0, :2] == 0)
    assert np.all(out[~np.asarray(real)] == 0)
    assert np.any(out[0, 2:9])
    for slope in (dqk, dv):
        assert np.isfinite(slope).all()
        assert np.all(slope[~np.asarray(real)] == 0)
    early = jnp.where(jnp.arange(T)[:, None, None] < 2, cotangent, 0)
    for slope in attend(qk, v, early, mask, **SIZES)[1:]:
        assert np.all(np.asarray(slope) == 0)


def test_debug_nans_finds_nothing():
    """A vector of 0, which has no direction, huge ones, and NaN at padding."""
    qk, v, _ = arrays((2,), dtype=np.float32)
    qk = qk.at[:, 2].set(0).at[:, 3].set(1e30).at[:, 9:].set(jnp.nan)
    real = jnp.arange(T)[None] < jnp.array([[9], [0]])

    @jax.jit
    def gradient(qk, v):
        mask = masks.causal() & masks.padding(real, real)
        return jax.grad(lambda *x: jnp.sum(lsh(*x, mask) ** 2), (0, 1))(qk, v)

    with jax.debug_nans(True), jax.debug_infs(True):
        slopes = gradient(qk, v)
    assert all(np.any(slope) for slope in slopes)


def test_values_are_computed_in_float32():
    """Sums of many 16-bit numbers, and lengths whose square overflows."""
    qk, _, _ = arrays((), t=300, dtype=np.float16)
    v = jnp.full((300, G, E), 3.0, jnp.float16)
    out = run(300 * qk, v, bucket_size=200)
    assert out.dtype == jnp.float16
    np.testing.assert_array_equal(out, jnp.full_like(out, 3))


def test_rounds_heads_and_keys_have_rotations_of_their_own():
    qk, _, _ = arrays((), dtype=np.float32)
    same = jnp.broadcast_to(qk[:, :1], qk.shape)
    v = jnp.broadcast_to(jnp.eye(T)[:, None], (T, G, T))
    out = run(same, v)
    assert np.any(out[:, 0] != out[:, 1])
    assert_same_bits(run(same, v), out)
    assert np.any(run(same, v, rng=jax.random.key(8)) != out)


def test_jit_equals_eager_and_vmap_a_loop():
    """A row depends on no other."""
    qk, v, _ = arrays((3,), t=5, dtype=np.float32)
    real = jnp.asarray(KEYS[[0, 2, 3], :5])

    def row(qk, v, real):
        mask = masks.causal() & masks.padding(real, real)
        return ops.lsh_attention(qk, v, rng=RNG, mask=mask, **SIZES)

    direct = jax.jit(row)(qk, v, real)
    mapped = jax.jit(jax.vmap(row))(qk, v, real)
    one = jax.jit(row)
    loop = jnp.stack([one(*each) for each in zip(qk, v, real, strict=True)])
    assert_close(mapped, direct, 1e-6, "vmap")
    assert_close(loop, direct, 1e-6, "loop")
    assert_close(row(qk, v, real), direct, 1e-6, "eager")


def test_the_second_call_traces_nothing():
    def cached(seed):
        qk, v, _ = arrays((), t=5, dtype=np.float32, seed=seed)
        rng = jax.random.key(seed)
        ops.lsh_attention(qk, v, rng=rng, mask=masks.causal(), **SIZES)
        return ops.lsh_attention._cache_size()

    assert cached(0) == cached(1)


def test_nothing_in_gives_zeros_of_the_right_shape():
    for lead, t in (((), 0), ((2,), 0), ((0,), 3), ((2, 0), 1)):
        qk, v, _ = arrays(lead, t=t, dtype=np.float32)

        def total(qk, v):
            return jnp.sum(lsh(qk, v, masks.causal()))

        assert run(qk, v, masks.causal()).shape == (*lead, t, H, E)
        slopes = jax.grad(total, (0, 1))(qk, v)
        assert [x.shape for x in slopes] == [qk.shape, v.shape]


def test_memory_grows_with_the_length_and_not_with_its_square():
    def needed(t):
        shapes = (t, 1, 8), (t, 1, 8)
        qk, v = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)

        def gradient(qk, v):
            return jax.grad(
                lambda *x: jnp.sum(lsh(*x, masks.causal(), bucket_size=16) ** 2)
            )(qk, v)

        compiled = jax.jit(gradient).lower(qk, v).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert needed(4096) < 5 * needed(1024)


def test_second_derivatives(x64):
    qk, v, cotangent = arrays((), t=5, h=1, g=1, d=2, e=2)

    def slope(qk):
        return jax.grad(lambda qk: jnp.sum(lsh(qk, v, bucket_size=1) * cotangent))(qk)

    tangent = arrays((), t=5, h=1, g=1, d=2, e=2, seed=5)[0]
    step = 1e-6 * tangent
    want = (slope(qk + step) - slope(qk - step)) / 2e-6
    assert_close(jax.jvp(slope, (qk,), (tangent,))[1], want, 1e-6)


QK, V = jnp.ones((2, 5, 6, 8)), jnp.ones((2, 5, 3, 7))
FITTING = {"rng": RNG} | SIZES


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"num_rounds": 0}, ValueError, "num_rounds: got 0; expected an int >= 1"),
        ({"bucket_size": 0}, ValueError, "bucket_size: got 0; expected an int >= 1"),
        ({"bucket_size": -2}, ValueError, "bucket_size: got -2; expected an int"),
        ({"bucket_size": 2.0}, ValueError, "bucket_size: got 2.0; expected an int"),
        ({"num_rounds": jnp.ones(2)}, ValueError, "num_rounds: got .*expected an int"),
        ({"num_rounds": None}, ValueError, "num_rounds: got None; expected an int"),
        ({"rng": 0}, TypeError, r"rng: got int; expected a typed key such as jax\.ra"),
        ({"rng": None}, TypeError, "rng: got NoneType; expected a typed key"),
        ({"rng": jax.random.PRNGKey(0)}, TypeError, "rng: got uint32; expected a typ"),
        (
            {"rng": jax.random.split(RNG, 3)},
            ValueError,
            r"rng: got keys of shape \(3,\); expected one",
        ),
        (
            {"mask": masks.dense(jnp.ones((1, 5, 5), bool))},
            UnsupportedMaskError,
            r"mask: LSH attention cannot honour dense.*use softmax_attention",
        ),
        (
            {"mask": masks.segments(jnp.ones(5, int), jnp.ones(5, int))},
            UnsupportedMaskError,
            r"mask: got segments\(queries, keys\) for LSH.*segments\(ids\)",
        ),
        (
            {"mask": masks.padding(jnp.ones((2, 6), bool))},
            ValueError,
            r"mask: padding\(keys\) has shape \(2, 6\)",
        ),
        (
            {"mask": masks.causal().offset(jnp.ones((3,), int))},
            ValueError,
            r"mask: its array has shape .*batch axes \(2,\)",
        ),
        ({"v": V[:, :4]}, ValueError, r"v: got 4 tokens .*qk's 5 .*no cross-attention"),
        ({"v": V[:1]}, ValueError, r"v: got leading axes \(1,\).*broadcast"),
        ({"v": jnp.ones((2, 5, 4, 7))}, ValueError, "v: got 4 heads for qk's 6"),
    ],
)
def test_what_does_not_fit_raises_with_numbers(changes, kind, message, plain_errors):
    given = {"qk": QK, "v": V} | FITTING | changes
    with pytest.raises(kind, match=message):
        ops.lsh_attention(given.pop("qk"), given.pop("v"), **given)
