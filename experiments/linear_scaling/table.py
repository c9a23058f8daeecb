"""The tables at the end, made from results alone."""

from collections.abc import Callable, Mapping
from typing import Any

from experiments.common import provenance
from experiments.common.tables import aligned, show_table
from experiments.linear_scaling.comparison import (
    MEMORY,
    TIME,
    Kind,
    beside_the_paper,
    exponent,
    find,
)
from experiments.linear_scaling.fits import star

BESIDE = ("", "paper", "here")
# Below this, what a process holds anyway blurs what the system says of a call.
VISIBLE = 32e6


def lengths_table(
    results: Mapping[str, Any], kind: Kind
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and cells: a line a mechanism, a column a length, the exponent last."""
    lengths = sorted({row["n"] for row in results["rows"]})
    unit = {"time": "ms a sample", "memory": "MB a sample"}[kind.name]
    columns = (unit, *(f"N = {n:,}" for n in lengths), "exponent")
    lines = []
    for model in models(results):
        cells = [_cell(find(results, model, n), kind.ours) for n in lengths]
        lines.append((model, *cells, exponent(kind.growth(results, model))))
    return columns, lines


def models(results: Mapping[str, Any]) -> list[str]:
    """The mechanisms, in their order."""
    return list(dict.fromkeys(row["model"] for row in results["rows"]))


def _cell(row: Mapping[str, Any], value: Callable[[Any], float | None]) -> str:
    """Three digits; a star where the memory is known though the call was left out."""
    number = value(row)
    if number is None:
        return "-"
    shown = f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
    return shown + star(row)


def show(results: Mapping[str, Any]) -> None:
    """Print the tables and notes."""
    for kind in (TIME, MEMORY):
        show_table(*lengths_table(results, kind))
    show_table(BESIDE, beside_the_paper(results))
    print("\n".join(notes(results)) + "\n")


def markdown(results: Mapping[str, Any]) -> str:
    """The tables as aligned Markdown."""
    tables = [lengths_table(results, kind) for kind in (TIME, MEMORY)]
    beside = beside_the_paper(results)
    return "\n".join(
        [
            *(aligned(*table) for table in tables),
            *([aligned(BESIDE, beside)] if beside else []),
        ]
    )


def notes(results: Mapping[str, Any]) -> list[str]:
    """What the numbers mean."""
    config, rows = results["config"], results["rows"]
    attention = "causal attention" if config["causal"] else "attention of all to all"
    compiling = sum(row.get("compile_seconds", 0.0) for row in rows)
    return [
        f"{attention}, the value and all gradients, {config['num_heads']} heads of "
        f"{config['head_dim']}, float32; {config['tokens']:,} tokens a call, so "
        f"{config['tokens']:,} / N samples and at least one",
        f"time: median of {config['rounds']} rounds, each of which goes once over all "
        f"calls of all lengths; compiling, {compiling:.0f} s in all, is apart",
        "memory: what XLA allots when it compiles a call: temporary arrays, inputs and "
        "results; * where the call, or one of those behind an exponent or a ratio, was "
        f"compiled and never run{_resident(rows)}",
        f"exponent: slope of log over log from N = {config['fit_from']:,} on; in "
        f"brackets that of the lowest and the highest single round{_off(results)}",
        *_stops(results),
        *_names(results),
    ]


def _resident(rows: Any) -> str:
    """How XLA's account of a call compares with what the system saw of it."""
    ratios = [
        row["resident_bytes"] / account
        for row in rows
        if row.get("resident_bytes") is not None
        for account in [row["temporary_bytes"] + row["result_bytes"]]
        if account >= VISIBLE
    ]
    if not ratios:
        return ""
    return (
        f"; in calls that were run the process grew by {min(ratios):.2f} to "
        f"{max(ratios):.2f} times what is allotted to temporary arrays and results"
    )


def _off(results: Mapping[str, Any]) -> str:
    """How far points lie from the lines of time."""
    found = {model: TIME.growth(results, model) for model in models(results)}
    off = [f"{model} {100 * g.off:.0f} %" for model, g in found.items() if g]
    return f"; points off the lines of time by at most: {', '.join(off)}" if off else ""


def _stops(results: Mapping[str, Any]) -> list[str]:
    """Where each curve stops, and why, as the paper's do."""
    lines = []
    for model in models(results):
        left = [r for r in results["rows"] if r["model"] == model and "left_out" in r]
        if left:
            lines.append(f"{model} stops: N = {left[0]['n']:,} {left[0]['left_out']}")
    return lines


def _names(results: Mapping[str, Any]) -> list[str]:
    """What is behind the names of the curves."""
    there = models(results)
    found = []
    if "softmax-dense" in there:
        found.append("softmax-dense keeps all weights, as the paper's softmax did")
    if "softmax-blockwise" in there:
        found.append(
            "softmax-blockwise never holds N x N weights: it has no curve in the paper"
        )
    if any(model.startswith("lsh-") for model in there):
        size = results["config"]["bucket_size"]
        found.append(
            f"lsh-X: X rounds of hashing, {size} tokens a bucket; hashing compares a "
            f"token with N / {2 * size} rotations: a part that grows with N squared"
        )
    return found


def scale(results: Mapping[str, Any]) -> str:
    """How large the run was, where and with what."""
    minutes = results["seconds"] / 60
    return f"{provenance.sentence(results)} It took {minutes:.0f} minutes.\n"
