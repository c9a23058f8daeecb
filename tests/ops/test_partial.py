"""Attention from selected scores against the paper's idea, written out in float64."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import ops
from attn_jax.ops import masks, partial
from tests.ops import oracle_partial as oracle
from tests.ops import oracles
from tests.ops.oracles import assert_close, assert_same_bits
from tests.ops.test_synthesizer import normal, wide

B, T, S, H, G, D, E, R = 2, 5, 7, 6, 3, 4, 11, 2
RNG = np.random.default_rng(3)
ROWS = np.stack([RNG.permutation(S)[:R] for _ in range(T)])
SHARED = np.array([5, 1])
# Rows of one key each are fetched, wider ones are kept of whole rows.
SELECTED = {
    "rows": ROWS,
    "shared": SHARED,
    "one each": ROWS[:, :1],
    "twice the same": ROWS[:, [0, 0]],
    "past the end": np.where(ROWS == 3, S + 2, ROWS),
}
KEYS = np.array([[True] * 4 + [False] * 3, [False] + [True] * 5 + [False]])
TABLE = np.random.default_rng(5).random((B, H, T, S)) > 0.4
TABLE[0, :, 1] = TABLE[:, 0, 2] = TABLE[:, :, :, 6] = False
START = np.array([1, -2])
MASKS = {
    "none": (lambda: None, []),
    "causal": (lambda: masks.causal().offset(2), [oracles.causal(2)]),
    "an offset each": (
        lambda: masks.causal().offset(jnp.asarray(START)),
        [oracles.causal(START)],
    ),
    "padding": (lambda: masks.padding(jnp.asarray(KEYS)), [oracles.padding(KEYS)]),
    "dense": (lambda: masks.dense(jnp.asarray(TABLE)), [oracles.dense(TABLE)]),
}


def inputs(dtype=np.float64, r=R, heads=1, t=T, s=S, lead=(B,), g=G):
    """q, k, v, reconstruction, offset, mean and a cotangent."""
    return normal(
        (*lead, t, H, D),
        (*lead, s, g, D),
        (*lead, s, g, E),
        (heads, t, s, r),
        (heads, t, s),
        (heads, t, r),
        (*lead, t, H, E),
        dtype=dtype,
    )


@functools.partial(jax.jit, static_argnames="scale")
def vjp(cotangent, selected, mask, q, k, v, matrix, offset, mean, scale=None):
    """The output and the gradients of everything that has one."""

    def op(q, k, v, matrix, offset, mean):
        return ops.partial_attention(
            q,
            k,
            v,
            selected=selected,
            reconstruction=matrix,
            offset=offset,
            mean=mean,
            mask=mask,
            scale=scale,
        )

    out, pullback = jax.vjp(op, q, k, v, matrix, offset, mean)
    return out, *pullback(cotangent.astype(out.dtype))


def check(xs, selected, mask, allowed, ceiling, **options):
    *arrays, cotangent = xs
    got = vjp(cotangent, jnp.asarray(selected), mask, *arrays, **options)
    q, k, v, *maps = wide(*arrays)
    want = oracle.attention(
        q, k, v, selected, *maps, allowed, *wide(cotangent), **options
    )
    for name, x, y in zip(want._fields, got, want, strict=True):
        assert_close(x, y, ceiling, name)
    return got


def sight(name, h=H, t=T, s=S):
    rules = MASKS[name][1]
    return oracles.allowed(rules, B, h, t, s) if rules else True


@pytest.mark.parametrize(
    ("kind", "name"), [*(("rows", name) for name in MASKS), ("shared", "dense")]
)
def test_every_mask_equals_the_oracle(x64, kind, name):
    check(inputs(), SELECTED[kind], MASKS[name][0](), sight(name), 1e-12)


@pytest.mark.parametrize("kind", ["one each", "twice the same", "past the end"])
def test_every_selection_equals_the_oracle(x64, kind):
    selected = SELECTED[kind]
    xs = inputs(r=selected.shape[-1], heads=H)
    check(xs, selected, MASKS["dense"][0](), sight("dense"), 1e-12, scale=0.7)


@pytest.mark.parametrize(
    ("lead", "g"), [((), 1), ((2, 3), 6)], ids=["no batch, one group", "two axes"]
)
def test_every_shape_equals_the_oracle(x64, lead, g):
    check(inputs(lead=lead, g=g), ROWS, None, True, 1e-12)


def test_the_oracle_has_the_slopes_of_its_output(x64):
    *arrays, cotangent = wide(*inputs(lead=(1,), heads=H, t=2))
    allowed = TABLE[:1, :, 2:4]

    def output(*arrays):
        q, k, v, *maps = arrays
        return oracle.attention(q, k, v, ROWS[2:4], *maps, allowed, cotangent)

    want = output(*arrays)
    for n, name in enumerate(want._fields[1:]):
        slope = oracles.finite_differences(
            lambda x, n=n: np.sum(
                output(*arrays[:n], x, *arrays[n + 1 :]).out * cotangent
            ),
            arrays[n],
        )
        assert_close(want[n + 1], slope, 1e-8, name)


@pytest.mark.parametrize("kind", ["rows", "shared", "one each"])
def test_partial_logits_are_those_of_the_selected_keys(x64, kind):
    q, k, *_ = inputs()
    selected = SELECTED[kind]
    got = jax.jit(ops.partial_logits)(q, k, jnp.asarray(selected))
    want = np.zeros((B, H, T, selected.shape[-1]))
    rows = np.broadcast_to(selected, (T, selected.shape[-1]))
    for b, h, i, a in np.ndindex(*want.shape):
        key = k[b, rows[i, a], h // (H // G)]
        want[b, h, i, a] = q[b, i, h] @ key / D**0.5
    assert_close(got, want, 1e-14)


def test_partial_logits_reduce_to_all_scores_when_every_key_is_selected():
    q, k, *_ = inputs(np.float32)
    every = np.broadcast_to(np.arange(S), (T, S))
    want = partial.dot_product_logits(q, k)
    assert_close(ops.partial_logits(q, k, every), want, 1e-6)
    assert_close(ops.partial_logits(q, k, np.arange(S)), want, 1e-6)


def test_reconstruction_reduces_to_the_scores_when_it_is_the_identity():
    (scores,) = normal((B, H, T, S), dtype=np.float32)
    eye = jnp.broadcast_to(jnp.eye(S), (1, T, S, S))
    got = ops.reconstruct_logits(scores, eye, jnp.zeros((1, T, S)))
    assert_same_bits(got, scores)


def test_attention_reduces_to_softmax_attention_when_every_key_is_selected():
    """With the identity: also under a mask, since a masked key has no say."""
    q, k, v, *_ = inputs(np.float32)
    eye = jnp.broadcast_to(jnp.eye(S), (1, T, S, S))
    mask = MASKS["dense"][0]()
    got = ops.partial_attention(
        q,
        k,
        v,
        selected=jnp.arange(S),
        reconstruction=eye,
        offset=jnp.zeros((H, T, S)),
        mask=mask,
    )
    assert_close(got, ops.softmax_attention(q, k, v, mask=mask), 1e-6)


def test_keys_selected_outside_of_jit_are_checked_inside():
    """A concrete array stays one while others are traced."""
    q, k, *_ = inputs(np.float32)
    rows, beyond = jnp.asarray(ROWS), jnp.asarray(ROWS + 1)
    got = jax.jit(lambda q, k: ops.partial_logits(q, k, rows))(q, k)
    assert_close(got, ops.partial_logits(q, k, rows), 1e-6)
    with pytest.raises(ValueError, match="selected: got numbers from 1 to 7"):
        jax.jit(lambda q, k: ops.partial_logits(q, k, beyond))(q, k)


def test_a_mean_of_none_is_0():
    q, k, v, matrix, offset, mean, _ = inputs(np.float32)
    options = {
        "selected": jnp.asarray(ROWS),
        "reconstruction": matrix,
        "offset": offset,
        "mask": MASKS["padding"][0](),
    }
    want = ops.partial_attention(q, k, v, mean=0 * mean, **options)
    assert_same_bits(ops.partial_attention(q, k, v, **options), want)


# -------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("token", [0, 3, S - 1])
def test_no_token_moves_what_came_before_it(token):
    """To the bit, whichever keys are selected and whatever R says of later ones."""
    q, k, v, matrix, offset, mean, _ = inputs(np.float32, t=S)
    rows = np.stack([np.roll(np.arange(S), 3 * i)[:R] for i in range(S)])

    def output(q, k, v):
        return ops.partial_attention(
            q,
            k,
            v,
            selected=jnp.asarray(rows),
            reconstruction=matrix,
            offset=offset,
            mean=mean,
            mask=masks.causal(),
        )

    want = output(q, k, v)
    got = output(*(x.at[:, token].set(y) for x, y in ((q, 9), (k, 1e30), (v, 7))))
    assert_same_bits(got[:, :token], want[:, :token])
    assert (got[:, token] != want[:, token]).any((0, -1)).all()


@pytest.mark.parametrize(
    ("kind", "name"),
    [("rows", "dense"), ("shared", "padding"), ("one each", "an offset each")],
)
def test_what_nobody_sees_may_hold_anything(name, kind):
    """Keys, values and queries, also where a hidden key is a selected one."""
    mask, selected = MASKS[name][0](), jnp.asarray(SELECTED[kind])
    allowed = np.broadcast_to(sight(name), (B, H, T, S))
    keys = ~allowed.reshape(B, G, H // G, T, S).any((2, 3)).swapaxes(1, 2)[..., None]
    blind = ~allowed.any(-1).swapaxes(1, 2)
    q, k, v, *maps, cotangent = inputs(np.float32, r=selected.shape[-1])
    want = vjp(cotangent, selected, mask, q, k, v, *maps)
    assert keys.any() or blind.any()
    for value in (np.nan, np.inf, -np.inf, 1e30):
        junk = (
            jnp.where(hidden, value, x)
            for x, hidden in ((q, blind[..., None]), (k, keys), (v, keys))
        )
        got = vjp(cotangent, selected, mask, *junk, *maps)
        for x, y in zip(got, want, strict=True):
            assert_same_bits(x, y, f"for {value}")
    for x, hidden in zip(want[:4], (blind[..., None],) * 2 + (keys,) * 2, strict=True):
        assert (np.asarray(x)[np.broadcast_to(hidden, x.shape)] == 0).all()


def test_a_finite_key_moves_none_but_those_that_see_it():
    """1e30, which is selected by queries that may not look at it."""
    q, k, v, *maps, cotangent = inputs(np.float32, g=H)
    mask, selected = MASKS["dense"][0](), jnp.asarray(ROWS)
    want = vjp(cotangent, selected, mask, q, k, v, *maps)[0]
    got = vjp(cotangent, selected, mask, q, k.at[:, 2].set(1e30), v, *maps)[0]
    others = ~TABLE[..., 2].swapaxes(1, 2)
    assert_same_bits(np.asarray(got)[others], np.asarray(want)[others])


@pytest.mark.parametrize(
    ("dtype", "ceiling"),
    [(jnp.float32, 2e-6), (jnp.bfloat16, 1e-2), (jnp.float16, 1e-3)],
)
def test_error_stays_below_the_ceiling_of_the_dtype(dtype, ceiling):
    mask, allowed = MASKS["padding"][0](), sight("padding")
    for x in check(inputs(dtype), ROWS, mask, allowed, ceiling):
        chex.assert_type(x, dtype)


def test_logits_are_computed_in_float32():
    q, k, _, matrix, offset, *_ = inputs(jnp.bfloat16)
    scores = ops.partial_logits(q, k, ROWS)
    chex.assert_type(scores, jnp.float32)
    lower = ops.reconstruct_logits(scores.astype(jnp.bfloat16), matrix, offset)
    chex.assert_type(lower, jnp.float32)


@pytest.mark.parametrize("sizes", [{"t": 0}, {"s": 0}, {"lead": (0,)}, {"r": 0}])
def test_nothing_in_gives_zeros_of_the_right_shape(sizes):
    *arrays, cotangent = inputs(np.float32, **sizes)
    t, r = sizes.get("t", T), sizes.get("r", R)
    selected = jnp.asarray(ROWS[:t, :r])
    out, *slopes = vjp(cotangent, selected, None, *arrays)
    assert out.shape == cotangent.shape
    if r:
        chex.assert_trees_all_equal(out, jnp.zeros_like(out))
        chex.assert_trees_all_equal(slopes, [jnp.zeros_like(x) for x in arrays])
    else:  # logits are the offset alone
        bare = ops.synthesizer_attention(
            jnp.broadcast_to(arrays[4], (H, T, S)), arrays[2]
        )
        assert_close(out, bare, 1e-6)


def test_jit_equals_eager_and_vmap_a_loop():
    q, k, v, matrix, offset, mean, _ = inputs(np.float32)
    mask = MASKS["padding"][0]()

    def op(q, k, v, mask):
        return ops.partial_attention(
            q,
            k,
            v,
            selected=jnp.asarray(ROWS),
            reconstruction=matrix,
            offset=offset,
            mean=mean,
            mask=mask,
        )

    got = op(q, k, v, mask)
    with jax.disable_jit():
        assert_close(op(q, k, v, mask), got, 1e-5)
    assert_close(jax.vmap(op)(q, k, v, mask), got, 1e-5)
    one = op(q[1], k[1], v[1], jax.tree.map(lambda x: x[1], mask))
    assert_close(got[1], one, 1e-5)


def test_the_second_call_traces_nothing():
    """Other keys may be selected, and the offset may move."""

    def call(seed, start):
        q, k, v, *maps = normal(
            *(x.shape for x in inputs(np.float32)[:6]), dtype=np.float32, seed=seed
        )
        selected = jnp.asarray((ROWS + seed) % S)
        mask = masks.causal().offset(start)
        ops.partial_logits(q, k, selected)
        ops.partial_attention(
            q,
            k,
            v,
            selected=selected,
            reconstruction=maps[0],
            offset=maps[1],
            mean=maps[2],
            mask=mask,
        )
        jitted = (partial._partial_logits, partial._partial_attention)
        return [op._cache_size() for op in jitted]

    assert call(0, 1) == call(1, 3)


# ------------------------------------------------------------------------------ errors

Q, K, V = jnp.ones((B, T, H, D)), jnp.ones((B, S, G, D)), jnp.ones((B, S, G, E))
MATRIX, OFFSET = jnp.ones((1, T, S, R)), jnp.ones((1, T, S))


def attend(**options):
    known = {"selected": ROWS, "reconstruction": MATRIX, "offset": OFFSET}
    return ops.partial_attention(Q, K, V, **known | options)


ERRORS = {
    "rows of other queries": (
        lambda: ops.partial_logits(Q, K, ROWS[:3]),
        r"selected: got shape \(3, 2\) for t = 5 queries; .*Int\[t r\].*Int\[r\]",
    ),
    "a key that is not there": (
        lambda: ops.partial_logits(Q, K, ROWS + 1),
        r"selected: got numbers from 1 to 7; expected keys from 0 to 6",
    ),
    "a negative key": (
        lambda: attend(selected=ROWS - 1),
        r"selected: got numbers from -1 to 5; expected keys from 0",
    ),
    "a map of other keys": (
        lambda: attend(reconstruction=MATRIX[:, :, :4], offset=OFFSET[:, :, :4]),
        r"reconstruction: got s = 4 .*for k's 7 keys.*first s rows",
    ),
    "a map of other queries": (
        lambda: attend(reconstruction=MATRIX[:, :3]),
        r"reconstruction: got shape \(1, 3, 7, 2\).*expected \(6, 5, any, 2\)",
    ),
    "an offset of another length": (
        lambda: attend(offset=OFFSET[:, :, :4]),
        r"offset: got shape \(1, 5, 4\).*expected \(6, 5, 7\), where 1 head",
    ),
    "a mean without heads": (
        lambda: attend(mean=jnp.ones((T, R))),
        r"mean: got shape \(5, 2\).*expected \(6, 5, 2\).*axis for heads",
    ),
    "an ambiguous mask": (
        lambda: attend(mask=masks.causal()),
        r"mask: causal is ambiguous for t = 5 queries and s = 7 keys.*offset",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_does_not_fit_raises_with_numbers(case, plain_errors):
    call, message = ERRORS[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_types_that_do_not_fit_raise(plain_errors):
    with pytest.raises(TypeError, match=r"selected: got dtype float64; .*integers"):
        attend(selected=ROWS * 1.0)
    with pytest.raises(TypeError, match=r"selected: got list; .*array"):
        attend(selected=[1, 2])
    with pytest.raises(TypeError, match=r"offset: got dtype int32; .*astype"):
        attend(offset=OFFSET.astype(jnp.int32))
    with pytest.raises(TypeError, match=r"mask: got an array .*dense\(allowed\)"):
        attend(mask=jnp.ones((T, S), bool))


def test_a_key_that_is_not_there_gives_nan_under_jit():
    rows = ROWS.copy()
    rows[1, 0], rows[2, 1] = -1, S
    got = np.asarray(jax.jit(ops.partial_logits)(Q, K, jnp.asarray(rows)))
    bad = np.isnan(got).all((0, 1))
    assert np.argwhere(bad).tolist() == [[1, 0], [2, 1]]
    assert np.isfinite(got[:, :, ~bad]).all()
