"""Figures, drawn from results.json alone.

python -m experiments.synthesizer.plot runs/synthesizer/lm-bytes/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from attn_jax.analysis import plots
from experiments.common.figures import Fill, fill_and_save, mechanism_styles, redraw
from experiments.synthesizer.claims import BASES, losses
from experiments.synthesizer.speed import megabytes, milliseconds


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
    return fill_and_save(figures(results), results, folder)


def _loss_curves(results: Mapping[str, Any]) -> Any:
    """Validation loss over steps, of every seed and their mean."""
    names = [row["row"] for row in results["rows"]]
    # One mechanism with several numbers of heads would look the same.
    same = any("@" in name for name in names)
    looks = plots.line_styles(names) if same else mechanism_styles(names)
    curves, styles = {}, {}
    for row in results["rows"]:
        label = f"{row['row']}  {fmean(run['curve'][-1][1] for run in row['runs']):.3f}"
        curves[label] = [run["curve"] for run in row["runs"]]
        styles[label] = looks[row["row"]]
    figure = plots.loss_curves(curves, styles=styles)
    figure.axes[0].set_ylabel(f"validation loss, {_unit(results)}")
    return figure


def _attention_weights(results: Mapping[str, Any]) -> Any:
    """How often weights of each size occur, a panel a layer, all rows in it."""
    rows = {
        row["row"]: run["weights"]
        for row in results["rows"]
        for run in row["runs"]
        if run.get("weights")
    }
    edges, *_ = (weights["edges"] for weights in rows.values())
    first = next(iter(rows.values()))
    stacks = [name for name in first if name != "edges"]
    depth = len(first[stacks[0]])
    figure, places = plots.panels(len(stacks), depth, height=2.6)
    for i, axes in enumerate(np.ravel(places)):
        stack, layer = stacks[i // depth], i % depth
        shares = {
            name: np.asarray(weights[stack][layer]["shares"])
            for name, weights in rows.items()
        }
        styles = mechanism_styles(shares)
        plots.weight_distributions(shares, np.asarray(edges), styles=styles, axes=axes)
        axes.set_title(f"{stack}, layer {layer + 1}", fontsize=10, loc="left")
    plots.legend(figure)
    return figure


def _heads(results: Mapping[str, Any]) -> Any:
    """What rows are ordered by, over the number of heads; bars span the seeds."""
    figure, axes = plots.panels()
    study = results["study"]
    families: dict[str, list[tuple[int, list[float]]]] = {}
    for row in results["rows"]:
        name, at, heads = row["row"].partition("@")
        number = int(heads) if at else results["config"]["num_heads"]
        families.setdefault(name, []).append((number, [*losses(row, study).values()]))
    styles = mechanism_styles(families)
    for name, points in families.items():
        points.sort()
        means = [fmean(values) for _, values in points]
        ends = [
            [mean - min(v) for mean, (_, v) in zip(means, points, strict=True)],
            [max(v) - mean for mean, (_, v) in zip(means, points, strict=True)],
        ]
        heads = [number for number, _ in points]
        axes.errorbar(heads, means, yerr=ends, label=name, capsize=3, **styles[name])
    axes.set_xscale("log", base=2)
    axes.set(xlabel="heads", ylabel=BASES[study].title)
    plots.legend(figure)
    return figure


def _time_and_memory(results: Mapping[str, Any]) -> Any:
    """Milliseconds and temporary megabytes over the length, forward and backward."""
    figure, both = plots.panels(1, 2)
    panels = ((milliseconds, "milliseconds"), (megabytes, "temporary MB"))
    styles = mechanism_styles(row["row"] for row in results["rows"])
    for axes, (measure, title) in zip(both, panels, strict=True):
        for row in results["rows"]:
            points, name = measure(row, "both"), row["row"]
            x, y = [*points.keys()], [*points.values()]
            axes.plot(x, y, label=name, markersize=4, **styles[name])
        axes.set_xscale("log", base=2)
        axes.set(yscale="log", xlabel="tokens a row", ylabel=title)
    plots.legend(figure)
    return figure


def _unit(results: Mapping[str, Any]) -> str:
    units = {"language": "bits per byte", "translation": "nats a piece"}
    return units.get(results["study"], "nats an example")


if __name__ == "__main__":
    sys.exit(redraw("synthesizer", draw))
