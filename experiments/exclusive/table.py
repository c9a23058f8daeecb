"""The table at the end, made from results alone."""

from collections.abc import Mapping
from typing import Any

from experiments.common import provenance
from experiments.common.live import rate
from experiments.common.tables import aligned, mean_and_spread, show_table
from experiments.compare.training import BITS
from experiments.exclusive import overhead
from experiments.exclusive.pairs import bits, pairs

TRAINED = ("rows", "SA", "XSA", "SA − XSA, 95 %", "XSA better", "XSA tokens/s")
COSTS = ("what", "width", "tokens", "SA ms", "XSA ms", "median", "least", "memory")
WHAT = {"forward": "block, forward", "both": "block, both", "step": "training step"}


def columns(results: Mapping[str, Any]) -> tuple[str, ...]:
    """The heads of the columns."""
    return COSTS if results["study"] == "overhead" else TRAINED


def table(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The cells, one tuple a row, in the order of the columns."""
    if results["study"] == "overhead":
        return [_cost(cost) for cost in overhead.costs(results)]
    rows = {row["row"]: row for row in results["rows"]}
    found = pairs(results)
    lines = [
        (
            pair.row.condition,
            mean_and_spread([*pair.sa.values()], "{:.4f}"),
            mean_and_spread([*pair.xsa.values()], "{:.4f}"),
            pair.difference.written(".4f"),
            f"{sum(gain > 0 for gain in pair.gains.values())} of {len(pair.gains)}",
            rate(rows[name]),
        )
        for name, pair in found.items()
    ]
    return lines or [_alone(row) for row in results["rows"]]


def _alone(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A row whose partner isn't there yet."""
    said = mean_and_spread([*bits(row).values()], "{:.4f}")
    sides = ("-", said) if row["row"].startswith("x") else (said, "-")
    return (row["row"], *sides, "-", "-", rate(row))


def _cost(cost: Mapping[str, Any]) -> tuple[str, ...]:
    memory = cost["memory"]
    return (
        WHAT[cost["direction"]],
        f"{cost['width']}",
        f"{cost['n']:,}",
        *(f"{cost['milliseconds'][kind]:.1f}" for kind in overhead.KINDS),
        *(f"{100 * cost[key]:+.1f} %" for key in ("median", "least")),
        "-" if memory is None else f"{100 * memory:+.1f} %",
    )


def in_words(numbers: Mapping[str, Any]) -> str:
    """What a run came to, in a line."""
    seconds = numbers["training_seconds"] or 0
    return f"{numbers[BITS]:.4f} bits per byte; {seconds:.0f} s of training"


def markdown(results: Mapping[str, Any]) -> str:
    """The table as aligned Markdown."""
    return aligned(columns(results), table(results))


def show(results: Mapping[str, Any]) -> None:
    """Print the table: drawn in a terminal, as Markdown elsewhere."""
    show_table(columns(results), table(results))
    print("\n".join(notes(results)) + "\n")


def notes(results: Mapping[str, Any]) -> list[str]:
    """What the columns mean, a sentence each."""
    if results["study"] == "overhead":
        config = results["config"]
        return [
            "ms: the median of a call, forward alone or forward and backward, of "
            f"{config['rounds']} rounds in which both take turns",
            "median, least: what exclusion adds to the median and to the shortest call",
            "memory: what it adds to the temporary arrays, as XLA allots them",
        ]
    return [
        "SA, XSA: bits per byte of the validation text, the mean over seeds ± half the "
        "distance between the best and the worst",
        "SA − XSA: the mean over seeds of the gain of exclusion, each between two runs "
        "with the same initial values and the same batches, ± half of its 95 % "
        "interval by Student's t; above 0 exclusion helps",
    ]


def scale(results: Mapping[str, Any]) -> str:
    """How large the runs were, where and with what."""
    config = results["config"]
    if results["study"] == "overhead":
        return (
            f"{provenance.sentence(results)} Blocks on {config['tokens']:,} tokens a "
            f"call, heads of {config['head_dim']}, {config['dtype']}.\n"
        )
    corpus, seconds = results["corpus"], results["seconds"]
    return (
        f"{provenance.sentence(results)} Size {config['size']} where a row has no "
        f"other, {config['steps']:,} steps of {config['batch_size']} x "
        f"{config['length']} bytes of {corpus['name']}, peak learning rate "
        f"{config['learning_rate']:g}, {len(config['seeds'])} seeds. Training took "
        f"{seconds['training'] / 60:.0f} minutes in all, compiling "
        f"{seconds['compile'] / 60:.0f}.\n"
    )
