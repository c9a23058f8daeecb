"""Greedy and sampled text: against full passes, and against the distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from attn_jax.decoding import greedy, sample
from tests.decoding import toys
from tests.models.cases import LONGEST, B, decoder, ids, placed

LOGITS = np.array([0.1, 1.3, -0.4, 0.8, -30.0, 1.3])
MANY = 4000


def argmax_of_full_passes(model, prompt, n):
    """n tokens, for each of which the whole text is read again."""
    forward, text = jax.jit(model), list(prompt)
    for _ in range(n):
        whole = np.zeros((1, LONGEST), np.int32)
        whole[0, : len(text)] = text
        text.append(int(np.argmax(forward(whole)[0, len(text) - 1])))
    return text[len(prompt) :]


@pytest.mark.parametrize("name", ["softmax", "linear", "factorized_dense"])
def test_greedy_equals_the_argmax_of_full_passes(name):
    """Contract 118: with a cache or without, the mask is the same."""
    model, prompts, n = decoder(name), ids(1, B, 4), 6
    want = [argmax_of_full_passes(model, prompt, n) for prompt in prompts]
    np.testing.assert_array_equal(greedy(model, prompts, max_length=n), want)

    lengths = [4, 1, 2]
    cut = [row[:t] for row, t in zip(prompts, lengths, strict=True)]
    want = [argmax_of_full_passes(model, prompt, n) for prompt in cut]
    for places in (
        [np.arange(t) for t in lengths],
        [np.arange(5 - t, 5) for t in lengths],
        [[0, 1, 3, 4], [2], [1, 3]],
    ):
        padded, valid = placed(cut, places, 5)
        got = greedy(model, padded, max_length=n, valid=valid)
        np.testing.assert_array_equal(got, want)


def test_a_row_is_0_after_eos_id_and_the_others_go_on():
    model, prompts, n = decoder(), ids(2, B, 3), 7
    free = np.asarray(greedy(model, prompts, max_length=n))
    eos = int(free[0, 2])
    tokens = np.asarray(greedy(model, prompts, max_length=n, eos_id=eos))
    for row, whole in zip(tokens, free, strict=True):
        end = int(np.argmax(whole == eos)) + 1 if eos in whole else n
        np.testing.assert_array_equal(row[:end], whole[:end])
        assert not row[end:].any()


def test_bos_id_begins_every_row_of_a_decoder():
    """Padded left or right; a row may then have no other token."""
    model, prompts = decoder(), ids(3, B, 3)
    after = np.insert(prompts, 0, 7, axis=1)
    want = greedy(model, after, max_length=4)
    np.testing.assert_array_equal(greedy(model, prompts, max_length=4, bos_id=7), want)
    padded, valid = placed([prompts[0], [], prompts[2]], [[1, 2, 3], [], [0, 1, 2]], 4)
    tokens = greedy(model, padded, max_length=4, bos_id=7, valid=valid)
    np.testing.assert_array_equal(tokens[::2], want[::2])
    empty = greedy(model, np.zeros((1, 0), int), max_length=4, bos_id=7)
    np.testing.assert_array_equal(tokens[1:2], empty)
    np.testing.assert_array_equal(
        empty, greedy(model, np.full((1, 1), 7), max_length=4)
    )


def test_a_prompt_and_its_text_may_fill_the_model():
    model, prompts = decoder("dense"), ids(4, B, 5)
    n = LONGEST - 5
    want = [argmax_of_full_passes(model, prompt, n) for prompt in prompts]
    np.testing.assert_array_equal(greedy(model, prompts, max_length=n), want)
    wide, valid = placed(prompts, [np.arange(4, 9)] * B, 9)
    got = greedy(model, wide, max_length=n, valid=valid)
    np.testing.assert_array_equal(got, want)


def test_a_source_is_translated_from_bos_id():
    model, source = toys.Translator(4, seed=4), ids(4, 3, 5) % 4
    tokens = greedy(model, source, max_length=6, bos_id=3)
    for row, text in zip(source, np.asarray(tokens), strict=True):
        after = toys.log_probabilities(model, [*row, 3])
        assert [int(after(text[:i]).argmax()) for i in range(6)] == text.tolist()


def test_equal_logits_give_the_lowest_id():
    tokens = greedy(toys.Fixed(LOGITS), np.zeros((1, 1), int), max_length=2)
    assert tokens.tolist() == [[1, 1]]


def draws(logits=LOGITS, **options):
    prompt = np.zeros((MANY, 1), int)
    options = {"rng": jax.random.key(0), "max_length": 2} | options
    return np.asarray(sample(toys.Fixed(logits), prompt, **options))


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, [0, 1, 2, 3, 5]),
        ({"temperature": 0.5}, [0, 1, 2, 3, 5]),
        ({"temperature": 3.0}, [0, 1, 2, 3, 4, 5]),
        ({"top_k": 2}, [1, 5]),
        ({"top_k": 3}, [1, 3, 5]),
        ({"top_k": 1}, [1]),
        ({"top_k": 99}, [0, 1, 2, 3, 5]),
        ({"top_p": 0.3}, [1]),
        ({"top_p": 0.6}, [1, 5]),
        ({"top_p": 0.7}, [1, 3, 5]),
        ({"top_p": 1.0}, [0, 1, 2, 3, 5]),
        ({"top_p": 1e-6}, [1]),
        ({"top_k": 3, "top_p": 0.75}, [1, 5]),
        ({"temperature": 3.0, "top_p": 0.75, "top_k": 5}, [0, 1, 3, 5]),
    ],
    ids=str,
)
def test_draws_follow_the_distribution_of_the_tokens_kept(options, kept):
    """Both steps; with 4000 rows a chi-square test sees an error of 2 in a hundred."""
    weights = np.exp(LOGITS / options.get("temperature", 1.0))
    want = np.zeros(len(LOGITS))
    want[kept] = weights[kept] / weights[kept].sum()
    for tokens in draws(**options).T:
        counts = np.bincount(tokens, minlength=len(LOGITS))
        assert not counts[want == 0].sum()
        some = want * MANY > 1
        if some.sum() > 1:
            given = counts[some] * (want[some].sum() * MANY / counts[some].sum())
            test = scipy.stats.chisquare(given, want[some] * MANY)
            assert test.pvalue > 1e-3, (counts, want * MANY)


def test_a_draw_depends_on_key_row_and_step_alone():
    model, prompts = toys.Recurrent(6), ids(5, 8, 3) % 6
    one, again, other = (
        np.asarray(sample(model, prompts, rng=jax.random.key(seed), max_length=9))
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert np.any(one != other)
    few = sample(model, prompts[:3], rng=jax.random.key(0), max_length=9)
    np.testing.assert_array_equal(few, one[:3])
    same = sample(
        model, np.repeat(prompts[:1], 8, 0), rng=jax.random.key(0), max_length=9
    )
    assert len(np.unique(same, axis=0)) > 4


def test_sampling_reduces_to_greedy():
    model, prompts = toys.Recurrent(6), ids(5, 8, 3) % 6
    want = greedy(model, prompts, max_length=9, eos_id=2)
    cold = ({"temperature": t} for t in (1e-4, 1e-38, 1e-300))
    hot = {"top_k": 1, "temperature": 1e38}
    for limit in ({"top_k": 1}, {"top_p": 1e-9}, hot, *cold):
        tokens = sample(
            model, prompts, rng=jax.random.key(0), max_length=9, eos_id=2, **limit
        )
        np.testing.assert_array_equal(tokens, want, err_msg=str(limit))


def test_a_second_call_compiles_nothing(caplog):
    """Other tokens, parameters, keys, temperatures, and ids."""

    def write(seed):
        model, prompts = toys.Recurrent(6, seed=seed), ids(seed, 3, 4) % 6
        options = {"max_length": 5, "eos_id": 1 + seed}
        greedy(model, prompts, **options)
        rng, p = jax.random.key(seed), 0.9 - seed / 4
        sample(model, prompts, rng=rng, temperature=p, top_p=p, top_k=4, **options)

    write(0)
    with jax.log_compiles():
        write(1)
        assert "Compiling" not in caplog.text


def test_logits_without_a_greatest_one_are_never_chosen_from():
    """They raise; under jit the row is -1 from there on."""
    prompt = np.zeros((2, 1), int)
    for bad in (np.nan, np.inf):
        model = toys.Fixed([[0.0, 1.0, 0.0], [0.0, bad, 0.0]])
        with pytest.raises(FloatingPointError, match=r"row 0, 1 NaN, .* look for NaN"):
            greedy(model, prompt, max_length=3)
        with pytest.raises(FloatingPointError, match="row 0, 1"):
            sample(model, prompt, max_length=3, rng=jax.random.key(0), top_k=2)
        tokens = jax.jit(lambda prompt, m=model: greedy(m, prompt, max_length=3))(
            prompt
        )
        assert tokens.tolist() == [[1, -1, 0]] * 2
    with pytest.raises(FloatingPointError, match="-inf for all"):
        greedy(toys.Fixed([-np.inf] * 3), prompt, max_length=1)


def test_a_row_without_tokens_is_no_text_under_jit():
    """Where its mask can't be read, it can't raise."""
    model = toys.Recurrent(6)
    run = jax.jit(lambda p, v: greedy(model, p, max_length=2, valid=v))
    tokens = run(jnp.zeros((2, 2), int), jnp.array([[False, True], [False, False]]))
    assert tokens[1].tolist() == [-1, 0]
    assert np.all(tokens[0] >= 0)
