"""The tables at the end, made from results alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.common import provenance
from experiments.common.tables import aligned, show_table

KINDS = ("rows", "centred", "positions", "matrices")


def spectra_columns(results: Mapping[str, Any]) -> tuple[str, ...]:
    ranks = results["config"]["ranks"]
    return ("model, samples", "for 90 %", *(f"variance in {r}" for r in ranks))


def spectra(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Components for 90 % of the variance, and what some explain: least to most."""
    return [
        (
            f"{row['model']}, {kind}",
            _range(row["needed"][kind], "{:.0f}") if kind in row["needed"] else "-",
            *(
                _range(values, "{:.2f}")
                for values in zip(*row["explained"][kind], strict=True)
            ),
        )
        for row in results["rows"]
        for kind in KINDS
    ]


OVERLAPS = ("spaces compared", "overlap", "transfer", "the best possible")


def overlaps(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Means over pairs of layers or heads."""
    found = []
    for row in results["rows"]:
        own = np.diagonal(row["layers"]["transfer"])
        found.append(
            (
                f"{row['model']}, layers",
                f"{off_diagonal(row['layers']['overlap']):.2f}",
                f"{off_diagonal(row['layers']['transfer']):.2f}",
                f"{own.mean():.2f}",
            )
        )
        means = {
            name: np.mean([layer[name] for layer in row["head_pairs"]])
            for name in ("overlap", "transfer", "own")
        }
        found.append(
            (f"{row['model']}, heads of a layer", *map("{:.2f}".format, means.values()))
        )
    for pair in results["between"]:
        found.append(
            (
                f"{pair['models'][0]} for {pair['models'][1]}",
                f"{np.mean(pair['overlap']):.2f}",
                f"{np.mean(pair['transfer']):.2f}",
                f"{np.mean(pair['own']):.2f}",
            )
        )
    baseline = f"{results['random_overlap']:.2f}"
    return [*found, ("random spaces", baseline, baseline, "-")]


def off_diagonal(matrix: Sequence[Sequence[float]]) -> float:
    """The mean of all pairs of two different things; 1 where there is only one."""
    values = np.array(matrix)
    others = ~np.eye(len(values), dtype=bool)
    return float(values[others].mean()) if others.any() else 1.0


def error_columns(results: Mapping[str, Any]) -> tuple[str, ...]:
    known = results["config"]["known"]
    return ("model, selection", *(f"k = {k}" for k in known))


def errors(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Held-out error as a share of the variance, means over layers."""
    found = []
    for row in results["rows"]:
        curves = row["curves"]
        for name, layers in curves.items():
            means = np.mean(layers, axis=0)[:, 1]
            found.append((f"{row['model']}, {name}", *map("{:.3f}".format, means)))
        bound = np.mean(next(iter(curves.values())), axis=0)[:, 2]
        found.append((f"{row['model']}, components", *map("{:.3f}".format, bound)))
    return found


TIMES = (
    "selected scores",
    "shared keys ms",
    "own keys ms",
    "saved of scores",
    "of the others",
    "of all, maps free",
    "of all",
)


def times(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Measured milliseconds beside the four conventions' shares."""
    timed = results["timing"]
    found = [("all (softmax)", *[f"{timed['softmax']:.2f}"] * 2, *["0 %"] * 4)]
    for row in timed["rows"]:
        shares = (f"{100 * share:.0f} %" for share in row["saved"].values())
        found.append(
            (str(row["known"]), f"{row['columns']:.2f}", f"{row['rows']:.2f}", *shares)
        )
    return found


def _tables(results: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    return [
        (spectra_columns(results), spectra(results)),
        (OVERLAPS, overlaps(results)),
        (error_columns(results), errors(results)),
        (TIMES, times(results)),
    ]


def show(results: Mapping[str, Any]) -> None:
    """Print the tables and notes."""
    print()
    for columns, rows in _tables(results):
        show_table(columns, rows)
    print("\n".join(notes(results)) + "\n")


def markdown(results: Mapping[str, Any]) -> str:
    return "\n".join(aligned(*each) for each in _tables(results))


def notes(results: Mapping[str, Any]) -> list[str]:
    """What the numbers mean, and what was our choice."""
    config, timed = results["config"], results["timing"]
    even = timed["break_even"]
    return [
        "rows: scores of a query, of all positions and heads; centred: these without "
        "each row's mean, which the softmax does not see; positions: one covariance a "
        "position, means over them; matrices: all scores of a head, by a random "
        "sketch. Least to most of the layers",
        f"overlap: of spaces of {config['rank']} components, 1 for equal ones; "
        f"transfer: the share of the one's variance that the other's {config['rank']} "
        "components explain, beside what its own do",
        "k: error on held-out sequences as a share of the variance, rows by position, "
        f"a map for each, ridge {config['ridge']:g}; columns: the same keys for all "
        "queries; matrix, for short sequences alone: k of each row, any of which may "
        "tell of other rows; components: what no k directions of a row fall below",
        f"ms: the forward pass of {timed['batch']} sequences, {timed['heads']} heads "
        f"of {timed['width']}, at {config['length']} tokens; shares of multiply-adds "
        "by four conventions, of which none counts projections; nothing is saved from "
        f"k = {', '.join(f'{k:.0f}' for k in even.values())} on",
    ]


def scale(results: Mapping[str, Any]) -> str:
    """How large the run was, where and with what."""
    config = results["config"]
    seconds = ", ".join(
        f"{row['model']} {row['seconds']:.0f} and {row['all_seconds']:.0f}"
        for row in results["rows"]
    )
    peaks = [row["peak_bytes"] for row in results["rows"] if row["peak_bytes"]]
    most = f" At most {max(peaks) / 1e9:.1f} GB of memory till then." if peaks else ""
    return (
        f"{provenance.sentence(results)} {config['sequences']:,} sequences of "
        f"{config['length']} tokens and {config['held_out']:,} held out, of "
        f"{results['corpus']['name']}. Seconds for the statistics, and in all: "
        f"{seconds}.{most}\n"
    )


def _range(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    least, most = form.format(min(known)), form.format(max(known))
    return least if least == most else f"{least} to {most}"
