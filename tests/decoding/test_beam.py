"""Beam search: against enumeration, against a search that never stops early."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.decoding import beam_search, greedy
from tests.decoding import toys
from tests.models.cases import LONGEST, decoder, ids, placed

V, EOS = 4, 1
ALPHAS = [-8.0, -1.0, 0.0, 0.6, 1.0, 6.0]


def prompts(seed, rows, length=2, vocab=V):
    return np.random.default_rng(seed).integers(vocab, size=(rows, length))


def compare(found, wanted, length):
    """Scores and tokens of each row against (score, tokens) pairs."""
    tokens, scores = map(np.asarray, found)
    k = scores.shape[1]
    for row, want in enumerate(wanted):
        right, texts = toys.padded(want, k, length)
        np.testing.assert_allclose(scores[row], right, rtol=2e-5, atol=1e-5)
        np.testing.assert_array_equal(tokens[row], texts, err_msg=f"row {row}")


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_reduces_to_exhaustive_search_with_a_beam_of_every_text(alpha):
    length, prompt = 3, prompts(0, 3)
    model = toys.Recurrent(V)
    found = beam_search(
        model, prompt, beam_size=V**length, alpha=alpha, max_length=length, eos_id=EOS
    )
    wanted = [
        toys.exhaustive(toys.log_probabilities(model, row), V, EOS, alpha, length)
        for row in prompt
    ]
    compare(found, wanted, length)
    assert len(wanted[0]) == 1 + 3 + 9


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_stopping_early_loses_nothing_for_any_alpha(k, seed):
    length, prompt = 7, prompts(seed, 6)
    model = toys.Recurrent(V, seed=seed)
    for alpha in ALPHAS:
        found = beam_search(
            model, prompt, beam_size=k, alpha=alpha, max_length=length, eos_id=EOS
        )
        wanted = [
            toys.slow_beam(toys.log_probabilities(model, row), k, EOS, alpha, length)
            for row in prompt
        ]
        compare(found, wanted, length)


def test_reduces_to_greedy_with_a_beam_of_one():
    model, prompt = toys.Recurrent(V, seed=2, scale=0.7), prompts(2, 40)
    tokens = greedy(model, prompt, max_length=6, eos_id=EOS)
    ends = np.any(np.asarray(tokens) == EOS, axis=1)
    assert ends.any()
    assert not ends.all()
    for alpha in ALPHAS:
        found, _ = beam_search(
            model, prompt, beam_size=1, alpha=alpha, max_length=6, eos_id=EOS
        )
        np.testing.assert_array_equal(found[:, 0], tokens)


@pytest.mark.parametrize("eos", [0, 2])
def test_a_beam_of_one_sees_what_greedy_sees_after_a_long_text(eos):
    """Added to log p of 15 tokens, two logits one step of float32 apart are equal."""
    logits = np.zeros((16, 50), np.float32)
    logits[:, 0] = -9
    logits[:, 1] = 1
    logits[15, 2] = np.nextafter(np.float32(1), np.float32(2))
    model = toys.Fixed(logits)
    prompt = np.zeros((1, 1), int)
    tokens = greedy(model, prompt, max_length=17, eos_id=eos)
    assert tokens[0, 15] == 2, "the greater logit"
    found, _ = beam_search(
        model, prompt, beam_size=1, alpha=0.6, max_length=17, eos_id=eos
    )
    np.testing.assert_array_equal(found[:, 0], tokens)


def test_the_search_stops_when_no_row_can_get_better():
    """Later logits are NaN: two steps end two texts, and a third can't be better.

    With alpha = 6 it can, as length counts for more than probability.
    """
    logits = [[0.0, 30.0, 0.0]] * 2 + [[np.nan] * 3]
    model, prompt = toys.Fixed(logits), np.zeros((2, 1), int)
    for alpha in (-8.0, -1.0, 0.0, 0.6):
        tokens, scores = beam_search(
            model, prompt, beam_size=2, alpha=alpha, max_length=9, eos_id=1
        )
        assert np.isfinite(scores).all()
        assert tokens[0, 0].tolist() == [1] + [0] * 8
    with pytest.raises(FloatingPointError):
        beam_search(model, prompt, beam_size=2, alpha=6.0, max_length=9, eos_id=1)
    alone = toys.Fixed([[0.0, 30.0, 0.0], [np.nan] * 3])
    beam_search(alone, prompt, beam_size=1, alpha=9.0, max_length=9, eos_id=1)
    greedy(alone, prompt, max_length=9, eos_id=1)
    with pytest.raises(FloatingPointError, match=r"row 0, 1 NaN"):
        beam_search(alone, prompt, beam_size=2, alpha=0.0, max_length=9, eos_id=1)


def test_unfinished_texts_are_returned_only_where_none_has_ended():
    """Row 0 never meets eos_id among its best; row 1 ends once."""
    never = toys.Fixed([3.0, -60.0, 1.0, 2.0])
    tokens, scores = beam_search(
        never, prompts(0, 1), beam_size=3, alpha=0.6, max_length=4, eos_id=1
    )
    assert not np.any(np.asarray(tokens) == 1)
    assert np.isfinite(scores).all()
    step = np.asarray(jax.nn.log_softmax(jnp.array([3.0, -60.0, 1.0, 2.0])))
    np.testing.assert_allclose(scores[0, 0], 4 * step[0] / 1.5**0.6, rtol=1e-5)
    once = toys.Fixed([[0.0, 2.0, 3.0, -1.0], [3.0, -60.0, 1.0, 2.0]])
    tokens, scores = beam_search(
        once, np.zeros((1, 1), int), beam_size=2, alpha=0.6, max_length=4, eos_id=1
    )
    assert tokens[0].tolist() == [[1, 0, 0, 0], [0, 0, 0, 0]]
    assert np.isfinite(scores[0, 0])
    assert scores[0, 1] == -np.inf


def test_a_beam_wider_than_there_are_texts():
    """Texts that don't exist have score -inf and tokens 0."""
    model, prompt = toys.Recurrent(2, seed=3), prompts(3, 2, vocab=2)
    found = beam_search(model, prompt, beam_size=9, alpha=0.6, max_length=3, eos_id=EOS)
    wanted = [
        toys.exhaustive(toys.log_probabilities(model, row), 2, EOS, 0.6, 3)
        for row in prompt
    ]
    compare(found, wanted, 3)
    assert np.sum(np.isfinite(found[1])) == 6
    only = beam_search(
        toys.Fixed([0.0]),
        np.zeros((1, 1), int),
        beam_size=2,
        alpha=1.0,
        max_length=3,
        eos_id=0,
    )
    np.testing.assert_array_equal(only[1], [[0.0, -np.inf]])


