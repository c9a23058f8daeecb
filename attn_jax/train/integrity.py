"""Sums of the files of a checkpoint: written with them, compared before they are read.

Orbax notices a file that is gone or cut, but not every byte of an array that changed.
"""

import json
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

FILE_NAME = "CHECKSUMS"
_PIECE = 1 << 24
_THREADS = 8


def write_sums(directory: Any) -> None:
    """Record size and CRC-32 of every file below a directory, in a file in it.

    Cost: one reading of what has just been written, on the thread that writes.

    Args:
      directory: an `etils.epath.Path`, local or of a bucket.
    """
    names = sorted(_names(directory))
    sums = dict(zip(names, _sums(directory, names), strict=True))
    text = json.dumps(sums, indent=0, sort_keys=True)
    (directory / FILE_NAME).write_text(text)


def damaged_files(directory: Any, *, part: int = 0, parts: int = 1) -> list[str]:
    """Which files are not what they were when the sums were written, in words.

    Args:
      directory: as for `write_sums`. One without sums, written before there were any,
        counts as whole.
      part, parts: look at every parts-th file from number part on, as one of several
        hosts that share the work.
    """
    path = directory / FILE_NAME
    if not path.exists():
        return []
    try:
        sums = dict(json.loads(path.read_text()))
    except (TypeError, ValueError) as error:
        return [f"{FILE_NAME} is no JSON: {error}"]
    names = sorted(sums)[part::parts]
    return [
        f"{name} is {found}, was {sums[name]}"
        for name, found in zip(names, _sums(directory, names), strict=True)
        if found != sums[name]
    ]


def _names(directory: Any, above: str = "") -> Iterator[str]:
    """The files below a directory, with / between the words of their paths."""
    for path in directory.iterdir():
        if path.is_dir():
            yield from _names(path, f"{above}{path.name}/")
        else:
            yield f"{above}{path.name}"


def _sums(directory: Any, names: list[str]) -> list[str]:
    """Size and CRC-32 of files; zlib lets threads run side by side."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda name: _sum(directory / name), names))


def _sum(path: Any) -> str:
    if not path.exists():
        return "gone"
    size = crc = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            size, crc = size + len(piece), zlib.crc32(piece, crc)
    return f"{size} bytes of CRC-32 {crc:08x}"
