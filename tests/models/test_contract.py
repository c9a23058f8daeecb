"""What every row of the mechanism table promises as a language model.

A mechanism added to `MECHANISMS` is tested here with no new test code.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import nn
from attn_jax.decoding import beam_search, greedy, sample
from tests.models.cases import (
    F32,
    GARBAGE,
    SHORT,
    VOCAB,
    B,
    M,
    Model,
    T,
    decoder,
    encoder_decoder,
    ids,
    placed,
)
from tests.nn.cases import DECODING, NOT_DECODING, rows, small
from tests.nn.errors import assert_raises
from tests.ops.oracles import assert_close, assert_same_bits

# Where the SHORT tokens of each row stand: right-padded, left-padded, in between.
PLACES = [[0, 1, 2, 3], [3, 4, 5, 6], [1, 2, 4, 5]]


# Exclusion is of a layer, where tests/nn holds it to the laws with every mechanism.
stacked = functools.partial(rows, exclusive=("softmax", "linear"))
decodes = pytest.mark.parametrize("one", stacked(DECODING), indirect=True)

# Of two lists of rows the same ones need not come one after the other.
model = functools.lru_cache(maxsize=4)(Model)


@pytest.fixture(scope="module", params=stacked(nn.MECHANISMS))
def one(request):
    """A decoder of each row, which its tests share."""
    return model(*request.param)


def take(x, places):
    return np.stack([np.asarray(row)[at] for row, at in zip(x, places, strict=True)])


def test_logits_are_finite(one):
    logits = one.full(ids(0, B, T))
    assert logits.shape == (B, T, VOCAB)
    assert logits.dtype == jnp.float32
    assert np.isfinite(logits).all()


def test_ragged_rows_equal_unpadded_rows(one):
    """Contract 8: padding holds ids that are no tokens."""
    rows = ids(1, B, SHORT)
    tokens, real = placed(rows, PLACES)
    logits = one.full(tokens, real)
    assert_close(take(logits, PLACES), one.plain(rows), F32, "logits")
    assert np.isfinite(logits).all()
    clean = one.full(np.where(real, tokens, 5), real)
    assert_same_bits(logits, clean, "logits beside tokens of the vocabulary")


def test_packed_segments_equal_rows_of_their_own(one):
    """Contract 32: nothing crosses into the first token of a document."""
    tokens = ids(3, B, T)
    segments = np.array([[7, 7, 7, 2, 2, 2, 2], [1, 1, 1, 1, 0, 0, 0], [3] * 7])
    packed = np.asarray(one.full(tokens, segments=segments.astype(np.int32)))
    for starts, stops in (([0, 0, 0], [3, 4, 7]), ([3, 4, 0], [7, 7, 7])):
        spans = [np.arange(*span) for span in zip(starts, stops, strict=True)]
        alone, real = placed(
            [tokens[row, at] for row, at in enumerate(spans)],
            [at - at[0] for at in spans],
        )
        logits = np.asarray(one.full(alone, real))
        for row, at in enumerate(spans):
            assert_close(packed[row, at], logits[row, at - at[0]], F32, f"{row} {at}")


EXACT = [name for name, kind in nn.MECHANISMS.items() if kind.causal_to_the_bit]


@pytest.mark.parametrize("one", stacked(EXACT), indirect=True)
@pytest.mark.parametrize("at", [0, 3, T - 1])
def test_no_logit_before_a_changed_token_moves(one, at):
    tokens = ids(4, B, T)
    changed = tokens.copy()
    changed[:, at] = (changed[:, at] + 1 + np.arange(B)) % VOCAB
    before, after = (np.asarray(one.full(x)) for x in (tokens, changed))
    assert_same_bits(after[:, :at], before[:, :at], "logits before the change")
    assert all(np.any(row) for row in after[:, at] != before[:, at])


@decodes
def test_decoding_token_by_token_equals_the_full_pass(one):
    tokens = ids(5, B, T)
    want, cache, outs = one.full(tokens), one.init_cache(), []
    for t in range(T):
        logits, cache = one.decode(tokens[:, t : t + 1], cache)
        outs.append(logits)
    got = np.concatenate(outs, axis=1)
    assert got.dtype == np.float32
    assert_close(got, want, F32)
    np.testing.assert_array_equal(got.argmax(-1), np.asarray(want).argmax(-1))
    assert cache.length.tolist() == [T] * B


@decodes
def test_ragged_decoding_equals_unpadded_rows(one):
    rows = ids(1, B, SHORT)
    want, cache = np.asarray(one.plain(rows)), one.init_cache()
    done = np.zeros(B, int)
    for piece in (([0, 1], [1, 2], [0, 2]), ([0, 1], [1, 2], [1])):
        now = [rows[b, done[b] : done[b] + len(at)] for b, at in enumerate(piece)]
        tokens, valid = placed(now, piece, 3)
        logits, cache = one.decode_ragged(tokens, cache, valid)
        assert np.isfinite(logits).all()
        for b, at in enumerate(piece):
            right = want[b, done[b] : done[b] + len(at)]
            assert_close(np.asarray(logits)[b, at], right, F32, f"row {b}, {at}")
            done[b] += len(at)
    assert cache.length.tolist() == done.tolist() == [4, 4, 3]
    logits, _ = one.decode(rows[:, 3:], cache)
    assert_close(np.asarray(logits)[2], want[2, 3:], F32, "row 2, the last token")


@decodes
def test_a_row_without_room_is_nan_and_the_others_go_on(one):
    tokens = ids(6, B, T)
    want, cache = np.asarray(one.full(tokens)), one.init_cache()

    def step(cache, starts, counts):
        """The next tokens of each row, left-padded to 3."""
        now = [
            tokens[b, s : s + n]
            for b, (s, n) in enumerate(zip(starts, counts, strict=True))
        ]
        piece, valid = placed(now, [np.arange(3 - n, 3) for n in counts], 3)
        logits, cache = one.decode_ragged(piece, cache, valid)
        return np.asarray(logits), cache

    for starts, counts in (([0, 0, 0], [3, 3, 3]), ([3, 3, 3], [3, 2, 1])):
        _, cache = step(cache, starts, counts)
    logits, after = step(cache, [0, 5, 4], [2, 2, 3])
    assert np.isnan(logits[0]).all()
    assert_close(logits[1, 1:], want[1, 5:], F32, "row 1")
    assert_close(logits[2], want[2, 4:], F32, "row 2")
    assert after.length.tolist() == [6, 7, 7]
    row = [jax.tree.leaves(one.module.take(c, jnp.array([0]))) for c in (after, cache)]
    for got, right in zip(*row, strict=True):
        assert_same_bits(got, right, "cache of the row without room")

    logits, last = step(after, [6, 0, 0], [1, 0, 0])
    assert_close(logits[0, 2:], want[0, 6:], F32, "row 0, with a token that fits")
    assert np.isfinite(logits[1:]).all()
    assert last.length.tolist() == [T] * B
    nothing, full = one.decode(tokens[:, :1], last)
    assert np.isnan(nothing).all()
    for got, right in zip(jax.tree.leaves(full), jax.tree.leaves(last), strict=True):
        assert_same_bits(got, right, "full cache")


@decodes
def test_overflow_raises_with_numbers(one, plain_errors):
    cache = one.init_cache()._replace(length=jnp.array([2, 6, 0], jnp.int32))
    with pytest.raises(ValueError, match=r"tokens: row 1 would hold 8 .* room for 7"):
        one.module.decode(jnp.asarray(ids(0, B, 2)), cache)


@decodes
def test_caches_can_be_gathered_along_the_batch(one):
    tokens, rows = ids(7, B, T), jnp.array([2, 0, 0])
    _, cache = one.decode_ragged(tokens[:, :3], one.init_cache(), np.ones((B, 3), bool))
    cache, tails, outs = one.module.take(cache, rows), ids(8, B, T - 3), []
    for t in range(T - 3):
        logits, cache = one.decode(tails[:, t : t + 1], cache)
        outs.append(logits)
    want = one.full(np.concatenate([tokens[rows, :3], tails], axis=1))
    assert_close(np.concatenate(outs, axis=1), want[:, 3:], F32)


def test_a_second_call_traces_nothing(one):
    """With other tokens and other padding."""
    for seed in (1, 2):
        one.full(ids(seed, B, T), np.arange(T) >= np.full((B, 1), seed))
        one.plain(ids(seed, B, SHORT))
        if seed == 1:
            traced = dict(one.traces)
    assert dict(one.traces) == traced == dict.fromkeys(traced, 1)
    assert traced.keys() >= {"full", "plain"}


@decodes
def test_a_second_step_of_decoding_traces_nothing(one):
    """With other tokens, and a cache that has been used."""
    valid, cache = np.ones((B, 3), bool), one.init_cache()
    for seed in (1, 2):
        cache = one.decode(ids(seed, B, 1), cache)[1]
        cache = one.decode_ragged(ids(seed, B, 3), cache, valid)[1]
        if seed == 1:
            traced = dict(one.traces)
    assert dict(one.traces) == traced == dict.fromkeys(traced, 1)
    assert traced.keys() >= {"decode", "decode_ragged"}


@pytest.mark.parametrize("name", NOT_DECODING)
def test_what_cannot_decode_says_why_and_what_to_do(name):
    """Of a decoder, of an encoder-decoder, and of all that writes with either."""
    kind, mechanism = nn.MECHANISMS[name], small(name)
    one, two = decoder(name), encoder_decoder(mechanism=mechanism)
    prompt, memory = jnp.ones((B, SHORT), jnp.int32), jnp.zeros((B, SHORT, M))
    rng, ends = jax.random.key(0), {"max_length": 2, "eos_id": 1, "bos_id": 2}
    for call in (
        lambda: one.init_cache(B, T),
        lambda: one.decode(prompt, decoder().init_cache(B, T)),
        lambda: two.init_cache(memory, T),
        lambda: greedy(one, prompt, **ends),
        lambda: greedy(two, prompt, **ends),
        lambda: sample(one, prompt, rng=rng, **ends),
        lambda: beam_search(one, prompt, beam_size=2, alpha=0.6, **ends),
    ):
        assert_raises(
            ValueError,
            call,
            f"mechanism: got {kind.__name__}, which cannot decode",
            kind.cannot_decode,
            "write with full passes, that is model(tokens) for every new token",
        )


@pytest.mark.parametrize("name", NOT_DECODING)
def test_an_encoder_needs_no_decoding(name):
    """The encoder of a translator may have any mechanism of one sequence."""
    model = encoder_decoder(encoder_mechanism=small(name))
    source = jnp.asarray(ids(0, B, SHORT))
    ends = {"max_length": 2, "eos_id": 1, "bos_id": 2}
    assert greedy(model, source, **ends).shape == (B, 2)


def test_garbage_is_no_token():
    assert not set(GARBAGE.tolist()) & set(range(VOCAB))
