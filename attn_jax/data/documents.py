"""Documents one after another, from files of text, Parquet or TensorFlow Datasets."""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attn_jax.data._checks import fail
from attn_jax.data._files import decode_utf8, gather_texts
from attn_jax.data._tfds import PreparedSet


class Documents(NamedTuple):
    """Texts that have nothing to do with one another.

    name: where they are from; the same name stands for the same texts in their order.
    texts: one at a time, to be gone through once.
    """

    name: str
    texts: Iterable[str]


def text_documents(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    separator: str | None = None,
) -> Documents:
    """Files of text, each of them one document, or several with a separator between.

    Files are read one at a time, so that they may be more than memory holds.

    Args:
        path: as in `load_corpus`: files, directories, globs; None is the source of
            Python's standard library.
        separator: what stands between the documents of a file, "<|endoftext|>" or an
            empty line (two line ends) say; it belongs to none of them.

    Raises:
        FileNotFoundError: a path does not exist or a glob matches nothing.
        ValueError: a path has no text, the separator is empty or, when the file is
            reached, it holds undecodable bytes.
    """
    if separator == "":
        remedy = "pass None to take each file as one document"
        fail("separator", "an empty string", "what stands between documents", remedy)
    name, files = gather_texts(path)
    contents = (decode_utf8("path", file.name, file.content) for file in files)
    if separator is None:
        return Documents(name, contents)
    parts = (part for content in contents for part in content.split(separator))
    return Documents(f"{name}, cut at {separator!r}", parts)


def parquet_documents(path: str | os.PathLike[str], column: str = "text") -> Documents:
    """The texts in a column of Parquet files, a row a document; nulls are left out.

    Args:
        path: a file, a directory, of which every *.parquet at any depth is read, or a
            glob.
        column: the one that holds the text.

    Raises:
        ImportError: the extra `data` isn't installed.
        FileNotFoundError: there is no such file.
        ValueError: a file isn't Parquet, or has no such column of text.
    """
    parquet = _import_parquet()
    name = os.path.expanduser(os.fspath(path))
    files = sorted(Path(name).rglob("*.parquet")) if os.path.isdir(name) else []
    files = files or [Path(found) for found in sorted(glob.glob(name, recursive=True))]
    files = [file for file in files if file.is_file()]
    if not files:
        expected = "a file, a directory with *.parquet, or a glob that matches some"
        fail("path", repr(name), expected, "check the spelling", FileNotFoundError)
    for file in files:
        _check_column(parquet, file, column)
    return Documents(f"{name}:{column}", _rows(parquet, files, column))


def tfds_documents(
    name: str,
    split: str = "train",
    feature: str = "text",
    data_dir: str | os.PathLike[str] | None = None,
) -> Documents:
    """The texts of a prepared set of TensorFlow Datasets, such as lm1b.

    Args:
        name, split, data_dir: as in `load_tfds_pairs`, and so are the errors.
        feature: the one that holds the text.
    """
    found = PreparedSet(name, data_dir, registered_by=("text",), such_as="lm1b")
    rows = found.texts(split, {"feature": feature})
    return Documents(f"{name}[{split}]:{feature}", (text for (text,) in rows))


def _rows(parquet: Any, files: list[Path], column: str) -> Iterator[str]:
    for file in files:
        with parquet.ParquetFile(file) as opened:
            for batch in opened.iter_batches(batch_size=1024, columns=[column]):
                yield from filter(None, batch.column(0).to_pylist())


def _check_column(parquet: Any, file: Path, column: str) -> None:
    """Raise unless the file has such a column, and it holds text."""
    try:
        schema = parquet.read_schema(file)
    except (ValueError, OSError) as error:
        cause = str(error).splitlines()[0] if str(error) else repr(error)
        got = f"what can't be read ({cause})"
        fail(f"path ({file})", got, "a Parquet file", "leave it out, or get it again")
    kinds = {field.name: str(field.type) for field in schema}
    texts = [name for name, kind in kinds.items() if kind in _TEXT]
    if column not in texts:
        kind = f", which holds {kinds[column]}" if column in kinds else ""
        expected = f"one of {', '.join(texts)}" if texts else "a column of text"
        remedy = "pass one of them" if texts else f"{file} has none"
        fail("column", f"{column!r}{kind}", expected, remedy)


_TEXT = ("string", "large_string", "string_view")


def _import_parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files need the package pyarrow: pip install 'attn_jax[data]'"
        ) from error
    return parquet
