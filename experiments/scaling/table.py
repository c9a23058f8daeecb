"""The tables, made from results alone."""

from collections.abc import Mapping
from typing import Any

from experiments.common import provenance
from experiments.common.tables import aligned, show_table
from experiments.scaling.rates import ACCELERATORS

MEMORY = (
    "mesh",
    "devices",
    "micro-batches",
    "state",
    "temporary",
    "estimated",
    "in all",
)


def memory(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Gigabytes a device: state by its layout, temporary arrays by XLA."""
    return [
        (
            row["mesh"],
            str(row["devices"]),
            str(row["accumulation"]),
            _gigabytes(row["state_bytes"]),
            _gigabytes(row["temporary_bytes"]),
            _gigabytes(row["estimated_temporary_bytes"]),
            _gigabytes(row["argument_bytes"] + row["temporary_bytes"]),
        )
        for row in results["rows"]
    ]


def exchanges(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Collectives a step, and what a device sends in them."""
    kinds = sorted({c["kind"] for row in results["rows"] for c in row["collectives"]})
    head = ("mesh", *kinds, "GB sent")
    lines = [head]
    for row in results["rows"]:
        counts = [
            sum(c["count"] for c in row["collectives"] if c["kind"] == kind)
            for kind in kinds
        ]
        sent = _gigabytes(row["wire_bytes"])
        lines.append((row["mesh"], *(f"{n:,}" for n in counts), sent))
    return lines


def times(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Seconds of products + of exchanges; in brackets where memory doesn't do."""
    lines = []
    for row in results["rows"]:
        needed = row["argument_bytes"] + row["temporary_bytes"]
        cells = []
        for name, chip in ACCELERATORS.items():
            parts = row["seconds"][name]
            cell = f"{parts['products']:.2f} + {parts['exchange']:.2f}"
            cells.append(cell if needed <= chip.memory else f"({cell})")
        lines.append((row["mesh"], *cells))
    return lines


def markdown(results: Mapping[str, Any]) -> str:
    """The tables as aligned Markdown."""
    head, *lines = exchanges(results)
    tables = (
        (MEMORY, memory(results)),
        (head, lines),
        (("mesh", *ACCELERATORS), times(results)),
    )
    return "\n".join(aligned(*each) for each in tables)


def show(results: Mapping[str, Any]) -> None:
    """Print the tables."""
    head, *lines = exchanges(results)
    show_table(MEMORY, memory(results))
    show_table(head, lines)
    show_table(("mesh", *ACCELERATORS), times(results))
    print("\n".join(notes(results)) + "\n")


def notes(results: Mapping[str, Any]) -> list[str]:
    """What the numbers mean."""
    config, row = results["config"], results["rows"][0]
    return [
        f"{row['parameters']:,} parameters, {config['batch_size']} sequences of "
        f"{config['length']:,} tokens a step, {row['flops']:.3g} operations; compiled "
        "and not run",
        "memory: GB a device; state by its layout, temporary arrays by XLA's account "
        "of its program for a CPU, which computes bfloat16 in float32; estimated: from "
        "sizes alone",
        "exchanges: as often as a step does them, those in loops included; GB that a "
        "device sends, around a ring. XLA for a CPU reduces whole gradients, where it "
        "leaves an accelerator only its piece: half of what is sent there",
        "times: seconds of products at the published rate + of exchanges at the "
        "published bandwidth. A step takes at least the longer of the two, and in "
        "practice twice the products; in brackets where a device's memory is too small",
    ]


def scale(results: Mapping[str, Any]) -> str:
    """How large the run was, where and with what."""
    minutes = results["seconds"] / 60
    return f"{provenance.sentence(results)} It took {minutes:.0f} minutes.\n"


def _gigabytes(n: float) -> str:
    return f"{n / 1e9:.2f}"
