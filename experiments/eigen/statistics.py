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


class Statistics(NamedTuple):
    """Of the scores of one model; lists have an item for each layer.

    heads: rows of each head. rows: of all heads together. centred: these, without each
        row's mean. positions: rows by position, all heads together. held_out: likewise,
        of other sequences. matrices: whole ones.
    """

    heads: list[list[eigen.Covariance]]
    rows: list[eigen.Covariance]
    centred: list[eigen.Covariance]
    positions: list[eigen.Covariance]
    held_out: list[eigen.Covariance]
    matrices: list[eigen.Sketch]


def gather(subject: Subject, config: EigenConfig) -> Statistics:
    """All statistics of a model."""
    heads = centred = positions = held_out = None
    matrices = None
    size: dict[str, Any] = {"length": config.length}
    for batch in _scores(subject.encoder, subject.sequences, config.batch_size):
        one = [batch]
        heads = eigen.score_statistics(one, heads="apart", start=heads, **size)
        centred = eigen.score_statistics(one, centred=True, start=centred, **size)
        positions = eigen.score_statistics(one, of="positions", start=positions, **size)
        matrices = eigen.score_sketches(
            one, rank=config.matrix_rank, seed=config.seed, start=matrices, **size
        )
    for batch in _scores(subject.encoder, subject.held_out, config.batch_size):
        held_out = eigen.score_statistics(
            [batch], of="positions", start=held_out, **size
        )
    if not (heads and centred and positions and held_out and matrices):
        raise ValueError(
            "sequences: got none; expected some to analyse and to judge by"
        )
    return Statistics(
        heads,
        [_merged(layer) for layer in heads],
        *([layer[0] for layer in each] for each in (centred, positions, held_out)),
        [layer[0] for layer in matrices],
    )


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
