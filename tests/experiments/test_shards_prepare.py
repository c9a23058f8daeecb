"""The command that prepares token shards."""

import pyarrow as pa
import pytest
from pyarrow import parquet

from attn_jax.data import Vocabulary, load_shards
from experiments.shards.prepare import main

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon"]
LINES = ("--texts", __file__, "--separator", "\n")
TEXTS = [f"{' '.join(WORDS[: 1 + i % 5])} {i}" for i in range(60)]


def run(out, *more):
    options = ["--out", str(out), "--validation-fraction", "0.2"]
    return main([*options, "--shard-tokens", "100", *more])


@pytest.fixture
def books(tmp_path):
    path = tmp_path / "books.txt"
    path.write_text("\n\n".join(TEXTS))
    return path


def test_shards_of_text_with_a_vocabulary_of_its_own(books, tmp_path, capsys):
    options = ("--texts", str(books), "--separator", "\n\n", "--vocab-size", "280")
    assert run(tmp_path / "out", *options) == 0
    said = capsys.readouterr().out
    assert "learning 280 ids from" in said
    assert "train-00000.bin: " in said
    shards = load_shards(tmp_path / "out")
    assert shards.summary in said
    assert shards.vocab_size == 280
    assert shards.train.num_documents + shards.validation.num_documents == 60
    # What was learnt isn't learnt again, and what is there stays.
    assert run(tmp_path / "out", *options) == 0
    again = capsys.readouterr().out
    assert "learning" not in again
    assert "bin" not in again
    assert shards.summary in again


def test_shards_of_parquet_with_a_given_vocabulary(tmp_path):
    parquet.write_table(pa.table({"words": TEXTS}), tmp_path / "a.parquet")
    vocabulary = Vocabulary([("a", "l"), ("al", "p")])
    vocabulary.save(tmp_path / "given.json")
    options = ("--parquet", str(tmp_path), "--column", "words")
    given = ("--vocabulary", str(tmp_path / "given.json"))
    assert run(tmp_path / "out", *options, *given) == 0
    assert load_shards(tmp_path / "out").vocabulary == vocabulary


def test_a_stopped_command_goes_on(books, tmp_path, monkeypatch, capsys):
    options = ("--texts", str(books), "--separator", "\n\n", "--vocab-size", "270")
    encode, calls = Vocabulary.encode_batch, []

    def stop(self, texts):
        calls.append(texts)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return encode(self, texts)

    monkeypatch.setattr("attn_jax.data.shard_writing._CHARACTERS", 800)
    monkeypatch.setattr(Vocabulary, "encode_batch", stop)
    assert run(tmp_path / "out", *options) == 130
    assert "the same command goes on" in capsys.readouterr().err
    monkeypatch.setattr(Vocabulary, "encode_batch", encode)
    assert run(tmp_path / "out", *options) == 0
    said = capsys.readouterr().out
    assert "learning" not in said
    assert "train-00000.bin" not in said
    assert load_shards(tmp_path / "out").train.num_documents


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--texts", "a", "--tfds", "b"), "source: got --texts and --tfds"),
        (("--tfds", "b", "--separator", "x"), "--separator: got 'x'; expected none"),
        (("--texts", "nowhere.txt"), "path: got 'nowhere.txt'"),
        (("--parquet", "nowhere"), "path: got 'nowhere'"),
        (("--vocabulary", "nowhere.json"), "path: got 'nowhere.json'"),
        (("--validation-fraction", "1"), "--validation-fraction: got 1.0; expected a"),
        (("--shard-tokens", "0"), "--shard-tokens: got 0; expected a whole number"),
        (("--vocab-size", "258"), "--vocab-size: got 258; expected a whole number"),
        (("--vocabulary-megabytes", "0"), "--vocabulary-megabytes: got 0.0; expected"),
        (("--out", __file__), "got a file; expected a new or an empty one"),
        ((*LINES, "--vocab-size", "99999"), "--vocab-size: got 99999; expected at m"),
        ((*LINES, "--validation-fraction", "0.9999999"), "source: got no document to"),
    ],
    ids=[
        *("source", "separator", "texts", "parquet", "vocabulary", "fraction"),
        *("tokens", "size", "megabytes", "file", "large", "none"),
    ],
)
def test_mistakes_end_with_2(tmp_path, capsys, options, message):
    assert run(tmp_path / "out", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
