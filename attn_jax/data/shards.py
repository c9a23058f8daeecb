"""Tokens in files that are mapped into memory: text at the scale of language models."""

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from attn_jax.data._checks import fail
from attn_jax.data._shard_index import (
    INDEX,
    UNFINISHED,
    VOCABULARY,
    Index,
    check_sum,
    open_shard,
    read_index,
)
from attn_jax.data.token_split import TokenSplit
from attn_jax.data.vocabulary import Vocabulary, load_vocabulary


@dataclass(frozen=True, eq=False)
class TokenShards:
    """Documents as tokens, in a training and a validation side.

    source: what they were prepared from.
    train, validation: the two sides; no document is on both.
    vocabulary: what the ids mean.
    separator: the id that stands before each document, the vocabulary's eos_id.
    fingerprint: SHA-256 of all that decides the batches; it belongs in the record of a
        run.
    """

    source: str
    train: TokenSplit = field(repr=False)
    validation: TokenSplit = field(repr=False)
    vocabulary: Vocabulary
    separator: int
    fingerprint: str

    @property
    def vocab_size(self) -> int:
        """How many ids there are; a model's vocab_size is at least this."""
        return self.vocabulary.size

    @property
    def summary(self) -> str:
        """One line for people."""
        sides = ", ".join(
            f"{one.num_tokens:,} {one.name} tokens of {one.num_documents:,} documents"
            for one in (self.train, self.validation)
        )
        return (
            f"{self.source}: {sides}, vocabulary {self.vocab_size:,}, "
            f"sha256 {self.fingerprint[:12]}"
        )

    def require_batch(self, *, batch_size: int, length: int, vocab_size: int) -> None:
        """Raise ValueError, before any compute, when a model and its batch do not fit.

        Args:
            batch_size: rows of the global batch.
            length: tokens of a row.
            vocab_size: of the model.
        """
        if vocab_size < self.vocab_size:
            fail(
                "vocab_size",
                str(vocab_size),
                f"at least {self.vocab_size}, the ids of these shards",
                "build the model with a greater one, or prepare a smaller vocabulary",
            )
        self.train.batch(0, seed=0, batch_size=batch_size, length=length)


def load_shards(
    folder: str | os.PathLike[str],
    *,
    vocabulary: Vocabulary | None = None,
    verify: bool = True,
) -> TokenShards:
    """The shards that `write_shards` wrote, mapped into memory.

    Args:
        folder: where they lie.
        vocabulary: the one that a model was trained with, which has to be theirs.
        verify: reads every file once and compares its checksum, on all cores; False
            checks names and sizes alone, which takes no time.

    Raises:
        FileNotFoundError: there is no such folder, its preparation isn't finished, or a
            shard is missing.
        ValueError: the index, the vocabulary or a shard isn't what was written.
    """
    place = Path(folder).expanduser()
    index = _finished(place)
    arrays = {
        name: [open_shard(place, shard, index.dtype) for shard in shards]
        for name, shards in index.shards.items()
    }
    own = load_vocabulary(place / VOCABULARY)
    for one in (own,) if vocabulary is None else (own, vocabulary):
        one.check_fingerprint(index.vocabulary, owner=f"the shards in {place}")
    if verify:
        with ThreadPoolExecutor() as pool:
            every = itertools.chain(*index.shards.values())
            list(pool.map(lambda shard: check_sum(place, shard), every))
    train, validation = (
        TokenSplit(name, index.shards[name], arrays[name], index.separator)
        for name in ("train", "validation")
    )
    return TokenShards(
        index.source, train, validation, own, index.separator, index.fingerprint
    )


def _finished(folder: Path) -> Index:
    """The index of a folder in which everything is whole."""
    if (folder / INDEX).is_file():
        return read_index(folder / INDEX)
    got, remedy = "no shards", "prepare them with write_shards, or pass another folder"
    if (folder / UNFINISHED).is_file():
        got = "shards whose preparation isn't finished"
        remedy = "run it again as it was called; it goes on where it stopped"
    if not folder.is_dir():
        got = "no directory"
    fail(f"folder ({folder})", got, f"one with {INDEX}", remedy, FileNotFoundError)
