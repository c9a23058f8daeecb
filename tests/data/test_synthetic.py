"""The copy and the recall task against decoders written from their definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_jax.data import Batch, copy_batch, recall_batch

COPY = [[6, 5, 7, 0, 6, 5, 7, 0, 0, 0, 0, 0], [3, 10, 7, 0, 3, 10, 7, 0, 0, 0, 0, 0]]
RECALL = [
    [5, 14, 9, 15, 9, 0, 5, 0, 0, 0, 0, 0],
    [6, 18, 4, 19, 4, 0, 0, 0, 0, 0, 6, 0],
]
SIZES = {"copy": (copy_batch, 23, 5), "recall": (recall_batch, 31, 4)}


def many(task, steps=40, **arguments) -> Batch:
    batches = [task(seed=0, step=k, batch_size=64, **arguments) for k in range(steps)]
    return Batch(*(np.concatenate(arrays) for arrays in zip(*batches, strict=True)))


def copy_row(row: list[int]) -> tuple[list[int], list[float], int]:
    """Targets, weights and n of a copy row, from its tokens by plain search."""
    n = row.index(0)
    w = row[:n]
    assert row == w + [0] + w + [0] * (len(row) - 2 * n - 1)
    targets = row[1:] + [0]
    weights = [0.0] * len(row)
    weights[n - 1] = 1.0  # the separator
    for i in range(n):
        assert targets[n + i] == w[i]
        weights[n + i] = 1.0  # symbol i of the copy
    return targets, weights, n


@pytest.mark.parametrize("length", [5, 6, 7, 8, 9, 30, 128])
def test_copy_equals_its_definition(length):
    batch = many(copy_batch, steps=3, length=length, num_symbols=7)
    lengths = set()
    for row, targets, weights in zip(*batch, strict=True):
        expected_targets, expected_weights, n = copy_row(row.tolist())
        assert targets.tolist() == expected_targets
        assert weights.tolist() == expected_weights
        lengths.add(n)
    assert min(lengths) == length // 4
    assert max(lengths) == (length - 1) // 2 - 1


def test_copy_of_the_paper():
    batch = many(copy_batch)
    assert [array.shape for array in batch] == [(2560, 128)] * 3
    assert [array.dtype for array in batch] == [np.int32, np.int32, np.float32]
    n = batch.weights.sum(1) - 1
    assert (n.min(), n.max()) == (32, 62)
    counts = np.bincount(n.astype(int), minlength=63)[32:]
    assert np.all(np.abs(counts - 2560 / 31) < 5 * np.sqrt(2560 / 31))


def test_copy_symbols_are_balanced_and_tell_nothing_of_the_next():
    batch = many(copy_batch)
    first = batch.tokens[:, :32]  # every n is at least 32
    share = np.bincount(first.ravel(), minlength=11)[1:] / first.size
    assert np.all(np.abs(share - 0.1) < 0.006)
    for gap in (1, 2, 7):
        repeats = np.mean(first[:, gap:] == first[:, :-gap])
        assert abs(repeats - 0.1) < 0.006


def recall_answers(row: list[int], p: int, vocab_size: int) -> dict[int, int]:
    """Position -> answer of a recall row, by reading the pairs and searching."""
    half = vocab_size // 2
    pairs = {row[2 * i]: row[2 * i + 1] for i in range(p)}
    assert len(pairs) == len(set(pairs.values())) == p
    assert all(1 <= key < half <= value < vocab_size for key, value in pairs.items())
    return {i: pairs[row[i]] for i in range(2 * p, len(row)) if row[i] in pairs}


@pytest.mark.parametrize("random_filler", [False, True])
@pytest.mark.parametrize(
    ("length", "p", "vocab_size"), [(3, 1, 4), (15, 4, 10), (16, 4, 11), (64, 8, 8192)]
)
def test_recall_equals_a_search_for_the_key(length, p, vocab_size, random_filler):
    sizes = {"length": length, "num_pairs": p, "vocab_size": vocab_size}
    batch = many(recall_batch, steps=3, **sizes, random_filler=random_filler)
    assert batch.tokens.shape == (192, length)
    for row, targets, weights in zip(*batch, strict=True):
        answers = recall_answers(row.tolist(), p, vocab_size)
        assert len(answers) == p
        assert all((i - 2 * p) % 2 == 0 for i in answers)
        assert targets.tolist() == [answers.get(i, 0) for i in range(length)]
        assert weights.tolist() == [float(i in answers) for i in range(length)]
        rest = [row[i] for i in range(2 * p, length) if i not in answers]
        if random_filler:
            assert all(vocab_size // 2 <= token < vocab_size for token in rest)
        else:
            assert not any(rest)


def test_recall_answers_are_balanced():
    batch = many(recall_batch, num_pairs=8, vocab_size=40)
    asked = batch.weights > 0
    share = np.bincount(batch.targets[asked], minlength=40)[20:] * 20 / asked.sum()
    assert np.all(np.abs(share - 1) < 0.12)
    keys = np.bincount(batch.tokens[asked], minlength=20)[1:] * 19 / asked.sum()
    assert np.all(np.abs(keys - 1) < 0.12)


@pytest.mark.parametrize("power", [0.01, 1.0])
def test_recall_cannot_be_guessed_from_the_order(power):
    """The i-th query asks for the j-th pair with probability 1/p, whatever i and j."""
    p = 4
    batch = many(recall_batch, num_pairs=p, power=power, vocab_size=64)
    values = batch.tokens[:, 1 : 2 * p : 2]
    answers = batch.targets[batch.weights > 0].reshape(-1, p)
    hits = (answers[:, :, None] == values[:, None, :]).mean(0)
    assert np.all(np.abs(hits - 1 / p) < 0.04)


def test_recall_filler_tells_nothing_of_the_answer():
    batch = many(recall_batch, num_pairs=4, vocab_size=64, random_filler=True)
    rows, places = np.nonzero(batch.weights[:, :-1])
    following = batch.tokens[rows, places + 1]
    hits = np.mean(following == batch.targets[rows, places])
    assert abs(hits - 1 / 32) < 0.008


def test_recall_queries_follow_the_power_law():
    """With one pair, slot i is asked with probability ∝ (i + 1)^(power - 1)."""
    for power in (0.25, 1.0):
        batch = many(recall_batch, length=10, num_pairs=1, vocab_size=4, power=power)
        counts = batch.weights.sum(0)[2::2]
        law = np.arange(1, 5) ** (power - 1.0)
        expected = law / law.sum()
        assert np.all(np.abs(counts / counts.sum() - expected) < 0.03)


@pytest.mark.parametrize("name", SIZES)
def test_examples_are_pure_in_seed_and_step(name):
    task, length, size = SIZES[name]
    arguments = {"batch_size": size, "length": length}
    forward = [task(seed=5, step=k, **arguments) for k in range(6)]
    backward = [task(seed=5, step=k, **arguments) for k in range(5, -1, -1)][::-1]
    for one, other in zip(forward, backward, strict=True):
        assert all(map(np.array_equal, one, other))
    rows = {tuple(row) for batch in forward for row in batch.tokens.tolist()}
    assert len(rows) == 6 * size
    other_seed = task(seed=6, step=0, **arguments)
    assert not rows & {tuple(row) for row in other_seed.tokens.tolist()}


@pytest.mark.parametrize("name", SIZES)
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**63))
def test_rows_are_those_of_the_global_batch(name, a, b, step):
    task, length, _ = SIZES[name]
    arguments = {"seed": 1, "step": step, "batch_size": 9, "length": length}
    rows = slice(min(a, b), max(a, b))
    part, whole = task(**arguments, rows=rows), task(**arguments)
    for array, wanted in zip(part, whole, strict=True):
        assert np.array_equal(array, wanted[rows])


def test_the_streams_are_pinned():
    """A stored run resumes only if these numbers never change."""
    assert copy_batch(seed=0, step=3, batch_size=2, length=12).tokens.tolist() == COPY
    recall = recall_batch(
        seed=0, step=3, batch_size=2, length=12, num_pairs=2, vocab_size=20
    )
    assert recall.tokens.tolist() == RECALL


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 4}, "length: got 4; expected an integer of at least 5; pass 5"),
        ({"num_symbols": 0}, "num_symbols: got 0; expected .* at least 1; pass 1"),
        ({"batch_size": 0}, "batch_size: got 0; expected .* at least 1; pass 1"),
        ({"step": -1}, "step: got -1; expected .* at least 0; pass 0"),
        ({"rows": slice(0, 3)}, r"rows: got slice\(0, 3, None\); .* the 2 rows"),
    ],
)
def test_bad_arguments_of_copy(changes, message):
    with pytest.raises(ValueError, match=message):
        copy_batch(**({"seed": 0, "step": 0, "batch_size": 2} | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 30}, r"length: got 30; expected .* = 31, for num_pairs 8; use a"),
        ({"vocab_size": 17}, r"vocab_size: got 17; expected .* = 18, for .* 8; use m"),
        ({"num_pairs": 0}, "num_pairs: got 0; expected .* at least 1; pass 1"),
        ({"power": 0.0}, r"power: got 0\.0; expected a number in \(0, 1\]; 1 spreads"),
        ({"power": 1.5}, r"power: got 1\.5; expected"),
        ({"batch_size": 0}, "batch_size: got 0; expected .* at least 1; pass 1"),
    ],
)
def test_bad_arguments_of_recall(changes, message):
    with pytest.raises(ValueError, match=message):
        recall_batch(**({"seed": 0, "step": 0, "batch_size": 2} | changes))
