"""Sentences in, translations out."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from attn_jax.data import Vocabulary, bucket_lengths
from attn_jax.decoding import beam_search, greedy
from attn_jax.models import EncoderDecoder
from experiments.translation.config import TranslationConfig

ROWS = 32


class Translation(NamedTuple):
    """What was written.

    ids: the pieces, without eos. To encode the text may give others.
    """

    text: str
    ids: list[int]


class Translator:
    """Cuts sentences into pieces, decodes them in batches, and joins the pieces.

    A source is padded to the shortest bucket that holds its pieces and eos, and its
    translation has up to extra_length pieces more than that. A batch holds sentences of
    one bucket, so that the search is compiled once a bucket, and no translation depends
    on what is translated beside it. A source of more than max_length pieces is cut.
    """

    def __init__(self, vocabulary: Vocabulary, config: TranslationConfig) -> None:
        self._vocabulary, self._config = vocabulary, config
        self._ends = {"bos_id": vocabulary.bos_id, "eos_id": vocabulary.eos_id}

    def greedy(
        self, model: EncoderDecoder, sentences: Sequence[str]
    ) -> list[Translation]:
        """The likeliest piece each time."""

        def decode(source: Any, valid: Any, limit: int) -> Any:
            return greedy(model, source, max_length=limit, valid=valid, **self._ends)

        return self._translate(decode, sentences)

    def search(
        self, model: EncoderDecoder, sentences: Sequence[str]
    ) -> list[Translation]:
        """The best of a beam."""
        how = {"beam_size": self._config.beam_size, "alpha": self._config.alpha}

        def decode(source: Any, valid: Any, limit: int) -> Any:
            tokens, _ = beam_search(
                model, source, max_length=limit, valid=valid, **how, **self._ends
            )
            return tokens[:, 0]

        return self._translate(decode, sentences)

    def num_cut(self, sentences: Sequence[str]) -> int:
        """How many sentences are longer than max_length and are cut."""
        pieces = self._vocabulary.encode_batch(sentences)
        return sum(len(ids) >= self._config.max_length for ids in pieces)

    def _translate(
        self, decode: Callable[[Any, Any, int], Any], sentences: Sequence[str]
    ) -> list[Translation]:
        encoded = self._encode(sentences)
        found: dict[int, Translation] = {}
        for length, chosen in self._batches([len(ids) for ids in encoded]):
            source = np.zeros((ROWS, length), np.int32)
            for row, i in enumerate(chosen):
                source[row, : len(encoded[i])] = encoded[i]
            # Rows that the last batch lacks are copies of its first one.
            source[len(chosen) :] = source[0]
            limit = length + self._config.extra_length
            tokens = np.asarray(decode(jnp.asarray(source), source > 0, limit))
            for row, i in enumerate(chosen):
                found[i] = self._written(tokens[row].tolist())
        return [found[i] for i in range(len(sentences))]

    def _batches(self, sizes: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """Numbers of sentences of one bucket each, with its length."""
        lengths = bucket_lengths(self._config.max_length)
        buckets = np.searchsorted(lengths, np.asarray(sizes, np.int64))
        for bucket, length in enumerate(lengths):
            members = np.flatnonzero(buckets == bucket).tolist()
            for begin in range(0, len(members), ROWS):
                yield length, members[begin : begin + ROWS]

    def _written(self, tokens: list[int]) -> Translation:
        eos = self._vocabulary.eos_id
        ids = tokens[: tokens.index(eos)] if eos in tokens else tokens
        return Translation(self._vocabulary.decode(ids), ids)

    def _encode(self, sentences: Sequence[str]) -> list[list[int]]:
        room = self._config.max_length - 1
        pieces = self._vocabulary.encode_batch(sentences)
        return [[*ids[:room], self._vocabulary.eos_id] for ids in pieces]
