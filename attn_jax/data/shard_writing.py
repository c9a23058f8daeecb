"""Turns documents into token shards, whole or not at all, and goes on when stopped."""

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from attn_jax.data._checks import fail, integer
from attn_jax.data._shard_index import (
    INDEX,
    SPLITS,
    UNFINISHED,
    VOCABULARY,
    Index,
    Shard,
    check_sum,
    open_shard,
    read_index,
    write_shard,
)
from attn_jax.data._shard_side import Full, Side
from attn_jax.data._split import place_of
from attn_jax.data.documents import Documents
from attn_jax.data.shards import TokenShards, load_shards
from attn_jax.data.vocabulary import Vocabulary

_CHARACTERS = 1 << 22  # encoded at once, on all cores


def write_shards(
    documents: Documents,
    folder: str | os.PathLike[str],
    *,
    vocabulary: Vocabulary,
    validation_fraction: float = 0.01,
    shard_tokens: int = 100_000_000,
    notify: Callable[[Shard], None] | None = None,
) -> TokenShards:
    """Encode documents and write them, each behind the vocabulary's eos_id.

        document -> validation  when  blake2b(document) / 2⁶⁴ < validation_fraction

    So the same text is on the same side wherever it occurs. Documents keep their order
    and are never cut; empty ones are left out. A shard gets its name once it is
    complete, and the folder its index when all are: what is stopped leaves nothing that
    looks whole, and the same call goes on behind the last shard, after going through
    the documents before it once more, without encoding them. The bytes that come out
    are those of a call that nobody stopped. A folder that is finished is left alone.

    Cost: memory of two shards on each side.

    Args:
        documents: what to encode; `text_documents`, `parquet_documents`,
            `tfds_documents`, or a name and an iterable.
        folder: where to write; new, empty, or that of an earlier call.
        vocabulary: turns text into ids; saved beside the shards.
        validation_fraction: expected share of documents that validate.
        shard_tokens: a shard holds at least so many tokens, if its side has them, and
            less than twice as many and a document.
        notify: is told of each shard when it is written.

    Returns:
        The shards, opened.

    Raises:
        FileExistsError: the folder holds something else.
        TypeError: documents that are no text, or no vocabulary.
        ValueError: an argument is out of range, a side gets no document, or the
            documents or arguments aren't those of the call that was stopped.
    """
    request = _request(documents, vocabulary, validation_fraction, shard_tokens)
    place = Path(folder).expanduser()
    begun = _begin(place, request)
    if begun is not None:
        vocabulary.save(place / VOCABULARY)
        _write(documents.texts, place, begun, vocabulary, notify)
        os.replace(place / UNFINISHED, place / INDEX)
    return load_shards(place, vocabulary=vocabulary, verify=False)


def _request(
    documents: Documents,
    vocabulary: Vocabulary,
    validation_fraction: float,
    shard_tokens: int,
) -> Index:
    """What is asked for, checked; no shard is written yet."""
    if not isinstance(documents, Documents):
        expected = "Documents: a name and the texts"
        remedy = "wrap an iterable: Documents('my texts', texts)"
        fail("documents", type(documents).__name__, expected, remedy, TypeError)
    if isinstance(documents.texts, str):
        remedy = f"pass a list of them: Documents({documents.name!r}, [text])"
        fail("documents", "one string", "texts, one a document", remedy, TypeError)
    if not isinstance(vocabulary, Vocabulary):
        got, expected = type(vocabulary).__name__, "a Vocabulary"
        remedy = "pass what load_vocabulary or train_vocabulary returns"
        fail("vocabulary", got, expected, remedy, TypeError)
    if not 0 < validation_fraction < 1:
        expected = "a number between 0 and 1, both excluded"
        got = repr(validation_fraction)
        fail("validation_fraction", got, expected, "0.01 is the default")
    return Index(
        source=documents.name,
        vocab_size=vocabulary.size,
        vocabulary=vocabulary.fingerprint,
        separator=vocabulary.eos_id,
        validation_fraction=float(validation_fraction),
        shard_tokens=integer("shard_tokens", shard_tokens, minimum=1),
    )


def training_texts(
    documents: Documents, *, validation_fraction: float, max_characters: int
) -> list[str]:
    """The first documents that `write_shards` trains on, to learn a vocabulary from."""
    found, size = [], 0
    for text in _nonempty(documents.texts):
        if size >= max_characters:
            break
        if _side_of(place_of(text), validation_fraction) == "train":
            found.append(text)
            size += len(text)
    return found


