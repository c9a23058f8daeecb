"""Byte-level text from files, directories and globs, split by file."""

import dataclasses
import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Integer, UInt8

from attn_jax.data._checks import fail, integer
from attn_jax.data._files import TextFile, gather_texts
from attn_jax.data._split import place_of
from attn_jax.data.windows import check_batch_fits

_MIN_BYTES = 2  # one byte to read and one to predict


@dataclasses.dataclass(frozen=True, eq=False)
class ByteCorpus:
    """Text as bytes, in a training and a validation side.

    name: where the text is from.
    train, validation: read-only bytes; files follow one another without separator.
    train_files, validation_files: names of the files of each side, in order.
    split: "file" when each file is on one side; "position" when the last part of the
        text is the validation side, because splitting by file leaves a side empty.
    num_files: files with text of their own.
    fingerprint: SHA-256 of both sides; another text or another split has another.
    """

    vocab_size: ClassVar[int] = 256

    name: str
    train: UInt8[np.ndarray, " n"] = dataclasses.field(repr=False)
    validation: UInt8[np.ndarray, " v"] = dataclasses.field(repr=False)
    train_files: tuple[str, ...] = dataclasses.field(repr=False)
    validation_files: tuple[str, ...] = dataclasses.field(repr=False)
    split: Literal["file", "position"]
    num_files: int
    fingerprint: str

    @property
    def num_bytes(self) -> int:
        """Bytes of both sides."""
        return len(self.train) + len(self.validation)

    @property
    def summary(self) -> str:
        """One line for people."""
        return (
            f"{self.name}: {self.num_files:,} files, {self.num_bytes:,} bytes "
            f"({len(self.train):,} train, {len(self.validation):,} validation, "
            f"split by {self.split}), sha256 {self.fingerprint[:12]}"
        )

    def require_batch(self, *, batch_size: int, length: int) -> None:
        """Raise ValueError, before any compute, when a batch does not fit the text.

        Args:
            batch_size: rows of the global batch.
            length: tokens of a row.
        """
        batch_size = integer("batch_size", batch_size, minimum=1)
        length = integer("length", length, minimum=1)
        argument = f"path (training bytes of {self.name})"
        check_batch_fits(
            argument, len(self.train), batch_size=batch_size, length=length
        )


def load_corpus(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    validation_fraction: float = 0.05,
) -> ByteCorpus:
    """Reads text as bytes and splits it by file into training and validation.

        file -> validation  when  blake2b(relative path) / 2⁶⁴ < validation_fraction

    The path is relative to the directory given, or to the part of a glob before its
    first wildcard; of a file given by itself it is the name. So a file keeps its side
    when others come or go and when the directory moves. A content that occurs in
    several files is taken once, at the first, so that it is not on both sides. With
    one file, or when a side would be empty, the last part of the text validates.

    Args:
        path: a file, a directory (read recursively), a glob (** is any depth), or
            several of these. None is the source of Python's standard library on this
            machine, about 10 MB. In directories and globs, hidden files and files
            with a NUL byte are left out.
        validation_fraction: expected share of files that validate, between 0 and 1.

    Returns:
        The corpus.

    Raises:
        FileNotFoundError: a path does not exist or a glob matches nothing.
        ValueError: a path is empty, cannot be read or has no text, or the fraction is
            not between 0 and 1.
    """
    if not 0 < validation_fraction < 1:
        fail(
            "validation_fraction",
            repr(validation_fraction),
            "a number between 0 and 1, both excluded",
            "0.05 is the default",
        )
    name, texts = gather_texts(path)
    return _split(name, _without_repeats(texts), validation_fraction)


def encode_text(text: str) -> UInt8[np.ndarray, " n"]:
    """The UTF-8 bytes of a text as tokens."""
    return np.frombuffer(text.encode(), np.uint8)


def decode_text(tokens: Integer[np.ndarray, " n"]) -> str:
    """The text of byte tokens; what is not UTF-8 becomes U+FFFD.

    Args:
        tokens: integers 0 .. 255.

    Raises:
        ValueError: a token is not a byte.
    """
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < ByteCorpus.vocab_size:
        fail(
            "tokens",
            f"values from {tokens.min()} to {tokens.max()}",
            "bytes, 0 to 255",
            "decode only tokens of a byte-level model",
        )
    return tokens.astype(np.uint8).tobytes().decode(errors="replace")


def _without_repeats(texts: Iterable[TextFile]) -> list[TextFile]:
    first: dict[bytes, TextFile] = {}
    for text in texts:
        first.setdefault(hashlib.sha256(text.content).digest(), text)
    return list(first.values())


def _split(name: str, texts: list[TextFile], fraction: float) -> ByteCorpus:
    sides: tuple[list[TextFile], list[TextFile]] = ([], [])
    for text in texts:
        sides[place_of(text.name) < fraction].append(text)
    split: Literal["file", "position"] = "file"
    train, validation = (b"".join(text.content for text in side) for side in sides)
    files = [tuple(text.name for text in side) for side in sides]
    if min(len(train), len(validation)) < _MIN_BYTES:
        split = "position"
        train, validation, files = _cut(name, texts, fraction)
    digest = hashlib.sha256(f"{len(train)}\n".encode())
    digest.update(train)
    digest.update(validation)
    return ByteCorpus(
        name=name,
        train=np.frombuffer(train, np.uint8),
        validation=np.frombuffer(validation, np.uint8),
        train_files=files[0],
        validation_files=files[1],
        split=split,
        num_files=len(texts),
        fingerprint=digest.hexdigest(),
    )


def _cut(
    name: str, texts: list[TextFile], fraction: float
) -> tuple[bytes, bytes, list[tuple[str, ...]]]:
    """The text split by position; a file that is cut is named on both sides."""
    whole = b"".join(text.content for text in texts)
    if len(whole) < 2 * _MIN_BYTES:
        fail(
            f"path ({name})",
            f"{len(whole)} bytes",
            f"at least {2 * _MIN_BYTES}, to train and to validate",
            "use a longer text",
        )
    share = round(fraction * len(whole))
    cut = len(whole) - min(max(share, _MIN_BYTES), len(whole) - _MIN_BYTES)
    ends = np.cumsum([len(text.content) for text in texts])
    starts = ends - [len(text.content) for text in texts]
    before = tuple(
        t.name for t, start in zip(texts, starts, strict=True) if start < cut
    )
    after = tuple(t.name for t, end in zip(texts, ends, strict=True) if end > cut)
    return whole[:cut], whole[cut:], [before, after]