def test_tokens_that_are_ruled_out_are_never_taken():
    model = toys.Fixed([0.0, -np.inf, 1.0, -np.inf])
    tokens, scores = beam_search(
        model, prompts(0, 1), beam_size=3, alpha=0.0, max_length=3, eos_id=1
    )
    assert set(np.unique(tokens)) <= {0, 2}
    assert np.isfinite(scores).all()


def test_scores_do_not_depend_on_the_length_of_the_prompt():
    """Contract 109: n counts what is written."""
    model = toys.Fixed([0.3, -0.5, 1.0, 0.1])
    options = {"beam_size": 3, "alpha": 0.6, "max_length": 4, "eos_id": EOS}
    short, long = (beam_search(model, prompts(0, 1, n), **options)[1] for n in (1, 7))
    np.testing.assert_array_equal(short, long)


@pytest.mark.parametrize("name", ["softmax", "linear", "dense"])
def test_scores_are_those_of_the_full_pass(name):
    """Caches follow their hypotheses: each text's log p, computed anew, is its score.

    Contract 109: n counts what was written, whatever the prompt's length.
    """
    model, k, n, alpha = decoder(name), 4, 5, 0.6
    lengths, rows = [4, 2, 1], [ids(seed, 4) for seed in range(3)]
    cut = [row[:t] for row, t in zip(rows, lengths, strict=True)]
    options = {
        "beam_size": k,
        "alpha": alpha,
        "max_length": n,
        "eos_id": 5,
    }
    right, left = (
        placed(cut, [np.arange(t) + (0 if end else 5 - t) for t in lengths], 5)
        for end in (True, False)
    )
    results = [
        [np.asarray(x) for x in beam_search(model, p, valid=jnp.asarray(v), **options)]
        for p, v in (right, left)
    ]
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-5)
    forward = jax.jit(model)
    moved = 0
    for row, prompt in enumerate(cut):
        alone = beam_search(model, prompt[None], **options)
        np.testing.assert_array_equal(alone[0][0], results[0][0][row])
        np.testing.assert_allclose(alone[1][0], results[0][1][row], rtol=1e-4)
        for text, score in zip(*(x[row] for x in results[0]), strict=True):
            if score == -np.inf:
                continue
            end = int(np.argmax(text == 5)) + 1 if 5 in text else n
            whole = np.zeros((1, LONGEST), np.int32)
            whole[0, : len(prompt) + end] = [*prompt, *text[:end]]
            steps = np.asarray(jax.nn.log_softmax(forward(whole)[0], axis=-1))
            at = np.arange(len(prompt) - 1, len(prompt) + end - 1)
            total = steps[at, text[:end]].sum()
            assert abs(total / toys.penalty(end, alpha) - score) < 1e-4 * abs(score)
        firsts = results[0][0][row][:, 0]
        moved += len(firsts) - len(set(firsts.tolist()))
    assert moved, "no beam was ever left for another"


