"""What lies in a folder of token shards: the index, its checks, the files.

index.json              what there is; beside it, everything is whole
unfinished.json         the same of shards written so far, until it becomes the index
vocabulary.json         what the ids mean
train-00000.bin, ...    ids in little-endian uint16 or uint32, nothing else
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attn_jax.data._checks import fail
from attn_jax.data._files import read_file, write_whole

INDEX = "index.json"
UNFINISHED = "unfinished.json"
VOCABULARY = "vocabulary.json"
SPLITS = ("train", "validation")
_FORMAT = "attn_jax token shards, version 1"
_REMEDY = "restore the file, or remove the folder and prepare it again"


class Shard(NamedTuple):
    """A file of tokens.

    file: its name in the folder.
    tokens, documents: how many it holds; documents are whole.
    sha256: of the file.
    seen: of the documents of its side from the first one to its last.
    """

    file: str
    tokens: int
    documents: int
    sha256: str
    seen: str


@dataclass(frozen=True)
class Index:
    """What was asked for, and the shards that came of it.

    vocabulary: the fingerprint of what the text was encoded with.
    separator: the id that stands before each document.
    shard_tokens: how many tokens a shard holds at least.
    """

    source: str
    vocab_size: int
    vocabulary: str
    separator: int
    validation_fraction: float
    shard_tokens: int
    shards: dict[str, list[Shard]] = field(
        default_factory=lambda: {name: [] for name in SPLITS}
    )

    @property
    def dtype(self) -> np.dtype:
        """The narrowest type that holds every id."""
        return np.dtype("<u2" if self.vocab_size <= 1 << 16 else "<u4")

    @property
    def request(self) -> dict[str, Any]:
        """What was asked for."""
        content = asdict(self)
        del content["shards"]
        return content

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything but the name of the source."""
        content = self._content()
        del content["source"]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def _content(self) -> dict[str, Any]:
        shards = {
            name: [shard._asdict() for shard in self.shards[name]] for name in SPLITS
        }
        return {"format": _FORMAT, **self.request, "shards": shards}

    def write(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        content = {**self._content(), "fingerprint": self.fingerprint}
        write_whole(path, json.dumps(content, indent=1) + "\n")


def read_index(path: Path) -> Index:
    """What `Index.write` wrote.

    Raises:
        ValueError: the file holds something else, or was changed since.
    """
    try:
        content = json.loads(read_file("folder", path))
        form, recorded = content.pop("format"), content.pop("fingerprint")
        shards = content.pop("shards")
        index = Index(
            **content,
            shards={name: [Shard(**each) for each in shards[name]] for name in SPLITS},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        fail(f"folder ({path})", f"no index ({error!r})", "its JSON", _REMEDY)
    if form != _FORMAT:
        fail(f"folder ({path})", f"format {form!r}", repr(_FORMAT), _REMEDY)
    if index.fingerprint != recorded:
        got = f"an index with fingerprint {index.fingerprint}"
        fail(f"folder ({path})", got, f"{recorded}, which the file records", _REMEDY)
    return index


def write_shard(folder: Path, file: str, tokens: np.ndarray) -> str:
    """Write a shard whole or not at all; returns its checksum."""
    scratch = folder / f"{file}.tmp"
    tokens.tofile(scratch)
    os.replace(scratch, folder / file)
    return hashlib.sha256(tokens.data).hexdigest()


def open_shard(folder: Path, shard: Shard, dtype: np.dtype) -> np.ndarray:
    """The tokens of a shard, mapped into memory and not read yet.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: it is shorter or longer than the index says.
    """
    path = folder / shard.file
    expected = shard.tokens * dtype.itemsize
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        wanted = f"the {expected:,} bytes that the index lists"
        fail(f"folder ({path})", "no file", wanted, _REMEDY, FileNotFoundError)
    if size != expected:
        wanted = f"{expected:,} = {shard.tokens:,} tokens x {dtype.itemsize}"
        fail(f"folder ({path})", f"{size:,} bytes", wanted, _REMEDY)
    return np.asarray(np.memmap(path, dtype, mode="r"))


def check_sum(folder: Path, shard: Shard) -> None:
    """Raise unless a shard is what was written.

    Raises:
        ValueError: it isn't.
    """
    path = folder / shard.file
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != shard.sha256:
        wanted = f"{shard.sha256}, which the index records"
        fail(f"folder ({path})", f"a file with SHA-256 {found}", wanted, _REMEDY)
