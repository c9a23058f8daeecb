"""The text with learnt tokens in front of every row."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from attn_jax.data import Batch
from experiments.compare.text import Text


@dataclass(frozen=True, kw_only=True)
class SunkText(Text):
    """A text whose rows begin with the same few tokens, which stand for no byte.

    Their embeddings are learnt and attention may rest on them: learnt sinks (Xiao et
    al. 2024). What they predict doesn't count, so that every row is asked the same.

    sinks: how many tokens; their ids come behind those of the text.
    """

    sinks: int

    @property
    def vocab_size(self) -> int:
        return super().vocab_size + self.sinks

    def training_batch(self, step: int, seed: int) -> Batch:
        return self._sunk(super().training_batch(step, seed))

    def validation_batches(self) -> Iterator[Batch]:
        return map(self._sunk, super().validation_batches())

    def _sunk(self, batch: Batch) -> Batch:
        first = super().vocab_size
        sinks = np.arange(first, first + self.sinks, dtype=batch.tokens.dtype)
        rows = np.broadcast_to(sinks, (len(batch.tokens), self.sinks))
        nothing = np.zeros(rows.shape, np.asarray(batch.weights).dtype)
        return Batch(
            np.concatenate([rows, batch.tokens], axis=1),
            np.concatenate([rows, batch.targets], axis=1),
            np.concatenate([nothing, batch.weights], axis=1),
        )


def with_sinks(text: Text, sinks: int) -> Text:
    """The text behind so many tokens, the text itself behind none."""
    if not sinks:
        return text
    same = {field.name: getattr(text, field.name) for field in fields(text)}
    return SunkText(**same, sinks=sinks)
