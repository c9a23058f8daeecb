"""Token shards from files of text, Parquet files or a set of TensorFlow Datasets.

    python -m experiments.shards.prepare --out shards/stdlib
    python -m experiments.shards.prepare --out shards/books \
        --texts "books/**/*.txt" --vocab-size 32000
    python -m experiments.shards.prepare --out shards/fineweb \
        --parquet fineweb/sample --vocabulary gpt2.json --validation-fraction 0.0005
    python -m experiments.shards.prepare --out shards/lm1b --tfds lm1b

A command that was stopped goes on when it is given again. A vocabulary is learnt from
the first documents of the training side, unless --vocabulary names one.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from attn_jax.data import (
    Documents,
    Vocabulary,
    load_vocabulary,
    parquet_documents,
    text_documents,
    tfds_documents,
    training_texts,
    write_shards,
)
from attn_jax.data.shard_writing import check_folder
from experiments.common.command_line import at_least
from experiments.common.errors import UserError, fail
from experiments.common.vocabulary import learn_vocabulary


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Documents as token shards, in a training and a validation side.

    Attributes:
      out: where the shards, their index and the vocabulary are written.
      texts: files, directories or globs of text, each file a document. With neither
        this nor parquet nor tfds, the source of Python's standard library.
      separator: what stands between the documents of a file, "<|endoftext|>" say.
      parquet: a Parquet file, a directory of them or a glob, each row a document.
      column: the column of text in them.
      tfds: a prepared set of TensorFlow Datasets, each example a document.
      split: its split.
      feature: the feature of text in it.
      data_dir: where it is prepared. None is TensorFlow Datasets' own place.
      vocabulary: a vocabulary that Vocabulary.save wrote. None learns one.
      vocab_size: ids of the one that is learnt.
      vocabulary_megabytes: how much text it is learnt from, in millions of characters.
      validation_fraction: expected share of documents that validate; 0.0005 in the
        paper of exclusive attention.
      shard_tokens: tokens of a shard, at least.
    """

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    texts: Annotated[
        tuple[str, ...] | None, tyro.conf.arg(metavar="PATH [PATH ...]")
    ] = None
    separator: str | None = None
    parquet: Annotated[str | None, tyro.conf.arg(metavar="PATH")] = None
    column: str = "text"
    tfds: str | None = None
    split: str = "train"
    feature: str = "text"
    data_dir: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    vocabulary: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    vocab_size: int = 8192
    vocabulary_megabytes: float = 100.0
    validation_fraction: float = 0.01
    shard_tokens: int = 100_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the shards and return the exit code; 2 is a mistake on the command line."""
    config = tyro.cli(
        PrepareConfig,
        args=sys.argv[1:] if arguments is None else list(arguments),
        prog="python -m experiments.shards.prepare",
    )
    try:
        check(config)
        vocabulary = find_vocabulary(config)
        shards = write_shards(
            find_documents(config),
            config.out,
            vocabulary=vocabulary,
            validation_fraction=config.validation_fraction,
            shard_tokens=config.shard_tokens,
            notify=lambda one: print(f"{one.file}: {one.tokens:,} tokens", flush=True),
        )
    except (UserError, ImportError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130
    print(f"{config.out}: {shards.summary}")
    return 0


def check(config: PrepareConfig) -> None:
    """Raise for numbers that can't be meant, and where something else is in the way."""
    at_least(config, 259, "vocab_size")
    at_least(config, 1, "shard_tokens")
    fraction, megabytes = config.validation_fraction, config.vocabulary_megabytes
    if not 0 < fraction < 1:
        expected = "a number between 0 and 1, both excluded"
        fail("--validation-fraction", fraction, expected, "pass 0.01")
    if not 0 < megabytes < math.inf:
        expected = "a finite number above 0"
        fail("--vocabulary-megabytes", megabytes, expected, "pass 100")
    check_folder(config.out.expanduser())


def find_documents(config: PrepareConfig) -> Documents:
    """The documents that are asked for, from their beginning."""
    sources = ("texts", "parquet", "tfds")
    given = [name for name in sources if getattr(config, name) is not None]
    if len(given) > 1:
        got = " and ".join(f"--{name}" for name in given)
        fail("source", got, "one of them", "prepare a folder for each")
    if config.separator is not None and given in (["parquet"], ["tfds"]):
        expected = "none, since each row is a document"
        fail("--separator", repr(config.separator), expected, "leave it out")
    if config.parquet is not None:
        return parquet_documents(config.parquet, config.column)
    if config.tfds is not None:
        where = config.data_dir
        return tfds_documents(config.tfds, config.split, config.feature, where)
    return text_documents(config.texts, separator=config.separator)


def find_vocabulary(config: PrepareConfig) -> Vocabulary:
    """The vocabulary that is named, was learnt by a call before, or is learnt now."""
    if config.vocabulary is not None:
        return load_vocabulary(config.vocabulary)
    learnt = config.out / "vocabulary.json"
    if learnt.is_file():
        vocabulary = load_vocabulary(learnt)
        if vocabulary.size == config.vocab_size:
            return vocabulary
    texts = training_texts(
        find_documents(config),
        validation_fraction=config.validation_fraction,
        max_characters=round(config.vocabulary_megabytes * 1e6),
    )
    print(
        f"learning {config.vocab_size:,} ids from {len(texts):,} documents", flush=True
    )
    if not texts:
        expected = "documents on the side that trains"
        remedy = "pass more text, or a smaller --validation-fraction"
        fail("source", "no document to learn from", expected, remedy)
    return learn_vocabulary(texts, config.vocab_size)


if __name__ == "__main__":
    sys.exit(main())
