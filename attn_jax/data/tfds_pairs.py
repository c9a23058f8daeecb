"""Sentence pairs of TensorFlow Datasets, without TensorFlow and without a download."""

import difflib
import os
from typing import Any, NoReturn

from attn_jax.data._checks import fail
from attn_jax.data.parallel import ParallelText


def load_tfds_pairs(
    name: str,
    split: str,
    source_language: str,
    target_language: str,
    data_dir: str | os.PathLike[str] | None = None,
) -> ParallelText:
    """The sentence pairs of a prepared set, such as wmt14_translate/de-en.

    Nothing is downloaded: a set that isn't prepared raises at once, and the message is
    the command that prepares it. White space around a sentence goes, and a pair with an
    empty side is left out, since nobody can correct it.

    Args:
        name: the set and its config, as TensorFlow Datasets names them.
        split: "train", "validation", "train[:1%]", ...
        source_language: the feature to translate from.
        target_language: the feature to translate to.
        data_dir: where sets are prepared (None: TensorFlow Datasets' own place).

    Returns:
        The pairs, in the order of the set.

    Raises:
        ImportError: the extra `data` isn't installed.
        FileNotFoundError: the set isn't prepared.
        ValueError: there is no such set, config, split or language, or it is prepared
            in a format that needs TensorFlow.
    """
    tfds = _import_tfds()
    where = None if data_dir is None else os.path.expanduser(data_dir)
    builder = _builder(tfds, name, where)
    languages = list(builder.info.features or ())
    for argument, language in (
        ("source_language", source_language),
        ("target_language", target_language),
    ):
        if language not in languages:
            remedy = "pass one of them"
            fail(argument, repr(language), f"one of {', '.join(languages)}", remedy)
    if source_language == target_language:
        expected = "another language than source_language"
        fail("target_language", repr(target_language), expected, "pass another one")
    rows = _rows(tfds, builder, name, split, where)
    source, target = [], []
    for number, row in enumerate(rows):
        sides = [
            _decode(row[language], f"{name}, {split}, row {number}, {language}").strip()
            for language in (source_language, target_language)
        ]
        if all(sides):
            source.append(sides[0])
            target.append(sides[1])
    named = f"{name}[{split}]"
    return ParallelText(
        source,
        target,
        (f"{named}:{source_language}", f"{named}:{target_language}"),
    )


def _builder(tfds: Any, name: str, data_dir: str | None) -> Any:
    try:
        return tfds.builder(name, data_dir=data_dir)
    except tfds.core.registered.DatasetNotFoundError:
        known = tfds.list_builders(with_community_datasets=False)
        near = difflib.get_close_matches(name.split("/")[0], known, n=3)
        hint = f"for example {', '.join(near)}" if near else "such as wmt14_translate"
        expected = "the name of a set in TensorFlow Datasets"
        fail("name", repr(name), expected, f"check the spelling, {hint}")
    except ValueError as error:
        configs = tfds.builder_cls(name.split("/")[0].split(":")[0]).builder_configs
        expected = f"a config of {name.split('/')[0]}: {', '.join(configs)}"
        remedy = f"pass one of them behind a slash ({str(error).splitlines()[0]})"
        fail("name", repr(name), expected, remedy)


def _rows(tfds: Any, builder: Any, name: str, split: str, data_dir: str | None) -> Any:
    try:
        return tfds.data_source(name, split=split, data_dir=data_dir, download=False)
    except (NotImplementedError, AssertionError):
        _not_prepared(builder, name, data_dir)
    except ValueError as error:
        splits = ", ".join(builder.info.splits)
        if not splits:
            _not_prepared(builder, name, data_dir)
        fail("split", repr(split), f"one of {splits}, or a slice ({error})", "pass one")


def _not_prepared(builder: Any, name: str, data_dir: str | None) -> NoReturn:
    options = f"{name!r}, file_format='array_record'"
    if data_dir is not None:
        options += f", data_dir={data_dir!r}"
    command = (
        'python -c "import tensorflow_datasets as tfds, tensorflow_datasets.translate; '
        f'tfds.builder({options}).download_and_prepare()"'
    )
    if builder.is_prepared():
        fail(
            f"name ({name} at {builder.data_path})",
            f"a set in the format {builder.info.file_format.value}",
            "array_record or parquet, which can be read without TensorFlow",
            f"prepare it again, with another data_dir: {command}",
        )
    fail(
        "name",
        f"{name!r}, which isn't prepared at {builder.data_path}",
        "a set on this machine; nothing is downloaded unasked",
        f"download and prepare it: {command}",
        FileNotFoundError,
    )


def _decode(text: Any, where: str) -> str:
    """A sentence, which real sets hold as bytes and mocked ones as str."""
    if isinstance(text, str):
        return text
    try:
        return bytes(text).decode("utf-8")
    except UnicodeDecodeError as error:
        got = f"undecodable bytes at byte offset {error.start}"
        fail(where, got, "text in UTF-8", "prepare the set again")


def _import_tfds() -> Any:
    """The package, with its translation sets registered."""
    try:
        import tensorflow_datasets as tfds
        import tensorflow_datasets.translate
    except ImportError as error:
        raise ImportError(
            "Sets of TensorFlow Datasets need the package tensorflow-datasets: "
            "pip install 'attn_jax[data]'"
        ) from error
    return tfds
