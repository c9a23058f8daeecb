"""results.json: everything that the tables and the figures are made from."""

import itertools
from typing import Any

import numpy as np

from attn_jax.analysis import eigen
from attn_jax.data import ByteCorpus
from experiments.common import provenance
from experiments.eigen.config import EigenConfig


def assemble(
    rows: list[dict[str, Any]],
    covariances: dict[str, list[np.ndarray]],
    timed: dict[str, Any],
    config: EigenConfig,
    corpus: ByteCorpus,
) -> dict[str, Any]:
    """The results of models that are all analysed."""
    return {
        "experiment": "eigen",
        "preset": config.preset,
        **provenance.joined(rows),
        "config": {
            **config.shared(),
            "models": [row["model"] for row in rows],
            "rank": config.rank,
            "corpus_fingerprint": corpus.fingerprint,
            "seeds": [config.seed],
        },
        "corpus": {
            "name": provenance.relative(corpus.name),
            "bytes": corpus.num_bytes,
        },
        "random_overlap": eigen.random_overlap(config.rank, config.length),
        "rows": [provenance.without_origin(row) for row in rows],
        "between": [
            _compared(one, other, covariances, config.rank)
            for one, other in itertools.permutations(covariances, 2)
        ],
        "timing": timed,
    }


def _compared(
    one: str, other: str, covariances: dict[str, list[np.ndarray]], r: int
) -> dict[str, Any]:
    """How the layers of one model explain those of another."""
    mine, theirs = covariances[one], covariances[other]

    def pairs(measure: Any) -> list[list[float]]:
        return [[measure(a, b, r) for b in theirs] for a in mine]

    return {
        "models": [one, other],
        "overlap": pairs(eigen.subspace_overlap),
        "transfer": pairs(eigen.transfer),
        "own": [eigen.explained_variance(b, r) for b in theirs],
    }
