"""From an encoder's scores to statistics, in one pass over its sequences."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from attn_jax.analysis import eigen
from attn_jax.models import Encoder
from experiments.eigen.config import EigenConfig
from experiments.eigen.subjects import Subject

# Up to this length there is a covariance of whole matrices, of length⁴ numbers.
SHORT = 32
# What `score_statistics` is asked for.
KINDS: dict[str, dict[str, Any]] = {
    "heads": {"heads": "apart"},
    "centred": {"centred": True},
    "positions": {"of": "positions"},
    "whole": {"of": "matrices"},
}
# Of these, what errors are judged by.
JUDGES = ("positions", "whole")


class Statistics(NamedTuple):
    """Of the scores of one model; lists have an item for each layer.

    heads: rows of each head. rows: of all heads together. centred: these, without each
        row's mean. positions: rows by position, all heads together. matrices: whole
        ones. whole: likewise, of which there are two lists for short sequences alone.
    judges: positions and whole of other sequences.
    """

    heads: list[list[eigen.Covariance]]
    rows: list[eigen.Covariance]
    centred: list[eigen.Covariance]
    positions: list[eigen.Covariance]
    matrices: list[eigen.Sketch]
    whole: list[eigen.Covariance]
    judges: dict[str, list[eigen.Covariance]]


def gather(subject: Subject, config: EigenConfig) -> Statistics:
    """All statistics of a model, in one pass over its sequences."""
    length, sketches = config.length, None
    kinds = [name for name in KINDS if name != "whole" or length <= SHORT]
    found: dict[str, Any] = dict.fromkeys(kinds)
    judges: dict[str, Any] = {name: None for name in kinds if name in JUDGES}

    def add(batch: eigen.Batch, to: dict[str, Any]) -> None:
        for name, so_far in to.items():
            to[name] = eigen.score_statistics(
                [batch], length=length, start=so_far, **KINDS[name]
            )

    for batch in _scores(subject.encoder, subject.sequences, config.batch_size):
        add(batch, found)
        sketches = eigen.score_sketches(
            [batch],
            length=length,
            rank=config.matrix_rank,
            seed=config.seed,
            start=sketches,
        )
    for batch in _scores(subject.encoder, subject.held_out, config.batch_size):
        add(batch, judges)
    heads = found.pop("heads")
    pooled = {name: _only(layers) for name, layers in found.items()}
    return Statistics(
        heads=heads,
        rows=[_merged(layer) for layer in heads],
        centred=pooled["centred"],
        positions=pooled["positions"],
        matrices=_only(sketches or []),
        whole=pooled.get("whole", []),
        judges={name: _only(layers) for name, layers in judges.items()},
    )


def _only(layers: list[list[Any]]) -> list[Any]:
    """What there is one of in each layer."""
    return [one for (one,) in layers]


def _scores(encoder: Encoder, rows: np.ndarray, size: int) -> Iterator[eigen.Batch]:
    graph, state = nnx.split(encoder)

    @jax.jit
    def logits(state: Any, tokens: jax.Array) -> jax.Array:
        return nnx.merge(graph, state).attention_logits(tokens)

    for begin in range(0, len(rows), size):
        tokens = rows[begin : begin + size]
        short = size - len(tokens)
        found = logits(state, jnp.asarray(np.pad(tokens, ((0, short), (0, 0)))))
        yield eigen.Batch(np.asarray(found)[:, : len(tokens)])


def _merged(parts: list[eigen.Covariance]) -> eigen.Covariance:
    whole = eigen.Covariance()
    for part in parts:
        whole = whole.merge(part)
    return whole
