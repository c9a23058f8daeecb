"""Figures, drawn from results.json alone.

python -m experiments.synthesizer.plot runs/synthesizer/lm-bytes/results.json
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.common.figures import redraw
from experiments.synthesizer.claims import BASES, losses
from experiments.synthesizer.speed import megabytes, milliseconds

# One colour a family; mixtures are dashed.
COLOURS = {
    "softmax": "#1f77b4",
    "fixed_random": "#999999",
    "random": "#1b9e77",
    "factorized_random": "#66a61e",
    "dense": "#7570b3",
    "factorized_dense": "#e7298a",
    "random+dense": "#4d4d4d",
    "dense+softmax": "#7570b3",
    "random+softmax": "#1b9e77",
}
OTHER = "#a6761d"

Fill = Callable[[Any, Mapping[str, Any]], None]


def figures(results: Mapping[str, Any]) -> dict[str, Fill]:
    """The figures that these results have, by name."""
    if results["study"] == "speed":
        return {"time_and_memory": _time_and_memory}
    found: dict[str, Fill] = {"loss_curves": _loss_curves}
    if any("@" in row["row"] for row in results["rows"]):
        found["heads"] = _heads
    if any(run.get("weights") for row in results["rows"] for run in row["runs"]):
        found["attention_weights"] = _attention_weights
    return found


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figures into a folder, and return their paths."""
    # A figure without pyplot opens no window, whatever the machine offers.
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, fill in figures(results).items():
        figure = Figure(layout="constrained")
        fill(figure, results)
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=110)
    return paths


def _loss_curves(figure: Any, results: Mapping[str, Any]) -> None:
    """Validation loss over steps, the mean of all seeds."""
    figure.set_size_inches(8.2, 4.4)
    axes = figure.add_subplot()
    for row in _from_worst_to_best(results):
        curves = [run["curve"] for run in row["runs"]]
        steps = [step for step, _ in min(curves, key=len)]
        columns = zip(*([loss for _, loss in curve] for curve in curves), strict=False)
        means = [fmean(column) for column in columns]
        label = f"{row['row']}  {means[-1]:.3f}"
        axes.plot(steps, means, label=label, marker=".", **_line(row["row"]))
    axes.set_xlabel("steps")
    axes.set_ylabel(f"validation loss, {_unit(results)}")
    _tidy(axes)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)


def _attention_weights(figure: Any, results: Mapping[str, Any]) -> None:
    """How often weights of each size occur, a panel a layer, all rows in it."""
    rows = [
        (row["row"], run["weights"])
        for row in results["rows"]
        for run in row["runs"]
        if run.get("weights")
    ]
    edges = rows[0][1]["edges"]
    stacks = [name for name in rows[0][1] if name != "edges"]
    depth = len(rows[0][1][stacks[0]])
    figure.set_size_inches(3.6 * depth + 2.2, 3.0 * len(stacks))
    for line, stack in enumerate(stacks):
        for layer in range(depth):
            axes = figure.add_subplot(len(stacks), depth, line * depth + layer + 1)
            for name, weights in rows:
                shares = weights[stack][layer]["shares"]
                # What is below the least edge stands in a bin of its own on the left.
                shown = [edges[1] / 2, *edges[1:]]
                axes.stairs(shares, shown, label=name, **_line(name))
            axes.set_xscale("log", base=2)
            axes.set_title(f"{stack}, layer {layer + 1}", fontsize=9, loc="left")
            axes.set_xlabel("attention weight", fontsize=8)
            axes.set_ylabel("share of the weights", fontsize=8)
            _tidy(axes)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)


def _heads(figure: Any, results: Mapping[str, Any]) -> None:
    """What rows are ordered by, over the number of heads; bars span the seeds."""
    figure.set_size_inches(5.6, 3.8)
    axes = figure.add_subplot()
    study = results["study"]
    families: dict[str, list[tuple[int, list[float]]]] = {}
    for row in results["rows"]:
        name, at, heads = row["row"].partition("@")
        number = int(heads) if at else results["config"]["num_heads"]
        families.setdefault(name, []).append((number, [*losses(row, study).values()]))
    for name, points in families.items():
        points.sort()
        means = [fmean(values) for _, values in points]
        ends = [
            [mean - min(v) for mean, (_, v) in zip(means, points, strict=True)],
            [max(v) - mean for mean, (_, v) in zip(means, points, strict=True)],
        ]
        heads = [number for number, _ in points]
        style = {**_line(name), "marker": "o", "capsize": 3}
        axes.errorbar(heads, means, yerr=ends, label=name, **style)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("heads")
    axes.set_ylabel(BASES[study].title)
    axes.legend(fontsize=8, frameon=False)
    _tidy(axes)


def _time_and_memory(figure: Any, results: Mapping[str, Any]) -> None:
    """Milliseconds and temporary megabytes over the length, forward and backward."""
    figure.set_size_inches(9.4, 4.0)
    both = figure.subplots(1, 2)
    panels = ((milliseconds, "milliseconds"), (megabytes, "temporary MB"))
    for axes, (measure, title) in zip(both, panels, strict=True):
        for row in results["rows"]:
            points = measure(row, "both")
            style = {**_line(row["row"]), "marker": ".", "label": row["row"]}
            axes.plot([*points.keys()], [*points.values()], **style)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("tokens a row")
        axes.set_ylabel(title)
        _tidy(axes)
    handles, labels = both[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)


def _from_worst_to_best(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The order in which curves end, from the top of the figure to its bottom."""
    study = results["study"]
    return sorted(results["rows"], key=lambda row: -fmean(losses(row, study).values()))


def _unit(results: Mapping[str, Any]) -> str:
    units = {"language": "bits per byte", "translation": "nats a piece"}
    return units.get(results["study"], "nats an example")


def _line(row: str) -> dict[str, Any]:
    style = "--" if "+" in row else "-"
    colour = COLOURS.get(row.partition("@")[0], OTHER)
    return {"color": colour, "linestyle": style, "linewidth": 1.3}


def _tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.5)


if __name__ == "__main__":
    sys.exit(redraw("synthesizer", draw))
