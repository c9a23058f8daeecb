"""Sentence pairs of TensorFlow Datasets, without TensorFlow and without a download."""

import os

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
        source_language: the feature to translate from; of another set of pairs, such as
            cnn_dailymail, any feature that holds text: article.
        target_language: the feature to translate to: highlights, there.
        data_dir: where sets are prepared (None: TensorFlow Datasets' own place).

    Returns:
        The pairs, in the order of the set.

    Raises:
        ImportError: the extra `data` isn't installed.
        FileNotFoundError: the set isn't prepared.
        ValueError: there is no such set, config, split or language, or it is prepared
            in a format that needs TensorFlow.
    """
    if source_language == target_language:
        expected = "another language than source_language"
        fail("target_language", repr(target_language), expected, "pass another one")
    languages = {"source_language": source_language, "target_language": target_language}
    prepared = PreparedSet(
        name,
        data_dir,
        registered_by=("summarization", "translate"),
        such_as="wmt14_translate",
    )
    kept = [pair for pair in prepared.texts(split, languages) if all(pair)]
    named = f"{name}[{split}]"
    return ParallelText(
        [source for source, _ in kept],
        [target for _, target in kept],
        (f"{named}:{source_language}", f"{named}:{target_language}"),
    )