@pytest.mark.parametrize("k", [1, 3])
def test_a_source_is_translated_from_bos_id(k):
    model, source = toys.Translator(V, seed=4), prompts(4, 3, 5)
    lengths = np.array([5, 2, 3])
    valid = np.arange(5) < lengths[:, None]
    garbage = np.where(valid, source, -7)
    found = beam_search(
        model,
        garbage,
        beam_size=k,
        alpha=0.6,
        max_length=6,
        eos_id=EOS,
        bos_id=3,
        valid=valid,
    )
    wanted = []
    for row, n in zip(source, lengths, strict=True):
        after = toys.log_probabilities(model, [*row[:n], 3])
        wanted.append(toys.slow_beam(after, k, EOS, 0.6, 6))
    compare(found, wanted, 6)


def test_a_second_search_compiles_nothing(caplog):
    """Other tokens, alpha, eos_id and parameters."""
    calls = [
        (toys.Recurrent(V, seed=seed), prompts(seed, 2), alpha, eos)
        for seed, alpha, eos in ((0, 0.6, 1), (1, -1.0, 2))
    ]

    def search(model, prompt, alpha, eos):
        beam_search(model, prompt, beam_size=2, alpha=alpha, max_length=5, eos_id=eos)

    search(*calls[0])
    with jax.log_compiles():
        search(*calls[1])
        assert "Compiling" not in caplog.text


def test_a_poisoned_row_leaves_the_others_alone_under_jit():
    model, prompt = toys.Recurrent(V, poison=3), prompts(5, 2, 3)
    valid = np.array([[True, True, True], [False, False, True]])

    def search(prompt, valid):
        return beam_search(
            model,
            prompt,
            beam_size=2,
            alpha=0.0,
            max_length=2,
            eos_id=EOS,
            valid=valid,
        )

    with pytest.raises(FloatingPointError, match=r"logits: the model gave row 0 NaN"):
        search(prompt, valid)
    tokens, scores = jax.jit(search)(prompt, valid)
    assert np.isnan(scores[0]).all()
    assert np.all(np.asarray(tokens[0]) == -1)
    whole = toys.Recurrent(V)
    alone = beam_search(
        whole, prompt[1:, 2:], beam_size=2, alpha=0.0, max_length=2, eos_id=EOS
    )
    np.testing.assert_allclose(scores[1], alone[1][0], rtol=1e-5)
    np.testing.assert_array_equal(tokens[1], alone[0][0])


def test_scores_are_in_at_least_float32(x64):
    for dtype, want in ((jnp.bfloat16, jnp.float32), (jnp.float64, jnp.float64)):
        model = decoder(dtype=dtype)
        tokens, scores = beam_search(
            model, ids(0, 2, 3), beam_size=2, alpha=1.0, max_length=3, eos_id=5
        )
        assert scores.dtype == want
        assert tokens.dtype == jnp.int32
