"""Sentence pairs of TensorFlow Datasets, without TensorFlow and without a download."""

import os
from typing import Any

from attn_jax.data._checks import fail
from attn_jax.data._tfds import PreparedSet
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
    prepared = PreparedSet(
        name, data_dir, registered_by="translate", such_as="wmt14_translate"
    )
    languages = list(prepared.features)
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
    source, target = [], []
    for number, row in enumerate(prepared.rows(split)):
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


def _decode(text: Any, where: str) -> str:
    """A sentence, which real sets hold as bytes and mocked ones as str."""
    if isinstance(text, str):
        return text
    try:
        return bytes(text).decode("utf-8")
    except UnicodeDecodeError as error:
        got = f"undecodable bytes at byte offset {error.start}"
        fail(where, got, "text in UTF-8", "prepare the set again")
