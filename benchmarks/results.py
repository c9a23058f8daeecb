"""results.json: writing it, and asking it."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

Results = Mapping[str, Any]


def dumps(results: Results) -> str:
    """JSON with one line a row of measurements."""
    parts = []
    for name, value in results.items():
        if isinstance(value, list):
            rows = ",\n  ".join(json.dumps(_rounded(row)) for row in value)
            parts.append(f' "{name}": [\n  {rows}\n ]')
        else:
            parts.append(f' "{name}": {json.dumps(_rounded(value))}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def find(rows: Sequence[Any], **wanted: Any) -> dict[str, Any] | None:
    """The row with these values; None where there is none."""
    fits = (row for row in rows if wanted.items() <= row.items())
    return next(fits, None)


def seconds(row: Mapping[str, Any] | None, statistic: Any = median) -> float | None:
    """Median (or minimum) of a row's samples; None where it wasn't measured."""
    samples = (row or {}).get("samples")
    return statistic(samples) if samples else None


def growth(points: Sequence[tuple[float, float]]) -> float | None:
    """The slope of log y over log x, by least squares; None for fewer than 3 points."""
    if len(points) < 3:
        return None
    x, y = (np.log([point[i] for point in points]) for i in (0, 1))
    return float(np.polyfit(x, y, 1)[0])


def time_growth(results: Results, name: str, direction: str) -> float | None:
    """Growth of the time of one row of tokens, over lengths of 2^11 and more."""
    points = [
        (row["n"], median(row["samples"]) / row["batch"])
        for row in results.get("sweep", ())
        if (row["name"], row["direction"]) == (name, direction)
        and row["n"] >= 2**11
        and row.get("samples")
        and "batch" in row  # the matmul between them has no rows of tokens
    ]
    return growth(points)


def memory_growth(results: Results, name: str, direction: str) -> float | None:
    """Growth of the temporary memory of one row of tokens, from 2^11 to 2^16."""
    points = [
        (row["n"], row["temporary_bytes"])
        for row in results.get("memory", ())
        if (row["name"], row["direction"]) == (name, direction)
        and row.get("temporary_bytes")
    ]
    return growth(points)


def _rounded(value: Any) -> Any:
    """Floats with five digits: a clock has no more to say."""
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {key: _rounded(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(x) for x in value]
    return value
