"""The numbers of one model, from its statistics."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attn_jax.analysis import eigen
from experiments.eigen.config import EigenConfig
from experiments.eigen.statistics import Statistics

SHARE = 0.9  # of the variance, for which components are counted


def measure(statistics: Statistics, config: EigenConfig) -> dict[str, Any]:
    """Everything that is said of a model by itself."""
    return {
        "spectra": [_shares(rows) for rows in statistics.rows],
        "centred_spectra": [_shares(rows) for rows in statistics.centred],
        "explained": _explained(statistics, config),
        "needed": {
            "rows": [_needed(_shares(rows)) for rows in statistics.rows],
            "centred": [_needed(_shares(rows)) for rows in statistics.centred],
            "positions": [
                float(np.mean([_needed(_shares(matrix)) for matrix in each.matrix]))
                for each in statistics.positions
            ],
        },
        "layers": compared(statistics.rows, config.rank),
        "head_pairs": _heads(statistics, config.rank),
        "curves": _curves(statistics, config),
    }


def compared(sources: Sequence[Any], r: int) -> dict[str, list[list[float]]]:
    """Overlap and transfer of every pair, rows explaining columns."""
    overlap = eigen.between(eigen.subspace_overlap, sources, r)
    transfer = eigen.between(eigen.transfer, sources, r)
    return {"overlap": overlap.tolist(), "transfer": transfer.tolist()}


def _shares(source: Any) -> list[float]:
    """The spectrum as shares of the whole."""
    values = eigen.spectrum(source)
    return (values / values.sum()).tolist()


def _needed(shares: Sequence[float]) -> int:
    """Components for nine tenths of the variance."""
    return int(np.searchsorted(np.cumsum(shares), SHARE) + 1)


def _explained(statistics: Statistics, config: EigenConfig) -> dict[str, Any]:
    """{kind: [layer][rank]}; positions are means over positions."""

    def each(source: Any) -> list[float]:
        return [eigen.explained_variance(source, r) for r in config.ranks]

    matrices = [sketch.components() for sketch in statistics.matrices]
    return {
        "rows": [each(rows) for rows in statistics.rows],
        "centred": [each(rows) for rows in statistics.centred],
        "positions": [
            np.mean([each(matrix) for matrix in layer.matrix], axis=0).tolist()
            for layer in statistics.positions
        ],
        "matrices": [
            [
                eigen.explained_variance(found, r) if r <= config.matrix_rank else None
                for r in config.ranks
            ]
            for found in matrices
        ],
    }


def _heads(statistics: Statistics, r: int) -> list[dict[str, float]]:
    """Means over the pairs of heads of a layer."""
    found = []
    for heads in statistics.heads:
        tables = compared(heads, r)
        others = ~np.eye(len(heads), dtype=bool)
        own = np.diagonal(tables["transfer"])
        means = {
            name: float(np.mean(np.array(t)[others])) for name, t in tables.items()
        }
        found.append({**means, "own": float(np.mean(own))})
    return found


def _curves(statistics: Statistics, config: EigenConfig) -> dict[str, Any]:
    """{selection: [layer][k]: fitted, held out, bound}, of rows by position."""
    layers = list(
        zip(statistics.positions, statistics.judges["positions"], strict=True)
    )
    found = {
        name: [_curve(*layer, config.known, select, config) for layer in layers]
        for name, select in eigen.SELECTIONS.items()
    }
    # The same keys for all queries of a layer, each query with a map of its own.
    columns = []
    for mine, judge in layers:
        chosen = eigen.column_selection(mine.matrix, max(config.known))

        def shared(matrix: Any, k: int, chosen: np.ndarray = chosen) -> np.ndarray:
            return chosen[:k]

        columns.append(_curve(mine, judge, config.known, shared, config))
    return {**found, "columns": columns, **_whole_curves(statistics, config)}


def _whole_curves(statistics: Statistics, config: EigenConfig) -> dict[str, Any]:
    """Likewise where a known score tells of all rows, k a row.

    {} where sequences are too long for it, or too few for as many scores.
    """
    n = config.length
    sizes = [n * k for k in config.known]
    if not statistics.whole or statistics.whole[0].count <= max(sizes):
        return {}

    def entries(matrix: Any, size: int) -> np.ndarray:
        keys = eigen.matrix_selection(matrix, n, size // n)
        return (n * np.arange(n)[:, None] + keys).reshape(-1)

    layers = zip(statistics.whole, statistics.judges["whole"], strict=True)
    return {"matrix": [_curve(*layer, sizes, entries, config) for layer in layers]}


def _curve(
    mine: eigen.Covariance,
    judge: eigen.Covariance,
    sizes: Sequence[int],
    select: Callable[..., np.ndarray],
    config: EigenConfig,
) -> list[list[float]]:
    """Of one layer."""
    points = eigen.error_curve(mine, judge, sizes, select=select, ridge=config.ridge)
    return [list(point[1:]) for point in points]
