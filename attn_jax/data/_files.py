"""The files of a corpus: what a path stands for, how they are read and written."""

import itertools
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from attn_jax.data._checks import fail

_WILDCARDS = "*?["
_REMEDY = "pass a text file, a directory with text files, or a glob that matches some"


class TextFile(NamedTuple):
    """A file's name, relative to what the user named, and its content."""

    name: str
    content: bytes


def standard_library() -> tuple[str, list[TextFile]]:
    """The source of Python's standard library on this machine.

    Left out are its tests, and `encodings`: its generated tables of characters nearly
    repeat one another, so one that validates would be known from one that trains.
    """
    name = f"Python {sys.version_info.major}.{sys.version_info.minor} standard library"
    root = Path(sysconfig.get_paths()["stdlib"])
    found = _walk(root, _not_library) if root.is_dir() else []
    source = [p for p in found if p.suffix == ".py" and not p.name.startswith("test")]
    texts = list(_read_each(root, source))
    if not texts:
        fail("path", f"None, and the {name} has no source here", "text", _REMEDY)
    return name, texts


def gather_texts(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
) -> tuple[str, Iterator[TextFile]]:
    """What one path, several of them or None stand for: a name for it, and its texts.

    None is the source of Python's standard library on this machine.
    """
    if path is None:
        name, texts = standard_library()
        return name, iter(texts)
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not paths:
        fail("path", repr(path), "at least one path", "pass None for the default")
    found = [iter_texts(one) for one in paths]
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{os.fspath(paths[0])}{more}", itertools.chain.from_iterable(found)


def iter_texts(path: str | os.PathLike[str]) -> Iterator[TextFile]:
    """The texts that `path` stands for, one at a time, sorted by name, none empty.

    What is wrong with the path raises at the call, up to the first text.

    A file that is named itself is taken whatever it holds. In directories and globs,
    hidden files are left out, and so is every file with a NUL byte, which text in
    UTF-8 or any 8-bit encoding never has and binary formats nearly always do. Links
    to directories are not followed, so a loop of links does no harm.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        _fail(path, "a path as str or os.PathLike", "convert it first", TypeError)
    if not os.fspath(path).strip():
        _fail(path, "a path that is not empty", f"{_REMEDY}, or None for the default")
    location = Path(os.path.expanduser(path))
    kind = _kind(location)
    if kind == "file":
        texts = _read_each(location.parent, [location], named=True)
    elif kind == "directory":
        texts = _read_each(location, _walk(location, _hidden))
    elif kind == "glob":
        texts = _read_each(*_glob(location, path))
    elif kind == "missing":
        expected = "a path that exists"
        _fail(path, expected, f"check the spelling, or {_REMEDY}", FileNotFoundError)
    else:
        _fail(path, f"a text file or a directory, not {kind}", _REMEDY)
    first = next(texts, None)
    if first is None:
        _fail(path, "at least one file with text (not empty, no NUL byte)", _REMEDY)
    return itertools.chain([first], texts)


def _kind(location: Path) -> str:
    try:
        if location.is_dir():
            return "directory"
        if location.is_file():
            return "file"
        if location.exists():
            return "a device or a pipe"
    except OSError as error:
        return f"a path that cannot be looked up ({error.strerror})"
    return "glob" if set(str(location)) & set(_WILDCARDS) else "missing"


def _fail(
    path: object, expected: str, remedy: str, error: type[Exception] = ValueError
) -> NoReturn:
    fail("path", repr(path), expected, remedy, error)


def _hidden(name: str) -> bool:
    return name.startswith(".")


def _not_library(name: str) -> bool:
    skipped = ("site-packages", "dist-packages", "encodings", "idle_test")
    return name in skipped or name.startswith((".", "test"))


def _walk(root: Path, skipped: Callable[[str], bool]) -> list[Path]:
    found: list[Path] = []
    for folder, folders, names in os.walk(root, onerror=_cannot_list):
        folders[:] = [name for name in folders if not skipped(name)]
        found += [Path(folder, name) for name in names if not _hidden(name)]
    return found


def _cannot_list(error: OSError) -> NoReturn:
    expected = f"a directory that can be listed ({error.strerror})"
    _fail(error.filename, expected, "change its permissions or pass another path")


def _glob(pattern: Path, path: object) -> tuple[Path, list[Path]]:
    """The fixed part of a pattern and the files that match it."""
    parts = pattern.parts
    wild = next(i for i, part in enumerate(parts) if set(part) & set(_WILDCARDS))
    root, rest = Path(*parts[:wild]), [*parts[wild:]]
    if rest[-1] == "**":
        rest.append("*")
    names_hidden = any(_hidden(part) for part in rest)
    try:
        matches = list(root.glob("/".join(rest))) if root.is_dir() else []
    except ValueError as error:
        _fail(path, f"a valid glob ({error})", "write ** as a whole path component")
    if not matches:
        expected = "a glob that matches at least one file"
        _fail(path, expected, f"quote it and check it, or {_REMEDY}", FileNotFoundError)
    found = {
        match
        for match in matches
        if names_hidden or not any(map(_hidden, match.relative_to(root).parts))
    }
    return root, list(found)


def _read_each(
    root: Path, paths: list[Path], *, named: bool = False
) -> Iterator[TextFile]:
    """The texts among the files, sorted by name; one named itself may hold anything."""
    sorted_paths = sorted((path.relative_to(root).as_posix(), path) for path in paths)
    contents = ((name, _read(path)) for name, path in sorted_paths if path.is_file())
    return (
        TextFile(name, content)
        for name, content in contents
        if content and (named or b"\0" not in content)
    )


def read_file(argument: str, path: Path) -> bytes:
    """The bytes of one file, which the argument names."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        expected, remedy = "a file that exists", "check the spelling"
        fail(argument, repr(str(path)), expected, remedy, FileNotFoundError)
    except OSError as error:
        expected = f"a file that can be read ({error.strerror or error})"
        remedy = "change its permissions or pass another one"
        fail(argument, repr(str(path)), expected, remedy)


def decode_utf8(argument: str, name: str, content: bytes) -> str:
    """The text of a file without a byte order mark; errors name line and offset."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Of a file with a byte order mark, the decoder counts from behind the mark.
        start = error.start + len(content) - len(error.object)
        line = content.count(b"\n", 0, start) + 1
        fail(
            f"{argument} ({name}, line {line}, byte offset {start})",
            f"byte 0x{content[start]:02x}, which is not UTF-8 ({error.reason})",
            "text in UTF-8",
            "convert the file, for example with iconv -f LATIN1 -t UTF-8",
        )


def write_whole(path: Path, text: str) -> None:
    """Write a file of text whole or not at all."""
    scratch = path.with_name(f"{path.name}.tmp")
    scratch.write_text(text, encoding="utf-8")
    os.replace(scratch, path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        expected = f"a file that can be read ({error.strerror or error})"
        _fail(str(path), expected, "change its permissions or leave it out")
