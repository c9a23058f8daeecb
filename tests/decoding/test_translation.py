"""A real encoder-decoder writes: every text against full passes over it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.decoding import _start, beam_search, greedy
from attn_jax.ops import masks
from tests.decoding import toys
from tests.models.cases import LAYERS, B, encoder_decoder, ids, placed
from tests.models.test_encoder_decoder import roles

S, N, K, ALPHA, BOS, EOS = 7, 5, 4, 0.6, 3, 5
LENGTHS = [4, 2, 5]
SOURCES = [row[:n] for row, n in zip(ids(0, B, S), LENGTHS, strict=True)]
RIGHT = placed(SOURCES, [np.arange(n) for n in LENGTHS], S)
LEFT = placed(SOURCES, [np.arange(S - n, S) for n in LENGTHS], S)
BETWEEN = placed(SOURCES, [[0, 2, 3, 6], [1, 5], [0, 1, 3, 4, 6]], S)
# Mechanisms of the encoder, the decoder and between them.
ROLES = [("softmax",) * 3, ("softmax", "linear", "linear")]


class Translator:
    """A model, and log p of every next token by a full pass."""

    def __init__(self, names):
        # Tied, random embeddings say the same token again and again.
        self.model = encoder_decoder(2, tie_embeddings=False, **roles(names))

        def after(source, real, target):
            mask = masks.padding(real, real)
            logits = self.model(source, target, source_mask=mask)
            return jax.nn.log_softmax(logits, axis=-1)

        self.after = jax.jit(after)

    def steps(self, texts):
        """log p of N tokens after bos and texts, one a source: B N vocab."""
        target = np.insert(np.asarray(texts), 0, BOS, axis=1)[:, :N]
        return np.asarray(self.after(*RIGHT, target.astype(np.int32)))

    def beams(self, source, valid=None, rows=slice(None)):
        valid = None if valid is None else jnp.asarray(valid[rows])
        options = {"beam_size": K, "alpha": ALPHA, "max_length": N}
        found = beam_search(
            self.model, source[rows], valid=valid, eos_id=EOS, bos_id=BOS, **options
        )
        return tuple(map(np.asarray, found))


@pytest.fixture(scope="module", params=ROLES, ids="-".join)
def translator(request):
    return Translator(request.param)


def end(text):
    """Tokens of a text, eos included."""
    return int(np.argmax(text == EOS)) + 1 if EOS in text else N


def test_greedy_equals_the_argmax_of_full_passes(translator):
    """Ragged sources, wherever their padding is and whatever it holds."""
    want = np.zeros((B, N), np.int32)
    for i in range(N):
        want[:, i] = np.argmax(translator.steps(want)[:, i], axis=-1)
    eos = int(want[0, 2])
    ended = np.where(np.cumsum(want == eos, axis=1) - (want == eos) > 0, 0, want)
    for padded, valid in (RIGHT, LEFT, BETWEEN):
        options = {"max_length": N, "bos_id": BOS, "valid": valid}
        got = greedy(translator.model, padded, **options)
        np.testing.assert_array_equal(got, want)
        got = greedy(translator.model, padded, eos_id=eos, **options)
        np.testing.assert_array_equal(got, ended)
    assert len(np.unique(want, axis=0)) > 1


def test_scores_are_those_of_full_passes(translator):
    """Caches follow their hypotheses, and each goes on with its own source."""
    texts, scores = translator.beams(*RIGHT)
    for beam in range(K):
        steps = translator.steps(texts[:, beam])
        for row, text in enumerate(texts[:, beam]):
            n, score = end(text), scores[row, beam]
            if score == -np.inf:
                assert not text.any()
                continue
            total = steps[row, np.arange(n), text[:n]].sum()
            want = total / toys.penalty(n, ALPHA)
            assert abs(score - want) < 1e-4 * abs(want), (row, beam)
    assert any(len(set(row[:, 0])) < K for row in texts), (
        "no beam was ever left for another"
    )
    apart = np.abs(steps[:, 0] - steps[[1, 2, 0], 0]).max(axis=-1)
    assert np.all(apart > 0.1), "it makes no difference whose source it is"
    finished = np.any(texts == EOS, axis=(1, 2))
    assert finished.any()
    assert not finished.all()


def test_neither_padding_nor_other_rows_move_a_score(translator):
    texts, scores = translator.beams(*RIGHT)

    def same(found, rows):
        np.testing.assert_array_equal(found[0], texts[rows])
        np.testing.assert_allclose(found[1], scores[rows], rtol=1e-4)

    every = slice(None)
    same(translator.beams(*LEFT), every)
    same(translator.beams(*BETWEEN), every)
    same(translator.beams(*RIGHT, rows=[2, 0, 2]), [2, 0, 2])
    same(translator.beams(SOURCES[1][None]), [1])


def test_beams_share_what_is_known_of_their_source():
    """The gather would be the identity; `take` moves it for whoever asks."""
    model, source = encoder_decoder(), jnp.asarray(ids(0, B, S))

    @jax.jit
    def caches(rows):
        cache = model.init_cache(model.encode(source), N)
        chosen = _start.choose(model, cache, rows)
        assert chosen.context is cache.context
        return chosen, model.take(cache, rows)

    chosen, taken = caches(jnp.array([1, 0, 2]))
    assert chosen.context.core.v.shape[:2] == (LAYERS, B)
    for ours, moved in zip(*map(jax.tree.leaves, (chosen, taken)), strict=True):
        if ours.shape[:3] == (LAYERS, B, S) and ours.ndim > 3:
            np.testing.assert_array_equal(ours[:, [1, 0, 2]], moved)
            assert not np.array_equal(ours, moved)
