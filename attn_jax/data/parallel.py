"""Parallel text: sentences and their translations, from line-aligned files or a TSV."""

import os
from dataclasses import dataclass
from pathlib import Path

from attn_jax.data._checks import fail
from attn_jax.data._files import decode_utf8, read_file

_REMEDY = "pass text in UTF-8, one sentence a line"


@dataclass(frozen=True)
class ParallelText:
    """Sentences and their translations, line i of one side that of line i of the other.

    Attributes:
        source: what is translated.
        target: its translations, as many, none of them empty.
        names: the files of the two sides; of a TSV the one file twice.
    """

    source: list[str]
    target: list[str]
    names: tuple[str, str]

    def __post_init__(self) -> None:
        _check(self.source, self.target, self.names)

    def __len__(self) -> int:
        return len(self.source)


def load_parallel(
    source_path: str | os.PathLike[str], target_path: str | os.PathLike[str]
) -> ParallelText:
    r"""Two files of which line i of one translates line i of the other.

    Lines end with \n or \r\n; other characters that Unicode counts as line ends stay in
    their line, which keeps files aligned that contain them. White space around a line
    goes, and a byte order mark at the start of a file. A pair of which both lines are
    empty is left out.

    Args:
        source_path: the sentences, in UTF-8.
        target_path: their translations, in UTF-8.

    Returns:
        The pairs in the order of the files.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is empty or holds undecodable bytes, the numbers of lines
            differ, or a line is empty while its counterpart isn't.
    """
    names = (os.fspath(source_path), os.fspath(target_path))
    source, target = (
        [line.strip() for line in read_lines(argument, name)]
        for argument, name in zip(("source_path", "target_path"), names, strict=True)
    )
    _check_aligned(source, target, names)
    return _without_empty_pairs(source, target, names)


def load_tsv(path: str | os.PathLike[str]) -> ParallelText:
    r"""A file with a sentence, a tab and its translation on each line.

    Nothing is quoted and nothing is a header. Lines are read as by `load_parallel`, and
    a line without any text is left out.

    Args:
        path: the file, in UTF-8.

    Returns:
        The pairs in the order of the file.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: the file is empty or holds undecodable bytes, a line hasn't exactly
            two columns, or one of the two is empty.
    """
    name = os.fspath(path)
    source, target = [], []
    for number, line in enumerate(read_lines("path", name), start=1):
        columns = (
            [column.strip() for column in line.split("\t")] if line.strip() else []
        )
        if len(columns) not in (0, 2):
            fail(
                f"path ({name}, line {number})",
                f"{len(columns)} columns",
                "2: a sentence, one tab, its translation",
                "remove further tabs, or leave the line out",
            )
        source.append(columns[0] if columns else "")
        target.append(columns[1] if columns else "")
    _check_aligned(source, target, (name, name))
    return _without_empty_pairs(source, target, (name, name))


def read_lines(argument: str, name: str) -> list[str]:
    r"""The lines of a file of text in UTF-8, without their ends (\n or \r\n).

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: the file can't be read, is empty, or holds undecodable bytes; the
            message names file, line and byte offset.
    """
    content = read_file(argument, Path(name).expanduser())
    if not content.strip():
        fail(f"{argument} ({name})", "an empty file", "at least one line", _REMEDY)
    lines = decode_utf8(argument, name, content).split("\n")
    if not lines[-1]:
        del lines[-1]
    return [line.removesuffix("\r") for line in lines]


def _check_aligned(
    source: list[str], target: list[str], names: tuple[str, str]
) -> None:
    """Raise for different numbers of lines, and where one of two lines is empty."""
    uneven = next(
        (
            number
            for number, (one, other) in enumerate(
                zip(source, target, strict=False), start=1
            )
            if (not one) != (not other)
        ),
        None,
    )
    where = "" if uneven is None else f"line {uneven} is empty in one of them only; "
    if len(source) != len(target):
        fail(
            f"source_path and target_path ({names[0]}, {names[1]})",
            f"{len(source)} and {len(target)} lines",
            "as many lines in both, line i translating line i",
            f"{where}look for a line that is missing or cut in two",
        )
    if uneven is not None:
        empty = names[0] if not source[uneven - 1] else names[1]
        side = "source" if not source[uneven - 1] else "target"
        fail(
            f"{side} ({empty}, line {uneven})",
            "an empty line whose counterpart has text",
            "text on both sides, or on neither",
            "fill it, or remove the line from both sides",
        )


def _without_empty_pairs(
    source: list[str], target: list[str], names: tuple[str, str]
) -> ParallelText:
    kept = [i for i, line in enumerate(source) if line]
    return ParallelText([source[i] for i in kept], [target[i] for i in kept], names)


def _check(source: list[str], target: list[str], names: tuple[str, str]) -> None:
    for side, lines, name in zip(
        ("source", "target"), (source, target), names, strict=True
    ):
        if not lines:
            fail(f"{side} ({name})", "no sentence", "at least one", _REMEDY)
    _check_aligned(source, target, names)
