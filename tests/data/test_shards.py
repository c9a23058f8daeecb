"""Token shards: what is written, what is read from them, and what is refused."""

import hashlib
import json
import os

import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.data import (
    Documents,
    ShardBatch,
    Vocabulary,
    load_shards,
    training_texts,
    write_shards,
)
from attn_jax.data._random import shuffled
from attn_jax.ops import masks

BYTES = Vocabulary([])  # id 3 + n is the n-th letter of GPT-2's alphabet of bytes
SEPARATOR = 2
TEXTS = [f"{i} " + "abcdefghijklm"[: i % 13] for i in range(120)] + ["", "7 abcdefg"]
NUM_SHARDS = 8
PINNED = [[777, 246, 49], [187, 497, 645]]


def validates(text, fraction):
    """The documented rule, written anew."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return int(digest, 16) / 2**64 < fraction


def prepare(folder, texts=TEXTS, vocabulary=BYTES, **changes):
    options = {"validation_fraction": 0.2, "shard_tokens": 100} | changes
    documents = Documents("some texts", iter(texts))
    return write_shards(documents, folder, vocabulary=vocabulary, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    prepare(folder)
    return folder


@pytest.fixture(scope="module")
def train(folder):
    return load_shards(folder).train


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Shards of which every token says where it is: they count on from 3."""
    folder = tmp_path_factory.mktemp("places")
    prepare(folder)
    index = json.loads((folder / "index.json").read_text())
    after = 3
    for shard in index["shards"]["train"]:
        tokens = np.arange(after, after + shard["tokens"], dtype="<u2")
        tokens.tofile(folder / shard["file"])
        after += shard["tokens"]
    return load_shards(folder, verify=False).train


