"""Two figures, drawn from results.json alone.

python -m experiments.compare.plot runs/compare/demo/results.json
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.common.figures import redraw

# The mechanism chooses the colour, +exclusive the line and the marker.
COLOURS = {
    "softmax": "#1f77b4",
    "linear": "#d95f02",
    "random": "#1b9e77",
    "factorized_random": "#66a61e",
    "dense": "#7570b3",
    "factorized_dense": "#e7298a",
    "mixture": "#4d4d4d",
}
OTHERS = ("#a6761d", "#e6ab02", "#17becf", "#8c564b")


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw both figures into a folder, and return their paths."""
    # A figure without pyplot opens no window, whatever the machine offers.
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, fill in FIGURES.items():
        figure = Figure(figsize=(8.2, 4.4), layout="constrained")
        axes = figure.add_subplot()
        handles = fill(axes, results)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.5)
        figure.legend(
            handles=handles, loc="outside right upper", fontsize=8, frameon=False
        )
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=120)
    return paths


def _loss_curves(axes: Any, results: Mapping[str, Any]) -> list[Any]:
    """Validation loss over steps."""
    config, rows = results["config"], _from_worst_to_best(results)
    handles = []
    for row in rows:
        steps, bits = _mean_curve([run["curve"] for run in row["runs"]])
        handles += axes.plot(steps, bits, label=_label(row), **_line(row["model"]))
    pairs = results["reference"]["byte_pairs_bits_per_byte"]
    axes.axhline(pairs, color="0.5", linewidth=0.8, linestyle=":")
    place = {"ha": "right", "va": "bottom", "color": "0.4", "fontsize": 8}
    axes.annotate("table of byte pairs", (config["steps"], pairs), **place)
    axes.set_xlim(0, config["steps"])
    axes.set_xlabel(f"steps of {config['batch_size']} x {config['length']} bytes")
    axes.set_ylabel("validation loss, bits per byte")
    axes.set_title("Loss while training", fontsize=10, loc="left")
    return handles


def _quality_and_speed(axes: Any, results: Mapping[str, Any]) -> list[Any]:
    """Validation loss over training speed; bars span the seeds."""
    handles = []
    for row in _from_worst_to_best(results):
        values, mean = _bits(row), _mean(row)
        handles.append(
            axes.errorbar(
                (row["tokens_per_second"] or 0) / 1000,
                mean,
                yerr=[[mean - min(values)], [max(values) - mean]],
                fmt="o",
                capsize=3,
                label=_label(row),
                **_marker(row["model"]),
            )
        )
    axes.margins(0.1)
    axes.set_xlabel("training speed, thousand bytes a second (more is better)")
    axes.set_ylabel("validation loss, bits per byte (less is better)")
    steps = results["config"]["steps"]
    axes.set_title(f"Quality and speed after {steps:,} steps", fontsize=10, loc="left")
    return handles


def _from_worst_to_best(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The order in which curves end, from the top of the figure to its bottom."""
    return sorted(results["rows"], key=_mean, reverse=True)


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['model']}  {_mean(row):.3f}"


def _bits(row: Mapping[str, Any]) -> list[float]:
    return [run["validation_bits_per_byte"] for run in row["runs"]]


def _mean(row: Mapping[str, Any]) -> float:
    return fmean(_bits(row))


def _mean_curve(curves: Sequence[Any]) -> tuple[list[float], list[float]]:
    """The mean over seeds, as far as all of them reach."""
    steps = [step for step, _ in min(curves, key=len)]
    columns = zip(*([bits for _, bits in curve] for curve in curves), strict=False)
    return steps, [fmean(column) for column in columns]


def _colour(model: str) -> str:
    mechanism = model.partition("+")[0]
    other = OTHERS[sum(mechanism.encode()) % len(OTHERS)]
    return COLOURS.get(mechanism, other)


def _line(model: str) -> dict[str, Any]:
    style = "--" if "+" in model else "-"
    return {"color": _colour(model), "linestyle": style, "linewidth": 1.4}


def _marker(model: str) -> dict[str, Any]:
    colour = _colour(model)
    fill = "white" if "+" in model else colour
    return {"color": colour, "markerfacecolor": fill, "markersize": 6}


FIGURES = {"loss_curves": _loss_curves, "quality_and_speed": _quality_and_speed}


if __name__ == "__main__":
    sys.exit(redraw("compare", draw))
