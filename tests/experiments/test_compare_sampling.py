"""Samples of the comparison, with and without a cache."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.compare.sampling import (
    make_writer,
    with_cache,
    with_full_passes,
    write_text,
)
from tests.models.cases import LONGEST, VOCAB, decoder, ids


@pytest.mark.parametrize("follow", [with_cache, with_full_passes])
def test_bytes_follow_from_those_before_them(follow):
    model, prompt = decoder(), ids(0, 4)
    given = jnp.zeros(LONGEST, jnp.int32).at[:4].set(prompt)

    def draw(logits, i):
        return jnp.argmax(logits).astype(jnp.int32)

    tokens = np.asarray(jax.jit(lambda x: follow(model, x, 4, draw))(given))
    np.testing.assert_array_equal(tokens[:4], prompt)
    logits = model(jnp.asarray(tokens)[None])[0]
    np.testing.assert_array_equal(tokens[4:], logits.argmax(-1)[3:-1])


@pytest.mark.parametrize("name", ["linear", "lsh"])
def test_every_mechanism_writes(name):
    graph, params = nnx.split(decoder(name))
    write = make_writer(graph, LONGEST, 1.0)
    text = write_text(write, params, ids(0, 4), num_windows=2)
    assert text.shape == (2 * (LONGEST - 4),)
    assert len(set(text.tolist())) > 1
    assert 0 <= text.min() <= text.max() < VOCAB
