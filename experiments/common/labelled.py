"""Texts with classes, as the experiments that learn to tell these read them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from attn_jax.data import (
    LabelledText,
    load_labelled,
    load_tfds_labelled,
    split_labelled,
)

Splits = tuple[LabelledText, LabelledText, LabelledText]


class Source(Protocol):
    """The fields of a config that say where texts are from."""

    @property
    def tfds(self) -> str | None: ...

    @property
    def tfds_dir(self) -> Path | None: ...

    @property
    def features(self) -> Sequence[str]: ...

    @property
    def splits(self) -> tuple[str, str, str]: ...


def load_splits(source: Source, path: Path | None) -> Splits:
    """Training, validation and test: of a file by a hash, of a set by its splits."""
    if source.tfds is None:
        assert path is not None
        return split_labelled(load_labelled(path.expanduser()))
    train, validation, test = (
        load_tfds_labelled(
            source.tfds, split, source.features, data_dir=source.tfds_dir
        )
        for split in source.splits
    )
    return train, validation, test


def fingerprint(splits: Splits) -> str:
    """A digest of all examples."""
    digest = hashlib.sha256()
    for split in splits:
        for example in zip(split.texts, split.labels, strict=True):
            digest.update(repr(example).encode())
    return digest.hexdigest()