def read(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def joined(parts):
    return ShardBatch(*map(np.concatenate, zip(*parts, strict=True)))


def test_shards_hold_whole_documents_in_order_each_on_its_side(folder):
    """Documents behind separators, at least 100 tokens a shard and no tiny last one."""
    index = json.loads((folder / "index.json").read_text())
    wanted = {"train": [], "validation": []}
    for text in filter(None, TEXTS):
        wanted["validation" if validates(text, 0.2) else "train"].append(text)
    for name, shards in index["shards"].items():
        found = []
        for shard in shards:
            tokens = np.fromfile(folder / shard["file"], "<u2")
            assert len(tokens) == shard["tokens"]
            assert tokens[0] == SEPARATOR
            begins = np.flatnonzero(tokens == SEPARATOR)
            assert len(begins) == shard["documents"]
            found += [BYTES.decode(part[1:]) for part in np.split(tokens, begins[1:])]
            assert 100 <= len(tokens) < 100 + 100 + 17
        assert found == wanted[name]
        assert len(shards) > 1
    assert sum(validates(text, 0.2) for text in ("7 abcdefg", TEXTS[7])) in (0, 2)


def test_what_is_told_of_shards(folder):
    shards = load_shards(folder)
    kept = [text for text in TEXTS if text]
    tokens = sum(1 + len(text) for text in kept)
    assert shards.train.num_documents + shards.validation.num_documents == len(kept)
    assert shards.train.num_tokens + shards.validation.num_tokens == tokens
    assert shards.vocabulary == BYTES
    assert (shards.vocab_size, shards.separator) == (259, SEPARATOR)
    assert "some texts" in shards.summary
    assert shards.fingerprint[:12] in shards.summary


def batch_of(split, step, length=24, batch_size=6, **changes):
    arguments = {"seed": 3, "batch_size": batch_size, "length": length} | changes
    return split.batch(step, **arguments)


def test_an_epoch_has_every_window_once_and_the_next_has_them_in_another_order(places):
    length = 24
    total = places.num_windows(length)
    batches = [batch_of(places, step) for step in range(-(-2 * total // 6))]
    tokens = np.concatenate([batch.tokens for batch in batches])
    ends = np.concatenate([batch.targets for batch in batches])[:, -1:]
    windows = np.concatenate([tokens, ends], axis=1)[: 2 * total]
    assert np.array_equal(windows, windows[:, :1] + np.arange(length + 1))
    first, second = np.split(windows[:, 0], 2)
    for starts in (first, second):
        gaps = np.diff(np.sort(starts))
        # More lies between two shards: what doesn't fill a window is left out.
        assert np.all(gaps >= length)
        assert np.sum(gaps > length) == NUM_SHARDS - 1
    assert first.tolist() != sorted(first)
    assert np.argsort(first).tolist() != np.argsort(second).tolist()
    assert sorted(first) != sorted(second)


def test_batches_are_pure_in_seed_and_step_and_pinned(places, train):
    """A stored run resumes only if these numbers never change."""
    forward = [batch_of(train, step) for step in range(5)]
    backward = [batch_of(train, step) for step in reversed(range(5))][::-1]
    assert all(map(same, forward, backward))
    assert not same(batch_of(train, 0, seed=4), forward[0])
    starts = [
        batch_of(places, step, batch_size=3, seed=0).tokens[:, 0] - 3
        for step in (0, 2**50)
    ]
    assert np.array_equal(starts, PINNED)
    assert [array.dtype for array in forward[0]] == [
        np.int32,
        np.int32,
        np.float32,
        np.int32,
    ]


@pytest.mark.parametrize("hosts", [2, 3, 6])
def test_hosts_together_have_the_batch_of_one(train, hosts):
    """Also where a batch is of two epochs; to train and to validate."""
    b = 6
    slices = [slice(i * b // hosts, (i + 1) * b // hosts) for i in range(hosts)]
    for step in (0, 1, train.num_windows(24) // b, 10**6):
        parts = [batch_of(train, step, rows=rows) for rows in slices]
        assert same(joined(parts), batch_of(train, step))
    options = {"batch_size": b, "length": 24}
    whole = list(train.in_order(**options))
    parts = [list(train.in_order(**options, rows=rows)) for rows in slices]
    assert all(len(part) == len(whole) for part in parts)
    for batch, *of_hosts in zip(whole, *parts, strict=True):
        assert same(joined(of_hosts), batch)


def test_validation_makes_every_token_but_the_first_of_a_shard_a_target(folder, train):
    batches = list(train.in_order(batch_size=3, length=7))
    index = json.loads((folder / "index.json").read_text())["shards"]["train"]
    targets = np.concatenate([one.targets[one.weights > 0] for one in batches])
    tokens = [np.fromfile(folder / shard["file"], "<u2")[1:] for shard in index]
    assert np.array_equal(targets, np.concatenate(tokens))
    assert len(list(train.in_order(batch_size=3, length=7, limit=4))) == 4


def test_segments_keep_documents_apart(train):
    """A document's separator is its first token."""
    batch = batch_of(train, 0)
    for tokens, segments in zip(batch.tokens, batch.segments, strict=True):
        document = 0
        for token, segment in zip(tokens, segments, strict=True):
            document += token == SEPARATOR
            assert segment == document
    packed = masks.causal() & masks.segments(jnp.asarray(batch.segments))
    allowed = packed.allowed(24, 24)
    row = np.flatnonzero(batch.segments[:, -1] > batch.segments[:, 0])[0]
    begin = np.flatnonzero(batch.tokens[row] == SEPARATOR)[0]
    assert not allowed[row, 0, begin:, :begin].any()
    assert begin == 0 or allowed[row, 0, begin - 1, 0]


def test_wide_vocabularies_have_wide_ids(tmp_path):
    letters = sorted(BYTES._pieces, reverse=True)
    vocabulary = Vocabulary((a, b) for a in letters for b in letters)
    assert vocabulary.size == 259 + 2**16
    texts = ["!!", *TEXTS]  # the last pair of all
    prepare(tmp_path, texts, vocabulary)
    files = sorted(tmp_path.glob("train-*.bin"))
    tokens = np.concatenate([np.fromfile(file, "<u4") for file in files])
    assert tokens.max() >= 2**16
    begins = np.flatnonzero(tokens == SEPARATOR)
    found = [vocabulary.decode(part[1:]) for part in np.split(tokens, begins[1:])]
    assert found == [text for text in texts if text and not validates(text, 0.2)]
    assert (
        load_shards(tmp_path)
        .train.batch(0, seed=0, batch_size=1, length=9)
        .tokens.dtype
        == np.int32
    )


def test_a_preparation_that_is_stopped_leaves_nothing_whole_and_goes_on(
    folder, tmp_path, monkeypatch
):
    """Stopped at every file that it writes and at some of the documents."""
    rename = os.replace
    writes = 0

    def counted(source, target):
        nonlocal writes
        writes += 1
        rename(source, target)

    monkeypatch.setattr(os, "replace", counted)
    prepare(tmp_path / "counted")

    def stopping(stop):
        left = stop

        def replace(source, target):
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            rename(source, target)

        return replace

    assert writes > 20
    for stop in range(writes):
        place = tmp_path / f"{stop}"
        monkeypatch.setattr(os, "replace", stopping(stop))
        with pytest.raises(KeyboardInterrupt):
            prepare(place)
        with pytest.raises(FileNotFoundError, match=r"isn't finished|no shards"):
            load_shards(place)
        monkeypatch.setattr(os, "replace", rename)
        written = []
        prepare(place, notify=written.append)
        assert read(place) == read(folder)
        assert stop < 8 or len(written) < writes // 2


def test_what_was_written_is_not_encoded_again(folder, tmp_path, monkeypatch):
    def texts():
        yield from TEXTS[:90]
        raise KeyboardInterrupt

    monkeypatch.setattr("attn_jax.data.shard_writing._CHARACTERS", 64)
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path, texts())
    whole = (tmp_path / "train-00001.bin").read_bytes()
    (tmp_path / "train-00001.bin").write_bytes(whole[:-2])  # cut by a full disk, say
    encoded = []
    encode = Vocabulary.encode_batch
    monkeypatch.setattr(
        Vocabulary,
        "encode_batch",
        lambda self, texts: encoded.extend(texts) or encode(self, texts),
    )
    written = []
    prepare(tmp_path, notify=lambda shard: written.append(shard.file))
    assert read(tmp_path) == read(folder)
    assert "train-00000.bin" not in written
    assert written[0] == "train-00001.bin"
    assert TEXTS[0] not in encoded
    prepare(tmp_path, notify=lambda _: pytest.fail("a finished folder is left alone"))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([*TEXTS[:4], "another", *TEXTS[4:]], "other documents than when train"),
        (TEXTS[:9], "fewer documents than when train"),
    ],
    ids=["other", "fewer"],
)
def test_a_preparation_goes_on_with_the_same_documents(
    tmp_path, monkeypatch, texts, message
):
    assert not validates("another", 0.2)
    monkeypatch.setattr("attn_jax.data.shard_writing._CHARACTERS", 64)

    def stopped():
        yield from TEXTS[:90]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path, stopped())
    with pytest.raises(ValueError, match=message):
        prepare(tmp_path, texts)


def test_only_the_same_call_goes_on(folder):
    before = read(folder)
    for changes, message in (
        ({"shard_tokens": 99}, "shard_tokens 100 there, 99 now"),
        ({"vocabulary": Vocabulary([("a", "b")])}, "vocab_size 259 there, 260 now"),
    ):
        with pytest.raises(ValueError, match=message):
            prepare(folder, **changes)
    assert read(folder) == before


def _drop(folder):
    (folder / "train-00001.bin").unlink()


def _truncate(folder):
    path = folder / "train-00001.bin"
    path.write_bytes(path.read_bytes()[:-2])


def _flip(folder):
    path = folder / "validation-00000.bin"
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)


def _edit(folder):
    path = folder / "index.json"
    path.write_text(path.read_text().replace('"separator": 2', '"separator": 1'))


def _break(folder):
    (folder / "index.json").write_text("[]")


def _exchange(folder):
    Vocabulary([("a", "b")]).save(folder / "vocabulary.json")


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (_drop, FileNotFoundError, r"train-00001.bin\): got no file"),
        (_truncate, ValueError, r"train-00001.bin\): got \d+ bytes; expected \d+ = "),
        (_flip, ValueError, r"validation-00000.bin\): got a file with SHA-256"),
        (_edit, ValueError, r"index.json\): got an index with fingerprint"),
        (_break, ValueError, r"index.json\): got no index"),
        (_exchange, ValueError, r"vocabulary: got .*; expected that of the shards in"),
    ],
)
def test_what_was_changed_is_refused(tmp_path, damage, error, message):
    prepare(tmp_path)
    damage(tmp_path)
    with pytest.raises(error, match=message):
        load_shards(tmp_path)


