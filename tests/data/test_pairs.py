"""Batches of pairs: each once an epoch, within the budget, in a few shapes, pure."""

import hashlib
from collections import Counter

import numpy as np
import pytest

from attn_jax.data import PairBatches, bucket_lengths, pair_batches

BOS, EOS = 1, 2
MAX_TOKENS, MAX_LENGTH = 256, 40


def sentences(count: int, seed: int = 0, longest: int = 45) -> list[list[int]]:
    """Sentences of 0 to `longest` tokens, most of them short."""
    random = np.random.RandomState(seed)
    lengths = (longest * random.random_sample(count) ** 2).astype(int)
    return [random.randint(3, 1000, n).tolist() for n in lengths]


SOURCE, TARGET = sentences(300), sentences(300, seed=1)
KEPT = [
    i
    for i, (s, t) in enumerate(zip(SOURCE, TARGET, strict=True))
    if max(len(s), len(t)) + 1 <= MAX_LENGTH
]


def make(source=SOURCE, target=TARGET, **options) -> PairBatches:
    options = {"max_tokens": MAX_TOKENS, "max_length": MAX_LENGTH} | options
    return pair_batches(source, target, bos_id=BOS, eos_id=EOS, **options)


@pytest.fixture(scope="module")
def batches() -> PairBatches:
    return make()


def epoch(batches: PairBatches, number: int, seed: int = 0):
    size = batches.batches_per_epoch
    return [
        batches.batch(step, seed=seed)
        for step in range(number * size, (number + 1) * size)
    ]


def indices(found) -> list[int]:
    return [int(i) for batch in found for i in batch.indices if i >= 0]


def test_a_row_by_hand():
    batches = make([[5, 6, 7]], [[8]], max_tokens=20, max_length=5)
    batch = batches.batch(0, seed=0)
    assert batches.shapes == ((2, 5),)
    assert batch.source.tolist() == [[5, 6, 7, EOS, 0], [0] * 5]
    assert batch.source_real.tolist() == [[True] * 4 + [False], [False] * 5]
    assert batch.target_in.tolist() == [[BOS, 8, 0, 0, 0], [0] * 5]
    assert batch.labels.tolist() == [[8, EOS, 0, 0, 0], [0] * 5]
    assert batch.weights.tolist() == [[1, 1, 0, 0, 0], [0] * 5]
    assert batch.indices.tolist() == [0, -1]
    assert batches.fill == (4 + 2) / 20
    kinds = [array.dtype for array in batch]
    assert kinds == [np.int32, np.bool_, np.int32, np.int32, np.float32, np.int32]


def test_every_pair_once_an_epoch_and_each_epoch_in_another_order(batches):
    orders = [indices(epoch(batches, number)) for number in (0, 1, 5)]
    assert len(KEPT) < len(SOURCE)
    for order in orders:
        assert sorted(order) == KEPT
    assert orders[0] != orders[1] != orders[2]
    assert indices(epoch(batches, 0, seed=1)) != orders[0]


def test_epochs_put_other_pairs_together(batches):
    """Not the same batches in another order: a batch is drawn anew."""
    together = [
        {frozenset(b.indices.tolist()) for b in epoch(batches, n)} for n in (0, 1)
    ]
    assert len(together[0] & together[1]) < 0.2 * len(together[0])


def test_batches_of_an_epoch_are_mixed(batches):
    """Long and short ones alternate, so that no stretch of an epoch has one length."""
    lengths = [batch.source.shape[1] for batch in epoch(batches, 0)]
    assert lengths != sorted(lengths)
    assert lengths != sorted(lengths, reverse=True)


def test_rows_hold_their_pairs(batches):
    for batch in (*epoch(batches, 0), *batches.in_order()):
        for row, i in enumerate(batch.indices):
            length = batch.source.shape[1]
            source = [*SOURCE[i], EOS] if i >= 0 else []
            target = [*TARGET[i], EOS] if i >= 0 else []
            read = [BOS, *TARGET[i]] if i >= 0 else []
            pad = [0] * length
            assert batch.source[row].tolist() == (source + pad)[:length]
            assert batch.labels[row].tolist() == (target + pad)[:length]
            assert batch.target_in[row].tolist() == (read + pad)[:length]
            assert batch.source_real[row].sum() == len(source)
            assert batch.source_real[row][: len(source)].all()
            assert batch.weights[row].tolist() == [
                float(place < len(target)) for place in range(length)
            ]


def test_budget_and_shapes(batches):
    shapes = Counter(batch.source.shape for batch in epoch(batches, 0))
    assert set(shapes) == set(batches.shapes) == {(8, 16), (5, 24), (3, 40)}
    assert all(2 * rows * length <= MAX_TOKENS for rows, length in shapes)
    # Nothing is in a longer bucket than it needs.
    for batch in epoch(batches, 0):
        shorter = [n for _, n in batches.shapes if n < batch.source.shape[1]]
        for i in batch.indices[batch.indices >= 0]:
            longest = max(len(SOURCE[i]), len(TARGET[i])) + 1
            assert max(shorter, default=0) < longest <= batch.source.shape[1]


