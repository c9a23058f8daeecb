"""Texts with a class each, and a pretrained encoder that learns to tell it."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from attn_jax.data import LabelledBatch, LabelledBatches, LabelledText
from attn_jax.interop import huggingface
from attn_jax.models import Encoder
from attn_jax.ops import masks
from attn_jax.train import cross_entropy
from experiments.common.labelled import fingerprint, load_splits
from experiments.common.reader import Reader, load_reader
from experiments.eigen_training.config import TrainingConfig

MEASURE = "accuracy"
SIDES = ("train", "validation", "test")
# Rows hold so many percent of the texts, and their length is a multiple; the longest
# texts are cut, since every row costs as much as they do.
WHOLE, MULTIPLE = 99, 8


class Classification:
    """The task: batches, a loss and a measure."""

    measure = MEASURE

    def __init__(self, config: TrainingConfig) -> None:
        assert config.pretrained is not None
        self.config, self.pretrained = config, config.pretrained
        path = Path(config.data[0]) if config.data else None
        splits = load_splits(config, path)
        reader = load_reader(config.pretrained)
        ids = [_ids(split, reader) for split in splits]
        sizes = [1 + sum(len(part) + 1 for part in each) for one in ids for each in one]
        wanted = int(np.ceil(np.percentile(sizes, WHOLE) / MULTIPLE)) * MULTIPLE
        self.length = min(config.length, wanted)
        self.sides = {
            name: LabelledBatches(
                parts,
                split.labels,
                bos_id=reader.first,
                eos_id=reader.last,
                length=self.length,
            )
            for name, parts, split in zip(SIDES, ids, splits, strict=True)
        }
        train, _, test = splits
        self.parts, self.classes = train.num_parts, len(train.classes)
        self.summary = {
            "name": config.tfds or Path(train.name).name,
            "fingerprint": fingerprint(splits),
            "classes": self.classes,
            "longest": self.length,
            "tokens_a_text": float(np.minimum(sizes, self.length).mean()),
            "texts": {name: len(side) for name, side in self.sides.items()},
            "most_frequent": test.largest_share,
        }

    @property
    def targets_a_step(self) -> int:
        return self.config.batch_size

    def encoder(self, mechanism: Any, rngs: Any) -> Encoder:
        """The pretrained encoder with a new classifier."""
        return huggingface.load_encoder(
            self.pretrained,
            rngs=rngs,
            max_length=self.length,
            mechanism=mechanism,
            num_classes=self.classes,
            pooling="mean",
            dropout_rate=self.config.dropout_rate,
        )

    def batch(self, step: int, seed: int) -> LabelledBatch:
        size = self.config.batch_size
        return self.sides["train"].batch(step, seed=seed, batch_size=size)

    def held_out(self, side: str) -> Iterator[LabelledBatch]:
        """All of the test side, or the first texts of the validation side."""
        size, examples = 4 * self.config.batch_size, self.sides[side]
        count = len(examples) if side == "test" else self.config.held_out
        batches = examples.in_order(batch_size=size)
        return itertools.islice(batches, -(-count // size))

    def losses(self, model: Encoder, batch: LabelledBatch, rngs: Any) -> Any:
        """Sums of losses, of right answers, and of weights."""
        first, second = rngs
        mask = masks.padding(batch.real, batch.real)
        types = batch.types if model.config.num_types else None
        x = model(batch.tokens, mask=mask, types=types, rng=first)
        logits = model.class_logits(x, mask=mask, rng=second)
        loss, weight = cross_entropy(logits, batch.labels, weights=batch.weights)
        right = (jnp.argmax(logits, axis=-1) == batch.labels) * batch.weights
        return loss, jnp.sum(right), weight


def _ids(split: LabelledText, reader: Reader) -> list[list[list[int]]]:
    """The token ids of each part of each example."""
    return [[reader.ids(part) for part in parts] for parts in split.texts]