def check_folder(folder: Path) -> None:
    """Raise where `write_shards` would write among something else."""
    if folder.exists() and not folder.is_dir():
        got = "a file"
    else:
        names = sorted(path.name for path in folder.glob("*"))
        others = [name for name in names if not name.endswith(".tmp")]
        if not others or {INDEX, UNFINISHED} & {*others}:
            return
        got = f"one that holds {others[0]} and no {INDEX}"
    fail(
        f"folder ({folder})",
        got,
        "a new or an empty one, or one in which shards were being written",
        "pass another one",
        FileExistsError,
    )


def _begin(folder: Path, request: Index) -> Index | None:
    """What is written already, none of it or some; None where everything is."""
    check_folder(folder)
    finished, unfinished = folder / INDEX, folder / UNFINISHED
    if finished.is_file():
        _check_same(folder, read_index(finished), request)
        return None
    if unfinished.is_file():
        found = read_index(unfinished)
        _check_same(folder, found, request)
        shards = {name: _intact(folder, found, name) for name in SPLITS}
        return replace(request, shards=shards)
    folder.mkdir(parents=True, exist_ok=True)
    request.write(unfinished)
    return request


def _intact(folder: Path, index: Index, name: str) -> list[Shard]:
    """The shards of a side up to the first that isn't what was written."""
    kept: list[Shard] = []
    for shard in index.shards[name]:
        try:
            open_shard(folder, shard, index.dtype)
            check_sum(folder, shard)
        except (OSError, ValueError):
            break
        kept.append(shard)
    return kept


def _check_same(folder: Path, found: Index, request: Index) -> None:
    there, here = found.request, request.request
    different = [
        f"{name} {there[name]!r} there, {here[name]!r} now"
        for name in here
        if there[name] != here[name]
    ]
    if different:
        fail(
            f"folder ({folder})",
            f"shards that were prepared otherwise: {'; '.join(different)}",
            "those of the same call",
            "pass another folder, or remove this one",
        )


def _write(
    texts: Iterable[str],
    folder: Path,
    index: Index,
    vocabulary: Vocabulary,
    notify: Callable[[Shard], None] | None,
) -> None:
    """Write all shards that are missing."""

    def save(name: str, full: Full) -> None:
        number = len(index.shards[name])
        file = f"{name}-{number:05}.bin"
        checksum = write_shard(folder, file, full.tokens)
        shard = Shard(file, len(full.tokens), full.documents, checksum, full.seen)
        index.shards[name].append(shard)
        index.write(folder / UNFINISHED)
        if notify is not None:
            notify(shard)

    sides = {name: Side(name, index, save) for name in SPLITS}
    for batch in _batches(_missing(texts, sides, index.validation_fraction)):
        encoded = vocabulary.encode_batch([text for _, _, text in batch])
        for (side, digest, _), ids in zip(batch, encoded, strict=True):
            side.add(digest, ids)
    for side in sides.values():
        side.finish()


def _missing(
    texts: Iterable[str], sides: dict[str, Side], fraction: float
) -> Iterator[tuple[Side, bytes, str]]:
    """The documents that are in no shard yet, with their side and a digest."""
    for text in _nonempty(texts):
        place = place_of(text)
        digest = struct.pack("<d", place)
        side = sides[_side_of(place, fraction)]
        if not side.has(digest):
            yield side, digest, text


def _nonempty(texts: Iterable[str]) -> Iterator[str]:
    """The documents that hold something, each of them text."""
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            got = f"{type(text).__name__} as document {number}, counted from 0"
            remedy = "pass text; the vocabulary makes tokens of it"
            fail("documents", got, "each a str", remedy, TypeError)
        if text:
            yield text


def _side_of(place: float, fraction: float) -> str:
    """The side of a document, by its hash as a number in [0, 1)."""
    return "validation" if place < fraction else "train"


def _batches(
    documents: Iterator[tuple[Side, bytes, str]],
) -> Iterator[list[tuple[Side, bytes, str]]]:
    """Documents in lists of some million characters."""
    batch, size = [], 0
    for document in documents:
        batch.append(document)
        size += len(document[2])
        if size >= _CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
