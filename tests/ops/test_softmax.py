"""Softmax attention against sums written out in float64, and what a mask promises."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import ops
from attn_jax.ops import masks
from tests.ops import oracles
from tests.ops.oracles import assert_close, assert_same_bits

B, T, S, H, G, D, E = 2, 5, 7, 6, 3, 11, 13
NAMES = ("q", "k", "v", "bias")


def arrays(lead=(B,), t=T, s=S, h=H, g=G, d=D, e=E, dtype=np.float64, seed=0):
    """Random q, k, v and a cotangent of the output, rounded to dtype."""
    rng = np.random.default_rng(seed)
    shapes = (t, h, d), (s, g, d), (s, g, e), (t, h, e)
    return [jnp.asarray(rng.normal(size=(*lead, *shape)), dtype) for shape in shapes]


@functools.partial(jax.jit, static_argnames=("scale", "logit_cap"))
def attend(q, k, v, cotangent, mask=None, bias=None, **options):
    """The output and the gradients of q, k, v and bias (None where it is None)."""

    def output(q, k, v, bias):
        return ops.softmax_attention(q, k, v, mask=mask, bias=bias, **options)

    out, pullback = jax.vjp(output, q, k, v, bias)
    return dict(zip(NAMES, pullback(cotangent), strict=True), out=out)


@jax.jit
def attend_bias(q, k, v, cotangent, mask, bias):
    """The output and the gradient of the bias alone, which compiles sooner."""

    def output(bias):
        return ops.softmax_attention(q, k, v, mask=mask, bias=bias)

    out, pullback = jax.vjp(output, bias)
    return {"out": out, "bias": pullback(cotangent)[0]}


def check_output(inputs, ceiling, mask=None, rules=()):
    """The op equals the oracle; for what gradients add nothing to."""
    *qkv, _ = inputs
    (b, t, h, _), s = qkv[0].shape, qkv[1].shape[1]
    out = ops.softmax_attention(*qkv, mask=mask)
    sight = oracles.allowed(rules, b, h, t, s)
    assert_close(out, oracles.softmax_attention(*qkv, sight).out, ceiling)


def check(inputs, ceiling, mask=None, rules=(), bias=None, **options):
    """The op equals the oracle, output and every gradient."""
    q, k, v, cotangent = inputs
    *lead, t, h, _ = q.shape
    b, s = int(np.prod(lead)), k.shape[-3]
    sight = oracles.allowed(rules, b, h, t, s)
    got = attend(q, k, v, cotangent, mask, bias, **options)
    want = oracles.softmax_attention(
        *(np.asarray(x).astype(np.float64) for x in (q, k, v)),
        sight.reshape(*lead, *sight.shape[1:]),
        None if bias is None else np.asarray(bias).astype(np.float64),
        cotangent=np.asarray(cotangent).astype(np.float64),
        **options,
    )
    for name in ("out", *NAMES[: 3 if bias is None else 4]):
        assert_close(got[name], getattr(want, name), ceiling, name)
    chex.assert_type(got["out"], v.dtype)
    return got


RNG = np.random.default_rng(1)
KEYS, QUERIES = RNG.random((B, S)) < 0.6, RNG.random((B, T)) < 0.6
QUERY_IDS, KEY_IDS = RNG.integers(0, 2, (B, T)), RNG.integers(0, 2, (B, S))
TABLE = RNG.random((B, H, T, S)) < 0.5
START = np.array([-2, 1])

MASKS = {
    "none": (lambda: None, []),
    "causal": (lambda: masks.causal().offset(2), [oracles.causal(2)]),
    "causal, an offset each": (
        lambda: masks.causal().offset(jnp.asarray(START)),
        [oracles.causal(START)],
    ),
    "window": (lambda: masks.window(1, 1).offset(2), [oracles.window(1, 1, 2)]),
    "prefix": (
        lambda: masks.prefix(jnp.asarray([4, 0])).offset(-1),
        [oracles.prefix([4, 0], -1)],
    ),
    "padding": (
        lambda: masks.padding(jnp.asarray(KEYS), jnp.asarray(QUERIES)),
        [oracles.padding(KEYS, QUERIES)],
    ),
    "segments": (
        lambda: masks.segments(jnp.asarray(QUERY_IDS), jnp.asarray(KEY_IDS)),
        [oracles.segments(QUERY_IDS, KEY_IDS)],
    ),
    "dense": (lambda: masks.dense(jnp.asarray(TABLE)), [oracles.dense(TABLE)]),
    "causal, padding, segments": (
        lambda: (
            masks.causal().offset(2)
            & masks.padding(jnp.asarray(KEYS))
            & masks.segments(jnp.asarray(QUERY_IDS), jnp.asarray(KEY_IDS))
        ),
        [
            oracles.causal(2),
            oracles.padding(KEYS),
            oracles.segments(QUERY_IDS, KEY_IDS),
        ],
    ),
}


def test_gradients_of_the_oracle_are_the_slopes_of_its_outputs():
    rng = np.random.default_rng(3)
    shapes = (2, 2, 4, 3), (2, 3, 2, 3), (2, 3, 2, 2), (4, 1, 3), (2, 2, 4, 2)
    q, k, v, bias, cotangent = (rng.normal(size=shape) for shape in shapes)
    given = {"q": q, "k": k, "v": v, "bias": bias}
    sight = oracles.allowed([oracles.causal([-1, 1])], 2, 4, 2, 3)
    attention = functools.partial(
        oracles.softmax_attention, allowed=sight, scale=0.7, logit_cap=2.0
    )
    gradients = attention(**given, cotangent=cotangent)
    for name, x in given.items():
        slopes = oracles.finite_differences(
            lambda x, name=name: np.sum(attention(**given | {name: x}).out * cotangent),
            x,
        )
        assert_close(getattr(gradients, name), slopes, 1e-8, name)


@pytest.mark.parametrize("name", MASKS)
def test_every_mask_equals_the_oracle(x64, name):
    mask, rules = MASKS[name]
    check(arrays(), 1e-12, mask(), rules)


@pytest.mark.parametrize(
    "sizes",
    [
        {"lead": (), "h": 3, "g": 3},
        {"lead": (2, 3), "h": 4, "g": 1, "d": 1, "e": 2},
        {"lead": (2, 1, 3), "h": 2, "g": 2, "d": 5, "e": 1, "t": 1, "s": 1},
        {"t": 4, "s": 4, "h": 4, "g": 2, "d": 4, "e": 4},
        {"lead": (1,), "h": 8, "g": 8},
        {"lead": (1,), "h": 8, "g": 2},
        {"lead": (1,), "h": 8, "g": 1},
    ],
    ids=str,
)
def test_every_shape_equals_the_oracle(x64, sizes):
    """Leading axes, grouped heads, and sizes that collide (t = s = h = d = e)."""
    check(arrays(**sizes), 1e-12, masks.causal().offset(1), [oracles.causal(1)])


@pytest.mark.parametrize("pattern", range(16))
def test_mask_and_bias_broadcast_on_every_pattern_of_axes(x64, pattern):
    """Each of the 16 for the bias, met by the opposite one for the mask."""
    axes = [bool(pattern >> x & 1) for x in range(4)]
    part = TABLE[tuple(slice(None) if full else slice(1) for full in axes)]
    shape = [1 if full else n for full, n in zip(axes, (B, H, T, S), strict=True)]
    bias = jnp.asarray(np.random.default_rng(4).normal(size=shape))
    mask = masks.dense(jnp.asarray(part))
    q, k, v, cotangent = arrays(d=2, e=3)
    got = attend_bias(q, k, v, cotangent, mask, bias)
    want = oracles.softmax_attention(
        q,
        k,
        v,
        oracles.allowed([oracles.dense(part)], B, H, T, S),
        bias,
        cotangent=cotangent,
    )
    assert_close(got["out"], want.out, 1e-12)
    assert_close(got["bias"], want.bias, 1e-12)


def test_a_bias_without_batch_axes_is_shared(x64):
    bias = jnp.asarray(np.random.default_rng(4).normal(size=(H, T, S)))
    check(arrays(d=2), 1e-12, bias=bias)


@pytest.mark.parametrize("options", [{"scale": 0.3}, {"scale": -2.0, "logit_cap": 1.5}])
def test_scale_and_cap_come_before_the_bias(x64, options):
    bias = jnp.asarray(3 * np.random.default_rng(4).normal(size=(1, H, 1, S)))
    mask, rules = MASKS["padding"]
    check(arrays(), 1e-12, mask(), rules, bias, **options)


def test_scale_may_be_an_array():
    q, k, v, _ = arrays(dtype=np.float32)
    assert_same_bits(
        ops.softmax_attention(q, k, v, scale=jnp.asarray(0.3), logit_cap=2.0),
        ops.softmax_attention(q, k, v, scale=0.3, logit_cap=jnp.asarray(2.0)),
    )


@pytest.mark.parametrize(
    ("dtype", "ceiling"),
    [(jnp.float32, 5e-7), (jnp.bfloat16, 4e-3), (jnp.float16, 5e-4)],
)
def test_error_stays_below_the_ceiling_of_the_dtype(dtype, ceiling):
    """Outputs and gradients, the result rounded once to the dtype."""
    mask, rules = MASKS["causal, padding, segments"]
    bias = jnp.asarray(np.random.default_rng(4).normal(size=(1, H, T, S)), dtype)
    got = check(arrays(dtype=dtype), ceiling, mask(), rules, bias, logit_cap=5.0)
    chex.assert_type([got[name] for name in NAMES], dtype)


@pytest.mark.parametrize(("dtype", "ceiling"), [("float32", 2e-6), ("bfloat16", 5e-3)])
def test_error_does_not_grow_with_4096_keys(dtype, ceiling):
    inputs = arrays((1,), t=3, s=4096, h=2, g=1, d=16, e=3, dtype=dtype)
    check(inputs, ceiling)


@pytest.mark.parametrize("d", [1, 5, 24, 80, 192])
def test_any_head_width(d):
    inputs = arrays((1,), h=2, g=1, d=d, e=d // 2 + 1, dtype=np.float32)
    check_output(inputs, 1e-6)


@pytest.mark.parametrize("n", [7, 64, 33])
def test_lengths_in_any_order(n):
    """A longer call leaves nothing behind for a shorter one."""
    inputs = arrays((1,), t=n, s=n, h=1, g=1, d=2, e=3, dtype=np.float32)
    check_output(inputs, 1e-6, masks.causal(), [oracles.causal()])


def test_bias_and_causality_at_an_odd_length():
    inputs = arrays((1,), t=129, s=129, h=2, g=1, d=2, e=3, dtype=np.float32)
    bias = jnp.asarray(np.random.default_rng(4).normal(size=(2, 129, 129)), np.float32)
    check(inputs, 1e-6, masks.causal(), [oracles.causal()], bias)


@pytest.mark.parametrize("sizes", [{"t": 0}, {"s": 0}, {"lead": (0,)}], ids=str)
def test_nothing_in_gives_zeros_of_the_right_shape(sizes):
    q, k, v, cotangent = arrays(**sizes, dtype=np.float32)
    b, t, s = q.shape[0], q.shape[1], k.shape[1]
    bias = jnp.ones((b, H, t, s))
    for mask in (
        None,
        masks.causal().offset(1) & masks.padding(jnp.ones((b, s), bool)),
    ):
        got = attend(q, k, v, cotangent, mask, bias)
        chex.assert_trees_all_equal(
            got,
            {
                "out": jnp.zeros((b, t, H, E)),
                "q": jnp.zeros_like(q),
                "k": jnp.zeros_like(k),
                "v": jnp.zeros_like(v),
                "bias": jnp.zeros_like(bias),
            },
        )
        weights = ops.softmax_attention_weights(q, k, mask=mask, bias=bias)
        chex.assert_trees_all_equal(weights, jnp.zeros((b, H, t, s)))


def test_reduces_to_the_mean_of_the_visible_values_when_q_is_0():
    _, k, v, _ = arrays(dtype=np.float32)
    out = ops.softmax_attention(
        jnp.zeros((B, T, H, D)), k, v, mask=masks.causal().offset(0)
    )
    for i in range(T):
        mean = np.asarray(v)[:, : i + 1].mean(1)
        assert_close(out[:, i], np.repeat(mean, H // G, 1), 1e-6)


@pytest.mark.parametrize(
    ("inputs", "output"),
    [("bfloat16", "float32"), ("float32", "float16"), ("float16", "bfloat16")],
)
def test_the_output_has_the_dtype_of_v(inputs, output):
    q, k, v, _ = arrays(dtype=inputs)
    chex.assert_type(ops.softmax_attention(q, k, v.astype(output)), output)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_weights_are_computed_in_float32(dtype):
    """1,000 equal keys: a sum in bfloat16 would stop at 256."""
    q, k = jnp.ones((1, 1, 4), dtype), jnp.ones((1000, 1, 4), dtype)
    weights = ops.softmax_attention_weights(q, k)
    chex.assert_type(weights, jnp.float32)
    np.testing.assert_allclose(weights, 1e-3, rtol=1e-5)


@pytest.mark.parametrize("name", ["causal, an offset each", "dense"])
def test_weights_are_those_of_the_output(name):
    q, k, v, _ = arrays(dtype=np.float32)
    mask, rules = MASKS[name]
    weights = ops.softmax_attention_weights(q, k, mask=mask(), logit_cap=3.0)
    out = ops.softmax_attention(q, k, v, mask=mask(), logit_cap=3.0)
    sight = oracles.allowed(rules, B, H, T, S)
    assert (np.asarray(weights)[~sight] == 0).all()
    assert (np.asarray(weights)[sight] > 0).all()
    np.testing.assert_allclose(weights.sum(-1), sight.any(-1), atol=1e-6)
    values = np.repeat(v, H // G, -2)
    assert_close(out, np.einsum("bhts,bshe->bthe", weights, values), 1e-6)


def test_causal_alone_padding_alone_and_both_equal_the_explicit_mask():
    q, k, v, _ = arrays(dtype=np.float32)
    for name in ("causal", "padding", "causal, padding, segments"):
        mask, rules = MASKS[name]
        explicit = masks.dense(jnp.asarray(oracles.allowed(rules, B, H, T, S)))
        assert_close(
            ops.softmax_attention(q, k, v, mask=mask()),
            ops.softmax_attention(q, k, v, mask=explicit),
            1e-6,
        )


PARTLY = TABLE.copy()
PARTLY[0, :2] = False
PARTLY[1, 2:4, :, 3] = False
PARTLY[:, :, 2] = False
PARTLY[:, :, :, 5] = False

BLIND = {
    "padding": (
        lambda: masks.padding(jnp.asarray(KEYS), jnp.asarray(QUERIES)),
        [oracles.padding(KEYS, QUERIES)],
    ),
    "before every key": (
        lambda: masks.causal().offset(jnp.asarray(START)),
        [oracles.causal(START)],
    ),
    "behind every key": (lambda: masks.window(1).offset(4), [oracles.window(1, 0, 4)]),
    "an empty segment": (
        lambda: masks.segments(jnp.asarray(QUERY_IDS), jnp.asarray(KEY_IDS * 2)),
        [oracles.segments(QUERY_IDS, KEY_IDS * 2)],
    ),
    "one group of heads": (
        lambda: masks.dense(jnp.asarray(PARTLY)),
        [oracles.dense(PARTLY)],
    ),
}


@pytest.mark.parametrize("name", BLIND)
def test_a_query_that_sees_nothing_gives_0_and_gets_0(name):
    """Not NaN, and not the mean of what was masked."""
    mask, rules = BLIND[name]
    blind = ~oracles.allowed(rules, B, H, T, S).any(-1)
    assert blind.any()
    rows = blind.swapaxes(1, 2)
    q, k, v, cotangent = arrays(dtype=np.float32)
    bias = jnp.ones((B, H, T, S))
    got = attend(q, k, v + 3, cotangent, mask(), bias, logit_cap=None)
    assert (np.asarray(got["out"])[rows] == 0).all()
    assert (np.asarray(got["q"])[rows] == 0).all()
    assert (np.asarray(got["bias"])[blind] == 0).all()
    weights = ops.softmax_attention_weights(q, k, mask=mask(), bias=bias)
    assert (np.asarray(weights)[blind] == 0).all()
    other = jnp.where(rows[..., None], 7.0, cotangent)
    for name, x in attend(q, k, v + 3, other, mask(), bias, logit_cap=None).items():
        assert_same_bits(x, got[name], name)


@pytest.mark.parametrize(
    ("name", "logit_cap"),
    [*((name, None) for name in BLIND), ("padding", 2.0), ("one group of heads", 2.0)],
)
def test_what_nobody_sees_may_hold_anything(name, logit_cap):
    mask, rules = BLIND[name]
    sight = oracles.allowed(rules, B, H, T, S)
    blind = ~sight.any(-1).swapaxes(1, 2)[..., None]
    grouped = sight.reshape(B, G, H // G, T, S)
    unseen = ~grouped.any((2, 3)).swapaxes(1, 2)[..., None]
    assert blind.any() or unseen.any()
    q, k, v, cotangent = arrays(dtype=np.float32)
    bias = jnp.asarray(np.random.default_rng(4).normal(size=sight.shape), np.float32)
    want = attend(q, k, v, cotangent, mask(), bias, logit_cap=logit_cap)
    for value in (np.nan, np.inf, -np.inf, 1e30, -3e38):
        got = attend(
            jnp.where(blind, value, q),
            jnp.where(unseen, value, k),
            jnp.where(unseen, -value, v),
            cotangent,
            mask(),
            jnp.where(sight, bias, value),
            logit_cap=logit_cap,
        )
        for name, x in got.items():
            assert_same_bits(x, want[name], f"{name} for {value}")
        assert (np.asarray(got["q"])[np.broadcast_to(blind, q.shape)] == 0).all()
        for name in ("k", "v"):
            hidden = np.broadcast_to(unseen, got[name].shape)
            assert (np.asarray(got[name])[hidden] == 0).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_what_nobody_sees_may_hold_anything_in_16_bits(dtype):
    mask, _ = BLIND["padding"]
    q, k, v, cotangent = arrays(dtype=dtype)
    queries, keys = QUERIES[..., None, None], KEYS[..., None, None]
    want = attend(q, k, v, cotangent, mask())
    for value in (np.nan, np.inf, 6e4):
        value = jnp.asarray(value, dtype)
        got = attend(
            jnp.where(queries, q, value),
            jnp.where(keys, k, value),
            jnp.where(keys, v, value),
            cotangent,
            mask(),
        )
        for name in ("out", "q", "k", "v"):
            assert_same_bits(got[name], want[name], f"{name} for {value}")


@pytest.mark.parametrize("logit_cap", [None, 2.0])
@pytest.mark.parametrize("value", [1e30, -1e30, 3e38])
def test_a_finite_key_moves_none_but_those_that_see_it(value, logit_cap):
    """At 3e38 the logits overflow, in both signs: to inf, -inf and their sum."""
    q, k, v, cotangent = arrays(t=S, dtype=np.float32)
    q = 20 * q
    early = jnp.arange(S)[:, None, None] < 4
    want = attend(q, k, v, cotangent, masks.causal(), logit_cap=logit_cap)
    got = attend(
        q,
        k.at[:, 4].set(value),
        v.at[:, 4].set(value),
        jnp.where(early, cotangent, 0),
        masks.causal(),
        logit_cap=logit_cap,
    )
    assert_same_bits(got["out"][:, :4], want["out"][:, :4])
    assert_same_bits(got["q"][:, :4], want["q"][:, :4])


@pytest.mark.parametrize("token", [0, 3, S - 1])
def test_no_token_moves_what_came_before_it(token):
    """Causality to the bit, forward and backward."""
    *tokens, cotangent = arrays(t=S, dtype=np.float32)
    before = jnp.where(jnp.arange(S)[:, None, None] < token, cotangent, 0)
    want = attend(*tokens, before, masks.causal())
    for name in ("q", "k", "v"):
        assert (want[name][:, token:] == 0).all(), name
    for value in (-9.0, 1e30):
        changed = [x.at[:, token].set(value) for x in tokens]
        got = attend(*changed, before, masks.causal())
        for name in ("out", "q", "k", "v"):
            assert_same_bits(
                got[name][:, :token], want[name][:, :token], f"{name} for {value}"
            )
        assert (got["out"][:, token] != want["out"][:, token]).any()


def test_no_segment_moves_another():
    ids = np.array([[1, 1, 1, 1, 0, 0, 0], [3, 8, 3, 5, 8, 5, 8]])
    other = ids != [[1], [3]]
    *tokens, cotangent = arrays(t=S, dtype=np.float32)
    mask = masks.segments(jnp.asarray(ids))
    want = attend(*tokens, cotangent, mask)
    for value in (-9.0, 1e30):
        changed = [x.at[:, 2].set(value) for x in tokens]
        got = attend(*changed, cotangent, mask)
        for name in ("out", "q", "k", "v"):
            assert_same_bits(
                np.asarray(got[name])[other],
                np.asarray(want[name])[other],
                f"{name} for {value}",
            )


def test_a_masked_logit_of_any_size_leaves_finite_gradients():
    """Logits 1, 1 and 1e4, the last one masked, under vmap."""
    keys = jnp.asarray([1.0, 1.0, 1e4])[:, None, None]
    mask = masks.padding(jnp.asarray([True, True, False]))

    def first(q, v):
        return ops.softmax_attention(q, keys, v, mask=mask, scale=1.0).sum()

    q, v = jnp.ones((4, 1, 1, 1)), jnp.arange(12.0).reshape(4, 3, 1, 1)
    value, (dq, dv) = jax.vmap(jax.value_and_grad(first, (0, 1)))(q, v)
    np.testing.assert_allclose(value, [0.5, 3.5, 6.5, 9.5], rtol=1e-6)
    np.testing.assert_allclose(dv[:, :, 0, 0], [[0.5, 0.5, 0]] * 4, rtol=1e-6)
    np.testing.assert_array_equal(dq, jnp.zeros_like(q))


def test_gradients_of_functions_of_the_weights(x64):
    """Entropy has an infinite slope at 0, and a renormalised row divides by its sum."""
    mask, rules = MASKS["causal, an offset each"]
    q, k, *_ = arrays(h=2, g=1, d=2)
    sight = oracles.allowed(rules, B, 2, T, S)
    c = np.random.default_rng(4).normal(size=sight.shape)

    def ours(q):
        weights = ops.softmax_attention_weights(q, k, mask=mask()) ** 2
        total = weights.sum(-1, keepdims=True)
        share = weights / jnp.where(total > 0, total, 1)
        return jnp.sum(c * jax.scipy.special.entr(weights) + c * share)

    def theirs(q):
        weights = oracles.softmax_attention(q, k, v, sight).weights ** 2
        total = weights.sum(-1, keepdims=True)
        entropy = [-w * np.log(w) if w > 0 else 0.0 for w in weights.flat]
        entropy = np.reshape(entropy, weights.shape)
        return np.sum(c * entropy + c * weights / np.where(total > 0, total, 1))

    k, v = np.asarray(k), np.zeros((B, S, 1, 1))
    got = jax.jit(jax.grad(ours))(q)
    assert_close(got, oracles.finite_differences(theirs, q), 1e-7)


def test_debug_nans_finds_nothing():
    mask, _ = BLIND["padding"]
    inputs = arrays(h=2, g=1, dtype=np.float32)
    for value in (np.nan, np.inf, 1e30):
        q = jnp.where(QUERIES[..., None, None], inputs[0], value)
        k, v = (jnp.where(KEYS[..., None, None], x, value) for x in inputs[1:3])
        with jax.debug_nans(True):
            got = attend(q, k, v, inputs[3], mask(), logit_cap=2.0)
            with jax.disable_jit():
                ops.softmax_attention(q, k, v, mask=mask(), logit_cap=2.0)
        chex.assert_tree_all_finite(got)


def test_float64_needs_no_constant_of_another_dtype(x64):
    mask, rules = BLIND["padding"]
    with jax.debug_infs(True):
        got = check(
            arrays(),
            1e-12,
            mask() & masks.causal().offset(-3),
            [*rules, oracles.causal(-3)],
        )
    chex.assert_type([got[name] for name in ("out", "q", "k", "v")], jnp.float64)


def test_two_masks_of_the_same_slot_do_not_add_up():
    q, k, v, _ = arrays(dtype=jnp.bfloat16)
    mask, _ = BLIND["padding"]
    out = ops.softmax_attention(q, k, v, mask=mask())
    assert_same_bits(ops.softmax_attention(q, k, v, mask=mask() & mask() & mask()), out)


def test_a_bias_of_minus_infinity_hides_a_key():
    q, k, v, cotangent = arrays(dtype=np.float32)
    sight = PARTLY
    bias = jnp.where(sight, 0, -jnp.inf)
    got = attend(q, k, v, cotangent, None, bias)
    want = attend(q, k, v, cotangent, masks.dense(jnp.asarray(sight)))
    for name in ("out", "q", "k", "v"):
        chex.assert_trees_all_close(got[name], want[name], rtol=1e-5, atol=1e-6)
    chex.assert_tree_all_finite(got["bias"])


def test_jit_equals_eager():
    q, k, v, _ = arrays(h=2, g=1, dtype=np.float32)
    mask, _ = BLIND["padding"]
    options = {"mask": mask(), "logit_cap": 2.0}
    got = ops.softmax_attention(q, k, v, **options)
    with jax.disable_jit():
        assert_close(got, ops.softmax_attention(q, k, v, **options), 1e-6)


def test_vmap_equals_a_loop():
    mask, _ = MASKS["padding"]
    inputs = arrays(dtype=np.float32)
    got = jax.vmap(attend)(*inputs, mask())
    for b in range(B):
        one = attend(*(x[b] for x in inputs), jax.tree.map(lambda x, b=b: x[b], mask()))
        for name in ("out", "q", "k", "v"):
            assert_close(got[name][b], one[name], 1e-6, name)


def test_the_second_call_traces_nothing():
    """Values may change: those of arrays, offsets, lengths, scales and caps."""

    def call(seed, start, scale):
        q, k, v, _ = arrays(dtype=np.float32, seed=seed)
        mask = masks.causal().offset(start) & masks.prefix(start + 4).offset(1)
        mask = mask & masks.padding(jnp.asarray(KEYS) ^ (seed > 0))
        options = {"mask": mask, "scale": scale, "logit_cap": scale + 1}
        ops.softmax_attention(q, k, v, **options)
        ops.softmax_attention_weights(q, k, **options)
        functions = ops.softmax_attention, ops.softmax_attention_weights
        return [f._cache_size() for f in functions]

    assert call(0, 1, 0.5) == call(1, -2, 0.25)


def test_forward_mode_and_second_derivatives(x64):
    """Directional slopes of outputs and of gradients, with blind rows about."""
    mask, rules = MASKS["causal, an offset each"]
    inputs = arrays(h=2, g=1, d=2, e=3)
    *primals, cotangent = inputs
    *tangents, _ = arrays(h=2, g=1, d=2, e=3, seed=9)
    sight = oracles.allowed(rules, B, 2, T, S)

    def output(q, k, v):
        return ops.softmax_attention(
            q, k, v, mask=mask(), logit_cap=3.0, implementation="dense"
        )

    def gradients(q, k, v):
        return jax.vjp(output, q, k, v)[1](cotangent)

    def theirs(step):
        moved = [
            np.asarray(x) + step * np.asarray(dx)
            for x, dx in zip(primals, tangents, strict=True)
        ]
        return oracles.softmax_attention(
            *moved, sight, logit_cap=3.0, cotangent=np.asarray(cotangent)
        )

    @jax.jit
    def ours(primals, tangents):
        square = jax.grad(lambda q: jnp.sum(gradients(q, *primals[1:])[1] ** 2))
        return (
            jax.jvp(output, primals, tangents)[1],
            jax.jvp(gradients, primals, tangents)[1],
            square(primals[0]),
        )

    above, below = theirs(1e-5), theirs(-1e-5)
    slope, curvature, reverse = ours(primals, tangents)
    assert_close(slope, (above.out - below.out) / 2e-5, 1e-8)
    for name, got in zip("qkv", curvature, strict=True):
        want = (getattr(above, name) - getattr(below, name)) / 2e-5
        assert_close(got, want, 1e-8, name)
    chex.assert_tree_all_finite(reverse)


SHAPES = {
    "q": (2, 5, 6, 4),
    "k": (2, 7, 3, 4),
    "v": (2, 7, 3, 5),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": (2, 7, 3, 8)}, r"k: got 8 features .*q's 4.*\*b s g d"),
        ({"q": (2, 5, 3, 4), "k": (2, 7, 2, 4), "v": (2, 7, 2, 5)}, r"k: got 2 .*3;"),
        ({"q": (2, 5, 2, 4)}, r"k: got 3 heads for q's 2; .*divides"),
        ({"v": (2, 6, 3, 5)}, r"v: got shape \(2, 6, 3, 5\) for k's \(2, 7, 3, 4\)"),
        ({"v": (2, 7, 1, 5)}, r"v: got shape \(2, 7, 1, 5\) for k's \(2, 7, 3, 4\)"),
        ({"q": (1, 5, 6, 4)}, r"k: got leading axes \(2,\).*q's \(1,\).*broadcast"),
        ({"q": (5, 4)}, r"q: got shape \(5, 4\) with 2 axes.*\*b t h d"),
    ],
)
def test_shapes_that_do_not_fit_raise_with_numbers(change, message, plain_errors):
    q, k, v = (jnp.ones(shape) for shape in (SHAPES | change).values())
    with pytest.raises(ValueError, match=message):
        ops.softmax_attention(q, k, v)
    if "v" not in change:
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(ops.softmax_attention_weights, q, k)


def test_arguments_that_do_not_fit_raise_with_numbers(plain_errors):
    q, k, v = (jnp.ones(shape) for shape in SHAPES.values())
    for shape in ((2, 6, 5, 6), (3, 6, 5, 7), (5, 7), (1, 2, 6, 5, 7)):
        with pytest.raises(ValueError, match=r"bias: got.*\(2, 6, 5, 7\)") as raised:
            ops.softmax_attention(q, k, v, bias=jnp.ones(shape))
        assert str(shape) in str(raised.value)
    with pytest.raises(TypeError, match=r"bias: got dtype bool.*dense\(allowed\)"):
        ops.softmax_attention(q, k, v, bias=jnp.ones((6, 5, 7), bool))
    with pytest.raises(ValueError, match=r"implementation: got 'flash'.*'dense'"):
        ops.softmax_attention(q, k, v, implementation="flash")
    for block_size in (0, 1.5):
        with pytest.raises(ValueError, match=rf"block_size: got {block_size}.*>= 1"):
            ops.softmax_attention(q, k, v, block_size=block_size)
    with pytest.raises(TypeError, match=r"q: got dtype int32.*floating.*astype"):
        ops.softmax_attention(q.astype(int), k, v)


@pytest.mark.parametrize("side", ["got", "want"])
def test_a_comparison_fails_when_one_side_is_nan(side):
    """The measures that these tests rely on."""
    good, bad = np.ones(3), np.array([1, np.nan, 1])
    pair = (bad, good) if side == "got" else (good, bad)
    for compare in (lambda *x: assert_close(*x, 1e9), assert_same_bits):
        with pytest.raises(AssertionError):
            compare(*pair)
    with pytest.raises(AssertionError):
        assert_close(np.array([1, np.inf, 1]), good, 1e9)
    with pytest.raises(AssertionError, match="holds NaN"):
        assert_same_bits(bad, bad)
    with pytest.raises(AssertionError, match="exceeds"):
        assert_close(good, good * 1.01, 1e-3)
    with pytest.raises(AssertionError, match="shape"):
        assert_close(good[:1], good, 1e9)
    assert_close(good, good, 0)
