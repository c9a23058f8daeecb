"""The table of the study of speed."""

from collections.abc import Mapping
from typing import Any

from experiments.common import provenance
from experiments.synthesizer.speed import megabytes, milliseconds

BOTH = "both"


def columns(results: Mapping[str, Any]) -> tuple[str, ...]:
    """The heads of the columns."""
    lengths = results["config"]["lengths"]
    times = (f"ms, {n:,}" for n in lengths)
    return ("row", *times, "forward ms", "MB", "parameters")


def table(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The cells, one tuple a row."""
    lengths = results["config"]["lengths"]
    longest = max(lengths)
    return [
        (
            row["row"],
            *(_shown(milliseconds(row, BOTH), n) for n in lengths),
            _shown(milliseconds(row, "forward"), longest),
            _shown(megabytes(row, BOTH), longest),
            f"{row['parameters']:,}",
        )
        for row in results["rows"]
    ]


def notes(results: Mapping[str, Any]) -> list[str]:
    """What the columns mean, a sentence each."""
    config = results["config"]
    return [
        "ms, N: milliseconds of a causal attention layer with its projections, "
        f"forward and backward, on rows of N tokens, {config['tokens']:,} tokens in "
        f"all; the median of {config['rounds']} rounds in which all rows take turns",
        f"forward ms, MB, parameters: at {max(config['lengths']):,} tokens; MB are the "
        "temporary arrays forward and backward, as XLA allots them",
    ]


def scale(results: Mapping[str, Any]) -> str:
    """What was measured, where and with what."""
    config = results["config"]
    return (
        f"{provenance.sentence(results)} One layer of width {config['d_model']} with "
        f"{config['num_heads']} heads, float32.\n"
    )


def _shown(by_length: Mapping[int, float], n: int) -> str:
    return f"{by_length[n]:.1f}" if n in by_length else "-"
