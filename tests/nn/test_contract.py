"""What every row of the mechanism table promises, with and without exclusion.

A mechanism added to `MECHANISMS` is tested here with no new test code.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import UnsupportedMaskError, nn
from attn_jax.ops import masks
from tests.nn.cases import (
    DECODING,
    EVERY,
    F32,
    LONGEST,
    NOT_DECODING,
    SHORT,
    B,
    E,
    G,
    H,
    Layer,
    M,
    T,
    attention,
    decodes,
    in_one_bucket,
    mechanism,
    normal,
    placed,
)
from tests.nn.errors import assert_raises
from tests.ops.oracles import assert_close, assert_same_bits

# Of two lists of rows the same ones need not come one after the other.
layer = functools.lru_cache(maxsize=4)(Layer)


@pytest.fixture(scope="module", params=EVERY)
def one(request):
    """A layer of each row, which its tests share."""
    return layer(*request.param)


# Where the SHORT tokens of each row stand: right-padded, left-padded, in between.
PLACES = [[0, 1, 2, 3], [3, 4, 5, 6], [1, 2, 4, 5]]


def assert_all_same_bits(got, want, what):
    left, right = jax.tree.leaves_with_path(got), jax.tree.leaves(want)
    assert len(left) == len(right) > 0
    for (path, x), y in zip(left, right, strict=True):
        assert_same_bits(x, y, f"{what} {jax.tree_util.keystr(path)}")


def take(x, places):
    return np.stack([np.asarray(row)[at] for row, at in zip(x, places, strict=True)])


def decode_all(one, x, length=T):
    """Outputs of every token, decoded one at a time."""
    cache, outs = one.module.init_cache(B, length), []
    for t in range(x.shape[1]):
        out, cache = one.decode(x[:, t : t + 1], cache)
        outs.append(out)
    return np.concatenate(outs, axis=1), cache


def test_output_and_gradients_are_finite(one):
    out, gradients, dx = one.full(normal(0, B, T, M))
    assert out.shape == (B, T, M)
    assert out.dtype == jnp.float32
    assert np.isfinite(out).all()
    assert np.isfinite(dx).all()
    leaves = jax.tree.leaves(gradients)
    assert all(np.isfinite(x).all() for x in leaves)
    assert any(np.any(x != 0) for x in leaves)


def test_ragged_rows_equal_unpadded_rows(one):
    rows = normal(1, B, SHORT, M)
    weights = normal(2, B, SHORT, M)
    x, real = placed(rows, PLACES, T)
    cotangent, _ = placed(weights, PLACES, T, padding=3.0)
    out, gradients, dx = one.full(x, real, cotangent=cotangent)
    want, want_gradients, want_dx = one.plain(rows, weights)

    assert_close(take(out, PLACES), want, F32, "output")
    assert_close(take(dx, PLACES), want_dx, F32, "gradient of x")
    for got, right in zip(
        jax.tree.leaves(gradients), jax.tree.leaves(want_gradients), strict=True
    ):
        assert_close(got, right, F32, "gradient of a parameter")
    assert np.all(np.asarray(out)[~real] == 0)
    assert np.all(np.asarray(dx)[~real] == 0)


def test_what_padding_holds_has_no_influence(one):
    rows = normal(1, B, SHORT, M)
    ids, _ = placed(np.ones((B, SHORT), np.int32), PLACES, T, padding=7)
    x, real = placed(rows, PLACES, T)
    clean, _ = placed(rows, PLACES, T, padding=0.5)
    got = one.full(x, real, ids)
    want = one.full(clean, real, np.ones_like(ids))
    assert_all_same_bits(got, want, "output and gradients")


def test_packed_segments_equal_rows_of_their_own(one):
    x = normal(3, B, T, M)
    ids = np.array(
        [[5, 5, 5, 2, 2, 2, 2], [2, 2, 2, 2, 0, 0, 0], [1, 2, 2, 3, 3, 3, 3]]
    )
    packed = np.asarray(one.full(x, ids=ids.astype(np.int32))[0])
    segments = [
        (row, np.flatnonzero(ids[row] == i)) for row in range(B) for i in set(ids[row])
    ]
    for some in (segments[i : i + B] for i in range(0, len(segments), B)):
        some = some + [some[0]] * (B - len(some))
        alone = np.zeros((B, T, M), np.float32)
        for i, (row, at) in enumerate(some):
            alone[i, : len(at)] = x[row, at]
        real = np.arange(T) < np.array([[len(at)] for _, at in some])
        out = np.asarray(one.full(alone, real)[0])
        for i, (row, at) in enumerate(some):
            assert_close(packed[row, at], out[i, : len(at)], F32, f"segment {row} {at}")


@pytest.mark.parametrize("at", [0, 3, T - 1])
def test_no_output_before_a_changed_token_moves(one, at):
    """To the bit, but for a mechanism that says so; in no gradient of any."""
    x = normal(4, B, T, M)
    changed = x.copy()
    changed[:, at] = normal(5, B, M)
    before, after = np.asarray(one.full(x)[0]), np.asarray(one.full(changed)[0])
    if one.kind.causal_to_the_bit:
        assert_same_bits(after[:, :at], before[:, :at], "outputs before the change")
    assert all(np.any(row) for row in after[:, at:] != before[:, at:])
    early = normal(9, B, T, M) * (np.arange(T) < at)[None, :, None]
    _, _, dx = one.full(x, cotangent=early.astype(np.float32))
    assert np.all(np.asarray(dx)[:, at:] == 0)
    assert np.any(dx) == (at > 0)


@pytest.mark.parametrize("name", NOT_DECODING)
def test_what_cannot_decode_says_why_and_what_to_do(name):
    module, kind = attention(name), nn.MECHANISMS[name]
    parts = (
        f"mechanism: got {kind.__name__}, which cannot decode",
        kind.cannot_decode,
        "write with full passes",
    )
    assert_raises(ValueError, lambda: module.init_cache(B, T), *parts)
    cache = attention().init_cache(B, T)
    x = jnp.zeros((B, 1, M))
    assert_raises(ValueError, lambda: module.decode(x, cache), *parts)


@decodes
def test_decoding_equals_the_full_pass(one):
    x = normal(6, B, T, M)
    want = one.full(x)[0]
    tokens, cache = decode_all(one, x)
    assert_close(tokens, want, F32, "token by token")
    at_once, whole = one.decode(x, one.module.init_cache(B, T))
    assert_close(at_once, want, F32, "all at once")
    for got, right in zip(jax.tree.leaves(cache), jax.tree.leaves(whole), strict=True):
        assert_close(got, right, F32, "cache")


@decodes
def test_ragged_decoding_equals_unpadded_rows(one):
    """Rows with padding on the right, on the left and inside, in two pieces."""
    rows = normal(1, B, SHORT, M)
    want = one.plain(rows)[0]
    cache = one.module.init_cache(B, T)
    done = np.zeros(B, int)
    pieces = [([0, 1], [1, 2], [0, 2]), ([0, 1], [1, 2], [1])]
    for piece in pieces:
        tokens = [rows[b, done[b] : done[b] + len(at)] for b, at in enumerate(piece)]
        x = np.full((B, 3, M), np.nan, np.float32)
        valid = np.zeros((B, 3), bool)
        for b, at in enumerate(piece):
            x[b, at], valid[b, at] = tokens[b], True
        out, cache = one.decode_ragged(x, cache, valid)
        out = np.asarray(out)
        assert np.all(out[~valid] == 0)
        for b, at in enumerate(piece):
            right = np.asarray(want)[b, done[b] : done[b] + len(at)]
            assert_close(out[b, at], right, F32, f"row {b}, tokens {at}")
            done[b] += len(at)
    assert cache.length.tolist() == done.tolist() == [4, 4, 3]
    # The last row's fourth token, beside tokens that nobody asked for.
    out, _ = one.decode(rows[:, 3:], cache)
    assert_close(out[2], np.asarray(want)[2, 3:], F32, "row 2, the last token")


@decodes
def test_a_row_without_room_is_nan_and_the_others_go_on(one):
    x = normal(7, B, T, M)
    want = np.asarray(one.full(x)[0])

    def step(cache, starts, counts):
        """The next tokens of each row, right-padded to 3."""
        piece = np.stack([np.resize(x[b, s:], (3, M)) for b, s in enumerate(starts)])
        valid = np.arange(3) < np.array(counts)[:, None]
        out, cache = one.decode_ragged(piece, cache, valid)
        return np.asarray(out), cache

    cache = one.module.init_cache(B, T)
    for starts, counts in (([0, 0, 0], [3, 3, 3]), ([3, 3, 3], [3, 2, 1])):
        _, cache = step(cache, starts, counts)
    assert cache.length.tolist() == [6, 5, 4]

    out, after = step(cache, [0, 5, 4], [2, 2, 3])
    assert np.isnan(out[0]).all()
    assert after.length.tolist() == [6, 7, 7]
    assert after.room.tolist() == T
    row = [jax.tree.map(lambda x: np.asarray(x)[0], c.core) for c in (after, cache)]
    assert_all_same_bits(*row, "cache of the row without room")
    assert_close(out[1, :2], want[1, 5:], F32, "row 1")
    assert_close(out[2], want[2, 4:], F32, "row 2")

    out, last = step(after, [6, 0, 0], [1, 0, 0])
    assert_close(out[0, :1], want[0, 6:], F32, "row 0, with a token that fits")
    assert np.all(out[1:] == 0)
    assert last.length.tolist() == [T] * B
    nothing, full = one.decode(x[:, :1], last)
    assert np.isnan(nothing).all()
    assert_all_same_bits(full, last, "full cache")


@decodes
def test_padding_may_hang_over_the_end_of_the_cache(one):
    x = normal(7, B, T, M)
    want = np.asarray(one.full(x)[0])
    _, cache = one.decode(x[:, :1], one.module.init_cache(B, T))
    out, cache = one.decode_ragged(x[:, 1:4], cache, np.ones((B, 3), bool))
    out, cache = one.decode_ragged(x[:, 4:7], cache, np.arange(3) < [[2], [2], [3]])
    assert cache.length.tolist() == [6, 6, 7]
    piece = np.full((B, 3, M), np.nan, np.float32)
    piece[:, 2] = x[:, 6]
    valid = np.array([[False, False, True]] * 2 + [[False] * 3])
    out, cache = one.decode_ragged(piece, cache, valid)
    assert_close(out[:2, 2], want[:2, 6], F32, "the last token, left-padded")
    assert np.all(np.asarray(out)[~valid] == 0)
    assert cache.length.tolist() == [T] * B


@decodes
def test_overflow_raises_with_numbers(one, plain_errors):
    module = one.module
    cache = module.init_cache(B, T)._replace(length=jnp.array([2, 6, 0], jnp.int32))
    with pytest.raises(ValueError, match=r"x: row 1 would hold 8 tokens.*room for 7"):
        module.decode(jnp.ones((B, 2, M)), cache)
    valid = np.array([[True, True], [True, False], [True, True]])
    full = cache._replace(length=jnp.array([2, 7, 0], jnp.int32))
    with pytest.raises(ValueError, match="x: row 1 would hold 8 tokens"):
        module.decode(jnp.ones((B, 2, M)), full, valid=jnp.asarray(valid))


@decodes
def test_caches_can_be_gathered_along_the_batch(one):
    """As beam search does: rows are dropped, repeated and continued."""
    x = normal(8, B, T, M)
    rows = np.array([2, 0, 0])
    _, cache = one.decode_ragged(
        x[:, :3], one.module.init_cache(B, T), np.ones((B, 3), bool)
    )
    cache = one.module.take(cache, jnp.asarray(rows))
    tails = normal(10, B, T - 3, M)
    outs = []
    for t in range(T - 3):
        out, cache = one.decode(tails[:, t : t + 1], cache)
        outs.append(out)
    want = one.full(np.concatenate([x[rows, :3], tails], axis=1))[0]
    assert_close(np.concatenate(outs, axis=1), want[:, 3:], F32)


def test_jit_equals_eager_and_traces_once(one):
    rows = normal(1, B, SHORT, M)
    compiled = one.plain(rows)[0]
    assert_close(
        one.module(jnp.asarray(rows), mask=masks.causal()), compiled, F32, "eager"
    )
    for seed in (11, 12):
        one.plain(normal(seed, B, SHORT, M))
        one.full(normal(seed, B, T, M))
        if seed == 11:
            traced = dict(one.traces)
    assert dict(one.traces) == traced
    assert traced["full"] == traced["plain"] == 1


@decodes
def test_a_second_step_of_decoding_traces_nothing(one):
    x, cache = normal(0, B, T, M), one.module.init_cache(B, T)
    valid = np.ones((B, 3), bool)
    one.decode(x[:, :1], cache)
    one.decode_ragged(x[:, :3], cache, valid)
    traced = dict(one.traces)
    one.decode(x[:, 1:2], one.decode(x[:, :1], cache)[1])
    one.decode_ragged(x[:, 3:6], one.decode_ragged(x[:, :3], cache, valid)[1], valid)
    assert dict(one.traces) == traced
    assert traced["decode_ragged"] == 1


def test_the_structure_of_a_layer_can_be_a_static_argument(one):
    """Two layers of one config share what is compiled for either."""
    name, exclusive = one.row
    options = {"exclusive": exclusive, "rotary": True, "use_bias": True}
    other = nnx.graphdef(attention(name, seed=1, **options))
    assert other == one.graph
    assert hash(other) == hash(one.graph)


def test_leading_axes_equal_vmap_and_a_loop(one):
    x = normal(13, 2, B, SHORT, M)

    def both(module, x):
        def plain(x):
            return module(x, mask=masks.causal())

        return plain(x), jax.vmap(plain)(x), plain(x[0, 0])

    direct, mapped, row = one.jit("leading", both)(x)
    want = np.stack([np.asarray(one.plain(each)[0]) for each in x])
    assert_close(direct, want, F32, "two leading axes")
    assert_close(mapped, want, F32, "vmap")
    assert_close(row, want[0, 0], F32, "no leading axis")


RULES = {
    "full": masks.full(),
    "causal": masks.causal(),
    "window": masks.window(2, 1),
    "prefix": masks.prefix(3),
    "padding": masks.padding(*[jnp.arange(T) % 3 != 1] * 2),
    "segments": masks.segments(jnp.array([4, 4, 4, 4, 1, 1, 1])),
    "dense": masks.dense(jnp.asarray(normal(14, H, T, T) > 0)),
}


@pytest.mark.parametrize("name", nn.MECHANISMS)
@pytest.mark.parametrize("rule", RULES)
def test_a_mask_is_honoured_or_refused(name, rule):
    """A key moves the queries that may see it, and no other by a bit."""
    module, mask = attention(mechanism=in_one_bucket(name)), RULES[rule]
    x = jnp.asarray(normal(15, T, M))
    if rule not in module.config.mechanism.masks | {"full"}:
        with pytest.raises(UnsupportedMaskError, match=f"{rule}"):
            module(x, mask=mask)
        return
    run = jax.jit(lambda x: module(x, mask=mask))
    base = np.asarray(run(x))
    moved = np.zeros((T, T), bool)
    for j in range(T):
        changed = x.at[j].add(normal(16, M))
        moved[:, j] = np.any(np.asarray(run(changed)) != base, axis=-1)
    allowed = np.asarray(mask.allowed(T, T)).any(axis=0)
    others = ~np.eye(T, dtype=bool)
    np.testing.assert_array_equal(moved[others], allowed[others])
    assert allowed[others].any()


def test_a_mechanism_that_declares_no_masks_is_given_none():
    """Contract 17: forgetting to say what it honours must not make it cheat."""

    @dataclass(frozen=True, kw_only=True)
    class Careless(nn.Mechanism):
        def build(self, config, *, rngs):
            return nn.Softmax().build(config, rngs=rngs)

    module, x = attention(mechanism=Careless()), jnp.asarray(normal(0, B, T, M))
    assert_close(module(x), attention()(x), F32)
    for rule in ("causal", "padding", "segments", "dense"):
        with pytest.raises(UnsupportedMaskError, match=f"mask: got {rule}"):
            module(x, mask=RULES[rule])


@pytest.mark.parametrize("name", nn.MECHANISMS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 1), (6, 3)], ids=str)
def test_grouped_heads_equal_repeated_heads(name, heads, kv_heads):
    """Each query head reads the keys and values of its group, no other."""
    grouped = attention(name, num_heads=heads, num_kv_heads=kv_heads, exclusive=True)
    full = attention(name, num_heads=heads, num_kv_heads=heads, exclusive=True)
    copy_repeated(grouped, full, heads // kv_heads)
    x = normal(17, B, SHORT, M)
    got, want = jax.jit(lambda x: (grouped(x), full(x)))(x)
    assert got.shape == (B, SHORT, M)
    assert_close(got, want, F32)


def copy_repeated(grouped, full, times):
    """Parameters of `grouped` into `full`, its kv heads repeated."""

    def copy(source, target):
        axes = [i for i, n in enumerate(source.shape) if n != target.shape[i]]
        assert len(axes) <= 1
        return jnp.repeat(source, times, axis=axes[0]) if axes else source

    nnx.update(full, jax.tree.map(copy, nnx.state(grouped), nnx.state(full)))


@pytest.mark.parametrize("name", nn.MECHANISMS)
def test_one_layer_serves_every_length(name):
    """The start of a row is the start of a longer one, up to the longest."""
    module, lengths = attention(mechanism=in_one_bucket(name)), (1, 2, 5, LONGEST)
    assert mechanism(name).limit in (None, LONGEST)
    x = normal(18, LONGEST, M)
    *short, whole = jax.jit(
        lambda x: [module(x[:n], mask=masks.causal()) for n in lengths]
    )(x)
    for n, out in zip(lengths, short, strict=False):
        assert_close(out, whole[:n], F32, f"{n} tokens")


@pytest.mark.parametrize("name", nn.MECHANISMS)
def test_empty_inputs_give_empty_outputs(name):
    module, shapes = attention(name, exclusive=True), ((2, 0), (0, 3), (0, 0))

    def gradient(x):
        return jax.grad(lambda x: jnp.sum(module(x, mask=masks.causal())))(x)

    def decoded(x):
        if name in NOT_DECODING:
            return []
        out, cache = module.decode(x, module.init_cache(len(x), T))
        return [out, cache.length]

    def everything(x):
        return module(x, mask=masks.causal()), gradient(x), *decoded(x)

    inputs = [normal(0, rows, tokens, M) for rows, tokens in shapes]
    found = jax.jit(lambda xs: [everything(x) for x in xs])(inputs)
    for (rows, tokens), (out, dx, *after) in zip(shapes, found, strict=True):
        assert out.shape == dx.shape == (rows, tokens, M)
        if name in DECODING:
            assert after[0].shape == (rows, tokens, M)
            assert after[1].tolist() == [tokens] * rows


def test_sizes_are_distinct():
    """No two axes can be confused without a shape that does not fit."""
    assert len({B, T, SHORT, M, G, E, LONGEST}) == 7
