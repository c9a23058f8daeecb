"""Exponents of growth: straight lines through logarithms."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

Points = Sequence[tuple[float, float]]
FEWEST = 3


class Growth(NamedTuple):
    """How a quantity grows with the length.

    exponent: slope of the line through the logarithms.
    least, most: slopes of single rounds, each of which saw all lengths once.
    off: the largest distance of a point from the line, as a fraction of the line.
    first, last: the lengths from which and to which it was fitted.
    star: as in `star`, of all points together.
    """

    exponent: float
    least: float
    most: float
    off: float
    first: int
    last: int
    star: str


def milliseconds(row: Mapping[str, Any]) -> float | None:
    """Of a sample, the median of all rounds; None where it wasn't timed."""
    samples = row.get("samples")
    return 1e3 * median(samples) / row["batch"] if samples else None


def megabytes(row: Mapping[str, Any]) -> float | None:
    """Of a sample: temporary arrays, inputs and results; None where not known."""
    used = row.get("bytes")
    return used / row["batch"] / 1e6 if used else None


def star(*rows: Mapping[str, Any]) -> str:
    """A star where a number is of calls of which one was compiled and never run."""
    return "*" * any("left_out" in row for row in rows)


def growth_of_time(results: Mapping[str, Any], model: str) -> Growth | None:
    """Growth of a sample's time; None for fewer than 3 lengths."""
    rows = [row for row in _fitted(results, model) if row.get("samples")]
    if len(rows) < FEWEST:
        return None
    rounds = zip(*(row["samples"] for row in rows), strict=True)
    batches = [row["batch"] for row in rows]
    slopes = [
        line(_points(rows, [s / b for s, b in zip(samples, batches, strict=True)]))[0]
        for samples in rounds
    ]
    return _growth(rows, list(map(milliseconds, rows)), slopes)


def growth_of_memory(results: Mapping[str, Any], model: str) -> Growth | None:
    """Growth of a sample's bytes, which no round changes."""
    rows = [row for row in _fitted(results, model) if row.get("bytes")]
    if len(rows) < FEWEST:
        return None
    return _growth(rows, list(map(megabytes, rows)), [])


def line(points: Points) -> tuple[float, float]:
    """The exponent, and the largest distance of a point as a fraction of the line."""
    x, y = np.log(np.asarray(points, np.float64)).T
    slope, start = np.polyfit(x, y, 1)
    return float(slope), float(np.max(np.abs(np.expm1(y - slope * x - start))))


def _fitted(results: Mapping[str, Any], model: str) -> list[Mapping[str, Any]]:
    """The rows of a model that its exponents are fitted to, the shortest first."""
    least = results["config"]["fit_from"]
    return [r for r in results["rows"] if r["model"] == model and r["n"] >= least]


def _points(rows: Sequence[Mapping[str, Any]], values: Sequence[Any]) -> Points:
    return [(row["n"], value) for row, value in zip(rows, values, strict=True)]


def _growth(
    rows: Sequence[Mapping[str, Any]], values: Sequence[Any], slopes: Sequence[float]
) -> Growth:
    exponent, off = line(_points(rows, values))
    ends = min(slopes, default=exponent), max(slopes, default=exponent)
    return Growth(exponent, *ends, off, rows[0]["n"], rows[-1]["n"], star(*rows))
