"""The sentence pairs of an experiment: files, a prepared data set, or made up."""

import hashlib
from typing import Any, NamedTuple

import numpy as np

from attn_jax.data import ParallelText, load_parallel
from experiments.common.errors import fail
from experiments.translation.config import TranslationConfig

SPLITS = ("train", "valid", "test")
LETTERS = "abcdefghijklmnop"
SYNTHETIC_PAIRS = {"train": 50_000, "valid": 500, "test": 500}


class Corpus(NamedTuple):
    """Pairs to train on, to watch the training with, and to judge it by."""

    train: ParallelText
    valid: ParallelText
    test: ParallelText
    name: str

    @property
    def fingerprint(self) -> str:
        """SHA-256 of every pair, in order."""
        digest = hashlib.sha256()
        for split in self[:3]:
            for pair in zip(split.source, split.target, strict=True):
                digest.update("\t".join(pair).encode() + b"\n")
            digest.update(b"\n")
        return digest.hexdigest()

    @property
    def summary(self) -> dict[str, Any]:
        sizes = {name: len(pairs) for name, pairs in zip(SPLITS, self[:3], strict=True)}
        return {"name": self.name, "fingerprint": self.fingerprint, "pairs": sizes}


def load_corpus(config: TranslationConfig) -> Corpus:
    """The pairs that a config names."""
    if config.synthetic:
        return reversals(config.synthetic)
    if config.tfds is not None:
        return _from_tfds(config)
    assert config.data is not None
    folder = config.data.expanduser()
    ends = config.source, config.target
    paths = [[folder / f"{split}.{end}" for end in ends] for split in SPLITS]
    missing = [path.name for pair in paths for path in pair if not path.is_file()]
    if missing:
        fail(
            "--data",
            f"{folder}, without {', '.join(missing)}",
            "a folder with train, valid and test, each in both languages",
            "make it with python -m experiments.translation.prepare, or name the "
            "languages with --source and --target",
        )
    splits = [load_parallel(*pair) for pair in paths]
    return Corpus(*splits, name=folder.name)


def reversals(longest: int) -> Corpus:
    """Words of 1 to `longest` letters, each length as often, and the same backwards.

    No held-out word of 3 letters or more is in training; of shorter ones there are too
    few to hold any out.
    """
    rng = np.random.default_rng(0)

    def draw() -> str:
        letters = rng.integers(len(LETTERS), size=rng.integers(1, longest + 1))
        return "".join(LETTERS[i] for i in letters)

    held_out: set[str] = set()
    splits = []
    for split in reversed(SPLITS):
        words: list[str] = []
        while len(words) < SYNTHETIC_PAIRS[split]:
            word = draw()
            if len(word) < 3 or word not in held_out:
                words.append(word)
        if split != "train":
            held_out.update(words)
        names = (f"{split}.letters", f"{split}.reversed")
        splits.append(ParallelText(words, [word[::-1] for word in words], names))
    test, valid, train = splits
    return Corpus(train, valid, test, name=f"reversed words of 1 to {longest} letters")


def _from_tfds(config: TranslationConfig) -> Corpus:
    from attn_jax.data import load_tfds_pairs

    languages = config.source, config.target
    splits = [
        load_tfds_pairs(config.tfds, split, *languages, data_dir=config.tfds_dir)
        for split in ("train", "validation", "test")
    ]
    return Corpus(*splits, name=config.tfds)