def test_what_does_not_fit_is_refused(folder, tmp_path, train, plain_errors):
    shards = load_shards(folder)
    fits = {"batch_size": 6, "length": 24, "vocab_size": 300}
    shards.require_batch(**fits)
    for changes, message in (
        ({"vocab_size": 258}, "vocab_size: got 258; expected at least 259"),
        ({"length": 400}, r"length: got 400; expected less than the \d+ tokens of tr"),
        ({"batch_size": 999}, r"batch_size \(train\): got 999; expected at most \d+, "),
    ):
        with pytest.raises(ValueError, match=message):
            shards.require_batch(**(fits | changes))
    with pytest.raises(ValueError, match=r"rows: got slice\(4, 7"):
        batch_of(train, 0, rows=slice(4, 7))
    with pytest.raises(ValueError, match="expected that of the shards in"):
        load_shards(folder, vocabulary=Vocabulary([("a", "b")]))
    with pytest.raises(FileNotFoundError, match="got no directory"):
        load_shards(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"none is for validation .*at a separator"):
        prepare(tmp_path / "one", ["one document"], validation_fraction=1e-9)
    with pytest.raises(ValueError, match="validation_fraction: got 1"):
        prepare(tmp_path / "two", validation_fraction=1.0)
    with pytest.raises(TypeError, match="int as document 1, counted from 0; expected"):
        prepare(tmp_path / "three", ["text", 3])
    with pytest.raises(
        TypeError, match=r"got one string; .*Documents\('a', \[text\]\)"
    ):
        write_shards(Documents("a", "text"), tmp_path / "four", vocabulary=BYTES)
    with pytest.raises(TypeError, match="vocabulary: got str; expected a Vocabulary"):
        prepare(tmp_path / "five", vocabulary="vocabulary.json")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FileExistsError, match=r"holds notes.txt|holds one"):
        prepare(tmp_path)


def test_a_vocabulary_is_learnt_from_what_is_trained_on():
    documents = Documents("some texts", TEXTS)
    options = {"validation_fraction": 0.2}
    every = training_texts(documents, **options, max_characters=10**6)
    assert every == [text for text in TEXTS if text and not validates(text, 0.2)]
    some = training_texts(documents, **options, max_characters=100)
    assert some == every[: len(some)]
    assert 100 <= sum(map(len, some)) < 120


@pytest.mark.parametrize("count", [1, 2, 3, 16, 17, 1000])
def test_shuffled_is_a_permutation_of_its_own_each_epoch(count):
    places = np.arange(count)
    orders = np.array(
        [
            shuffled("test", seed=0, epoch=epoch, places=places, count=count)
            for epoch in range(200)
        ]
    )
    assert np.array_equal(np.sort(orders), np.tile(places, (200, 1)))
    # Every place gets every number about equally often, in two halves of the range.
    low = np.mean(orders < (count + 1) // 2, axis=0)
    share = (count + 1) // 2 / count
    assert np.all(np.abs(low - share) < 0.16)
    some = places[: min(count, 5)]
    alone = shuffled("test", seed=0, epoch=0, places=some, count=count)
    assert np.array_equal(alone, orders[0, : len(some)])
