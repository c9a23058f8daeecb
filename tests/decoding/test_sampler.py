"""Tokens drawn from outputs that are no logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.decoding import beam_search, greedy, sample
from tests.decoding import toys
from tests.models.cases import VOCAB, B, decoder, ids

LOGITS = np.array([0.1, 1.3, -0.4, 0.8, -30.0, 0.0])
RNG = jax.random.key(3)


def softmax(outputs, rng):
    return jax.random.categorical(rng, outputs)


def sum_of_outputs(outputs, rng):
    """A token that tells which outputs it was made from; the key has no part in it."""
    return jnp.floor(jnp.abs(jnp.sum(outputs)) * 100).astype(jnp.int32) % VOCAB


def test_a_softmax_draws_what_is_drawn_without_a_sampler():
    """Keys are those of the row and the step."""
    model, prompt = toys.Fixed(LOGITS), np.zeros((500, 1), int)
    options = {"rng": RNG, "max_length": 3}
    want = np.asarray(sample(model, prompt, **options))
    got = sample(model, prompt, sampler=softmax, **options)
    np.testing.assert_array_equal(got, want)
    assert set(np.unique(want)) == {0, 1, 2, 3, 5}


def test_a_sampler_gets_the_outputs_of_its_row_and_step():
    model = decoder(tie_embeddings=False, output_size=6)
    prompts, forward = ids(1, B, 4), jax.jit(model)
    got = sample(model, prompts, rng=RNG, max_length=4, sampler=sum_of_outputs)
    for prompt, tokens in zip(prompts, np.asarray(got), strict=True):
        text = [*prompt]
        for token in tokens:
            whole = np.zeros((1, 8), np.int32)
            whole[0, : len(text)] = text
            outputs = forward(whole)[0, len(text) - 1]
            assert outputs.shape == (6,)
            assert token == sum_of_outputs(outputs, None)
            text.append(token)


@pytest.mark.parametrize(
    "write",
    [
        lambda *arguments: greedy(*arguments, max_length=3),
        lambda *arguments: sample(*arguments, max_length=3, rng=RNG),
        lambda *arguments: beam_search(
            *arguments, max_length=3, beam_size=2, alpha=0.6, eos_id=1
        ),
    ],
    ids=["greedy", "sample", "beam_search"],
)
def test_outputs_that_are_no_logits_are_refused_without_a_sampler(write):
    model = decoder(tie_embeddings=False, output_size=6)
    message = r"model: got one that gives 6 numbers .* logits of its 13 tokens"
    with pytest.raises(ValueError, match=message):
        write(model, ids(1, B, 4))


@pytest.mark.parametrize("token", [6, -1])
def test_what_is_drawn_has_to_be_a_token(token):
    def draw(outputs, rng):
        return jnp.int32(token)

    message = f"sampler: gave token {token}; expected 0 to 5"
    with pytest.raises(ValueError, match=message):
        sample(
            toys.Fixed(LOGITS),
            np.zeros((1, 1), int),
            rng=RNG,
            max_length=2,
            sampler=draw,
        )


def test_outputs_that_are_not_finite_raise():
    model = toys.Recurrent(6, poison=3)
    with pytest.raises(FloatingPointError, match="row 0, 1 NaN"):
        sample(model, np.zeros((2, 1), int), rng=RNG, max_length=5, sampler=softmax)


def test_a_sampler_is_compiled_once():
    calls = []

    def draw(outputs, rng):
        calls.append(outputs)
        return softmax(outputs, rng)

    model, prompt = toys.Fixed(LOGITS), np.zeros((2, 1), int)
    for seed in range(3):
        sample(model, prompt, rng=jax.random.key(seed), max_length=2, sampler=draw)
    assert len(calls) == 1
