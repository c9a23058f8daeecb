"""Where tokens stand, said in six ways, in full passes and in decoding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import oracle
from tests.models.cases import (
    F32,
    LONGEST,
    SHORT,
    B,
    Model,
    T,
    config,
    decoder,
    ids,
    placed,
)
from tests.nn.cases import numbers
from tests.ops.oracles import assert_close

KINDS = ("rotary", "sinusoidal", "learned", "concatenated", "alibi", "none")
TABLES = ("learned", "sinusoidal", "concatenated")
STEPS = 32
CAUSAL = np.tril(np.ones((T, T), bool))


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_decoding_equals_the_full_pass(kind):
    """Contract 61, 62: step t equals row t, and picks the same token, 32 times."""
    model = decoder(seed=5, positions=kind, max_length=STEPS + 1, tie_embeddings=False)

    def generate(first):
        def step(carry, _):
            token, cache = carry
            logits, cache = model.decode(token, cache)
            token = jnp.argmax(logits, axis=-1).astype(token.dtype)
            return (token, cache), (token[:, 0], logits[:, 0])

        cache = model.init_cache(B, STEPS)
        _, (tokens, logits) = jax.lax.scan(step, (first, cache), length=STEPS)
        tokens, logits = (jnp.moveaxis(x, 0, 1) for x in (tokens, logits))
        read = jnp.concatenate([first, tokens[:, :-1]], axis=1)
        return tokens, logits, model(read)

    tokens, logits, full = jax.jit(generate)(ids(0, B, 1))
    assert_close(logits, full, F32, "logits")
    np.testing.assert_array_equal(np.argmax(full, axis=-1), tokens)
    assert len(np.unique(tokens)) > 2


@pytest.mark.parametrize("kind", KINDS[1:])
def test_padding_and_packing_do_not_move_positions(kind):
    """Padding on any side, packed rows, ragged prompts; rotary: in test_contract."""
    one, rows = Model(positions=kind), ids(1, B, SHORT)
    want = np.asarray(one.plain(rows))
    tokens, real = placed(rows, [[0, 1, 2, 3], [3, 4, 5, 6], [0, 2, 4, 5]])
    logits = np.asarray(one.full(tokens, real))
    assert_close(logits[real].reshape(want.shape), want, F32, "padding")

    packed = np.concatenate([ids(2, B, T - SHORT), rows], axis=1)
    segments = np.repeat([[4, 9]], [T - SHORT, SHORT], axis=1).astype(np.int32)
    logits = one.full(packed, segments=np.repeat(segments, B, axis=0))
    assert_close(logits[:, T - SHORT :], want, F32, "packing")

    prompt, valid = placed(rows[:, :1], [[0], [2], [1]], 3)
    first, cache = one.decode_ragged(prompt, one.init_cache(), valid)
    last, _ = one.decode_ragged(rows[:, 1:], cache, np.ones((B, 3), bool))
    assert_close(np.asarray(first)[valid], want[:, 0], F32, "a ragged prompt")
    assert_close(last, want[:, 1:], F32, "tokens after a ragged prompt")


@pytest.mark.parametrize("kind", TABLES)
def test_explicit_positions_are_looked_up(kind, x64):
    """Contract 70: the same tokens elsewhere are something else."""
    model = decoder(
        positions=kind, dtype=jnp.float64, param_dtype=jnp.float64, max_length=LONGEST
    )
    tokens = ids(3, B, T)
    positions = np.stack([np.arange(T), np.arange(T) + 4, np.arange(T)[::-1]])
    run = jax.jit(lambda tokens, p: model(tokens, positions=p))
    params = numbers(model)
    want = oracle.decoder(params, tokens, model.config, CAUSAL, positions)
    assert_close(run(tokens, positions), want, 1e-11)
    counted = oracle.decoder(params, tokens, model.config, CAUSAL)
    assert_close(jax.jit(model)(tokens), counted, 1e-11)
    for row in (1, 2):
        distance = np.linalg.norm(want[row] - counted[row])
        assert distance > 1e-2 * np.linalg.norm(counted[row])


@pytest.mark.parametrize("kind", ["rotary", "alibi"])
def test_relative_positions_may_start_anywhere(kind):
    model, tokens = decoder(positions=kind), ids(4, B, T)
    run = jax.jit(lambda tokens, p: model(tokens, positions=p))
    counted = np.broadcast_to(np.arange(T), (B, T))
    want = jax.jit(model)(tokens)
    assert_close(run(tokens, counted), want, F32, "counted from 0")
    assert_close(run(tokens, counted + 4), want, F32, "counted from 4")
    far = run(tokens, 2 * counted)
    assert np.linalg.norm(far - want) > 1e-2 * np.linalg.norm(want)


def test_without_positions_only_the_order_under_the_mask_counts():
    """The last token's logits are those of any order of the tokens before it."""
    model, tokens = decoder(positions="none"), ids(5, 1, T)
    one_layer = decoder(positions="none", num_layers=1)
    shuffled = tokens.copy()
    shuffled[:, :-1] = tokens[:, -2::-1]
    run = jax.jit(one_layer)
    assert_close(run(shuffled)[:, -1], run(tokens)[:, -1], F32)
    run = jax.jit(model)
    gap = np.linalg.norm(run(shuffled)[:, -1] - run(tokens)[:, -1])
    assert gap > 1e-3, "two layers count, through what the first one saw"