def test_empty_rows_are_only_what_the_last_batch_of_a_bucket_lacks(batches):
    empty = Counter()
    for batch in epoch(batches, 0):
        empty[batch.source.shape] += int((batch.indices < 0).sum())
    assert all(count < rows for (rows, _), count in empty.items())


def test_a_batch_is_a_pure_function_of_seed_and_step(batches):
    steps = [0, 3, batches.batches_per_epoch + 2, 10**9]
    wanted = [batches.batch(step, seed=7) for step in steps]
    for step, one in reversed(list(zip(steps, wanted, strict=True))):
        for again in (batches.batch(step, seed=7), make().batch(step, seed=7)):
            for a, b in zip(one, again, strict=True):
                np.testing.assert_array_equal(a, b)


def test_resuming_in_the_middle_of_an_epoch(batches):
    middle = batches.batches_per_epoch // 2
    whole, resumed = epoch(batches, 1), make()
    for step in range(middle, batches.batches_per_epoch):
        again = resumed.batch(batches.batches_per_epoch + step, seed=0)
        for a, b in zip(whole[step], again, strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_is_handed_out_may_be_written_to(batches):
    before = batches.batch(2, seed=0)
    kept = before.source.copy()
    before.source[:] = 9
    before.indices[:] = 9
    np.testing.assert_array_equal(batches.batch(2, seed=0).source, kept)


def test_the_order_stays_from_version_to_version(batches):
    """A change would break resuming."""
    digest = hashlib.sha256()
    for step in (0, 1, 1000):
        for array in batches.batch(step, seed=3):
            digest.update(array.tobytes())
    assert digest.hexdigest()[:12] == "daf2f9b3f497"


def test_in_order_has_every_pair_once_and_the_same_shapes(batches):
    found = list(batches.in_order())
    assert sorted(indices(found)) == KEPT
    assert {batch.source.shape for batch in found} == set(batches.shapes)
    lengths = [batch.source.shape[1] for batch in found]
    assert lengths == sorted(lengths)
    total = sum(batch.weights.sum() for batch in found)
    assert total == sum(len(TARGET[i]) + 1 for i in KEPT)


def test_parts_make_up_the_batch():
    batches = make(rows_multiple=3)
    assert all(rows % 3 == 0 for rows, _ in batches.shapes)
    for step in range(batches.batches_per_epoch):
        whole = batches.batch(step, seed=0)
        parts = [batches.batch(step, seed=0, part=(i, 3)) for i in range(3)]
        for array, *pieces in zip(whole, *parts, strict=True):
            np.testing.assert_array_equal(array, np.concatenate(pieces))
    joined = [b for i in range(3) for b in batches.in_order(part=(i, 3))]
    assert sorted(indices(joined)) == KEPT


def test_long_pairs_are_counted_or_refused(batches):
    over = len(SOURCE) - len(KEPT)
    assert batches.num_dropped == over
    assert batches.num_pairs == len(KEPT)
    assert f"{over} too long" in batches.summary
    first = next(i for i in range(300) if i not in KEPT)
    with pytest.raises(ValueError, match=f"pair {first}: .*max_length 40"):
        make(too_long="raise")
    assert make(max_length=60, too_long="raise").num_pairs == 300


def test_length_counts_the_end():
    assert make([[5] * 4], [[5]], max_length=5).num_pairs == 1
    with pytest.raises(ValueError, match="max_length: got 5; expected at least 6"):
        make([[5] * 5], [[5]], max_length=5)


def test_bucket_lengths():
    assert bucket_lengths(128) == [16, 24, 40, 64, 96, 128]
    assert bucket_lengths(17) == [16, 17]
    assert bucket_lengths(16) == [16]
    assert bucket_lengths(5) == [5]
    assert make(lengths=[10, 40]).shapes == ((12, 10), (3, 40))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": TARGET[:-1]}, "300 and 299 sentences"),
        ({"source": [], "target": []}, "0 and 0 sentences"),
        ({"source": [[5], [5, 0]], "target": [[5], [5]]}, r"source\[1\].*id 0"),
        ({"source": [[5], [5]], "target": [[], [-3]]}, r"target\[1\].*id -3"),
        ({"max_tokens": 79}, "max_tokens: got 79; expected at least 80"),
        ({"rows_multiple": 4}, "max_tokens: got 256; expected at least 320"),
        ({"rows_multiple": 0}, "rows_multiple"),
        ({"lengths": [16, 16, 40]}, "lengths"),
        ({"lengths": [16, 24]}, "lengths"),
        ({"lengths": []}, "lengths"),
        ({"too_long": "cut"}, "too_long"),
    ],
)
def test_bad_arguments(plain_errors, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_bad_steps_and_parts(plain_errors, batches):
    with pytest.raises(ValueError, match="step: got -1"):
        batches.batch(-1, seed=0)
    with pytest.raises(TypeError, match="seed"):
        batches.batch(0, seed=0.5)  # type: ignore[arg-type]
    for part in ((0, 7), (2, 2), (0, 0), (-1, 2)):
        with pytest.raises(ValueError, match="part"):
            batches.batch(0, seed=0, part=part)
    with pytest.raises(ValueError, match="bos_id"):
        pair_batches([[5]], [[5]], bos_id=0, eos_id=2, max_tokens=99, max_length=9)
