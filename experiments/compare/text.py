"""The text: windows to train on, bytes to validate on, two marks to compare with."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from attn_jax.data import (
    Batch,
    ByteCorpus,
    load_corpus,
    validation_batches,
    window_batch,
)
from experiments.common.bigrams import bits_of_pairs
from experiments.common.errors import fail
from experiments.compare.config import CompareConfig


class Text(NamedTuple):
    """A corpus, cut as the config says.

    validation: the bytes that validate, the first validation_bytes of that side.
    """

    corpus: ByteCorpus
    validation: np.ndarray
    config: CompareConfig

    def training_batch(self, step: int, seed: int) -> Batch:
        return window_batch(
            self.corpus.train,
            seed=seed,
            step=step,
            batch_size=self.config.batch_size,
            length=self.config.length,
        )

    def validation_batches(self) -> Iterator[Batch]:
        """Consecutive windows; each byte but the first is a target once."""
        # About as many bytes a batch as fill two cores; it changes no number.
        rows = max(1, 4096 // self.config.length)
        return validation_batches(
            self.validation, batch_size=rows, length=self.config.length
        )

    def prompt(self) -> np.ndarray:
        """Half a window of bytes from the middle of the validation side."""
        size = max(1, min(self.config.length // 2, len(self.validation)))
        begin = (len(self.validation) - size) // 2
        return self.validation[begin : begin + size]

    def bits_of_byte_pairs(self) -> float:
        """Bits per byte of a table of byte pairs, counted on the training side."""
        train, held_out = self.corpus.train, self.validation
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
    corpus = load_corpus(paths)
    corpus.require_batch(batch_size=config.batch_size, length=config.length)
    return Text(corpus, corpus.validation[: config.validation_bytes], config)
