"""The text: windows to train on, bytes to validate on, two marks to compare with."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attn_jax.data import (
    Batch,
    ByteCorpus,
    Vocabulary,
    decode_text,
    load_corpus,
    validation_batches,
    window_batch,
)
from experiments.common.bigrams import bits_of_pairs
from experiments.common.errors import fail
from experiments.compare.config import CompareConfig


@dataclass(frozen=True)
class Text:
    """A corpus as tokens: bytes, or the pieces of a vocabulary.

    train, validation: the tokens of both sides; of the bytes that validate, the first
        validation_bytes are read.
    bytes_per_token: of the validation side, on average.
    vocabulary: None for bytes.
    """

    corpus: ByteCorpus
    train: np.ndarray
    validation: np.ndarray
    config: CompareConfig
    bytes_per_token: float = 1.0
    vocabulary: Vocabulary | None = None

    @property
    def vocab_size(self) -> int:
        vocabulary = self.vocabulary
        return ByteCorpus.vocab_size if vocabulary is None else vocabulary.size

    def training_batch(self, step: int, seed: int) -> Batch:
        return window_batch(
            self.train,
            seed=seed,
            step=step,
            batch_size=self.config.batch_size,
            length=self.config.length,
        )

    def validation_batches(self) -> Iterator[Batch]:
        """Consecutive windows; each token but the first is a target once."""
        # About as many tokens a batch as fill two cores; it changes no number.
        rows = max(1, 4096 // self.config.length)
        return validation_batches(
            self.validation, batch_size=rows, length=self.config.length
        )

    def prompt(self) -> np.ndarray:
        """Half a window of tokens from the middle of the validation side."""
        size = max(1, min(self.config.length // 2, len(self.validation)))
        begin = (len(self.validation) - size) // 2
        return self.validation[begin : begin + size]

    def decode(self, tokens: np.ndarray) -> str:
        """The text of tokens; what is no UTF-8 becomes U+FFFD."""
        if self.vocabulary is None:
            return decode_text(tokens)
        return self.vocabulary.decode(tokens)

    def bits_of_byte_pairs(self) -> float:
        """Bits per byte of a table of byte pairs, counted on the training side."""
        train, held_out = self.train, self.validation
        return bits_of_pairs(
            (train[:-1], train[1:]),
            (held_out[:-1], held_out[1:]),
            ByteCorpus.vocab_size,
        )


UNIFORM_BITS = math.log2(ByteCorpus.vocab_size)


def load_text(config: CompareConfig) -> Text:
    """The text, if it holds a batch to train on and a byte to validate on."""
    paths = config.data
    if paths is not None and not any(path.strip() for path in paths):
        remedy = "pass one, or leave --data out for Python's standard library"
        fail("data", "no path", "files, directories or globs", remedy)
    return cut(load_corpus(paths), config)


def cut(corpus: ByteCorpus, config: CompareConfig) -> Text:
    """A corpus as text for a config, if it holds a batch to train on."""
    corpus.require_batch(batch_size=config.batch_size, length=config.length)
    validation = corpus.validation[: config.validation_bytes]
    return Text(corpus, corpus.train, validation, config)