@pytest.mark.parametrize("kind", TABLES)
def test_a_position_past_the_table_is_not_its_last_row(kind, plain_errors):
    model, tokens = decoder(positions=kind), ids(6, B, T)
    positions = np.arange(T) + np.array([[0], [5], [-1]])
    with pytest.raises(
        ValueError,
        match=r"positions: got numbers from -1 to 11; expected 0 to 10 \(max_length",
    ):
        model(jnp.asarray(tokens), positions=jnp.asarray(positions))
    run = jax.jit(lambda tokens, p: model(tokens, positions=p))
    wrong = np.isnan(run(tokens, positions)).any(axis=(1, 2))
    assert wrong.tolist() == [False, True, True]


def test_table_of_learned_positions_has_a_row_a_position():
    """Contract 72."""
    assert config(positions="learned").max_length == LONGEST
    model = decoder(positions="learned")
    assert model.embedding.positions.shape == (LONGEST, model.config.d_model)


def test_concatenated_positions_leave_tokens_half_of_the_width():
    """The first half is the token's, the second a row of sines and cosines."""
    model, tokens = decoder(positions="concatenated"), ids(7, B, T)
    half = model.config.d_model // 2
    assert model.embedding.embedding.shape == (model.config.vocab_size, half)
    x = np.asarray(model.embedding(jnp.asarray(tokens), None))
    assert x.shape == (B, T, model.config.d_model)
    np.testing.assert_array_equal(x[..., :half], model.embedding.embedding[...][tokens])
    places = oracle.sinusoidal(np.arange(T)[None], half)
    assert_close(x[..., half:], np.broadcast_to(places, (B, T, half)), 1e-6)


@pytest.mark.parametrize("kind", ["rotary", "learned", "alibi"])
def test_decoding_in_64_bit_mode(kind, x64):
    """Ids, flags and counts of 64 bits beside a cache that keeps its dtypes."""
    model = decoder(positions=kind)
    tokens = ids(3, B, T).astype(np.int64)
    valid = np.array([[False, True, True], [True, True, False], [True, True, True]])
    first = np.full((B, 3), -1)
    for row, real in enumerate(valid):
        first[row, real] = tokens[row, : real.sum()]

    def generate(tokens, first, valid):
        empty = model.init_cache(B, T)
        head, cache = model.decode(first, empty, valid=valid)
        tail, last = model.decode(tokens[:, 3:5], cache)
        return head, tail, empty, last, model(tokens)

    head, tail, empty, last, full = jax.jit(generate)(tokens, first, valid)
    for row, real in enumerate(valid):
        assert_close(head[row, real], full[row, : real.sum()], F32, f"prompt {row}")
    assert_close(tail[2], full[2, 3:5], F32, "after a whole prompt")
    for before, after in zip(
        jax.tree.leaves(empty), jax.tree.leaves(last), strict=True
    ):
        assert before.dtype == after.dtype
    assert last.length.tolist() == [4, 4, 5]
