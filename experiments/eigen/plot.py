"""Three figures, drawn from results.json alone.

python -m experiments.eigen.plot runs/eigen/default/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.figures import redraw


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figures into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, fill in FIGURES.items():
        paths.append(folder / f"{name}.png")
        fill(results).savefig(paths[-1], dpi=110)
    return paths


def _spectra(results: Mapping[str, Any]) -> Any:
    """Variance in the leading components of rows, a line a layer; centred, dotted."""
    figure, panels = _panels(results)
    for axes, row in zip(panels, results["rows"], strict=True):
        layers = len(row["spectra"])
        for i in range(layers):
            colour = str(0.75 * i / max(layers - 1, 1))
            for name, style in (("spectra", "-"), ("centred_spectra", ":")):
                shares = np.cumsum(row[name][i])
                label = f"layer {i + 1}" if name == "spectra" else None
                x = np.arange(1, len(shares) + 1)
                axes.plot(x, shares, style, color=colour, label=label, linewidth=1)
        axes.axhline(0.9, color="0.6", linewidth=0.6)
        axes.set_xscale("log")
        axes.set_xlabel("components")
        axes.set_title(row["model"], fontsize=10)
    panels[0].set_ylabel("share of the variance")
    panels[0].legend(frameon=False, fontsize=7)
    return figure


def _overlaps(results: Mapping[str, Any]) -> Any:
    """Overlap of the leading spaces of all layers of all models."""
    figure = _figure(6.4, 5.6)
    axes = figure.add_subplot()
    names = [row["model"] for row in results["rows"]]
    tables = {(row["model"],) * 2: row["layers"]["overlap"] for row in results["rows"]}
    tables |= {tuple(pair["models"]): pair["overlap"] for pair in results["between"]}
    whole = np.block([[np.array(tables[a, b]) for b in names] for a in names])
    image = axes.imshow(whole, vmin=0, vmax=1, cmap="viridis")
    ends = np.cumsum([0, *(len(row["spectra"]) for row in results["rows"])])
    for end in ends[1:-1]:
        axes.axhline(end - 0.5, color="white", linewidth=1)
        axes.axvline(end - 0.5, color="white", linewidth=1)
    middle = (ends[1:] + ends[:-1] - 1) / 2
    axes.set_xticks(middle, names)
    axes.set_yticks(middle, names)
    rank = results["config"]["rank"]
    label = f"overlap of {rank} components; random {results['random_overlap']:.2f}"
    figure.colorbar(image, label=label)
    return figure


def _errors(results: Mapping[str, Any]) -> Any:
    """Held-out error over the number of known scores, means over layers."""
    figure, panels = _panels(results)
    known = results["config"]["known"]
    for axes, row in zip(panels, results["rows"], strict=True):
        for name, layers in row["curves"].items():
            axes.plot(known, np.mean(layers, axis=0)[:, 1], marker=".", label=name)
        bound = np.mean(row["curves"]["greedy"], axis=0)[:, 2]
        axes.plot(known, bound, "k--", label="components", linewidth=1)
        axes.set_yscale("log")
        axes.set_xlabel("known scores a query")
        axes.set_title(row["model"], fontsize=10)
        axes.grid(alpha=0.25, linewidth=0.5)
    panels[0].set_ylabel("held-out error, share of the variance")
    panels[0].legend(frameon=False, fontsize=7)
    return figure


def _panels(results: Mapping[str, Any]) -> tuple[Any, Any]:
    """One panel a model."""
    count = len(results["rows"])
    figure = _figure(1.0 + 3.2 * count, 3.6)
    return figure, figure.subplots(1, count, sharey=True, squeeze=False)[0]


def _figure(width: float, height: float) -> Any:
    # A figure without pyplot opens no window, whatever the machine offers.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


FIGURES = {"spectra": _spectra, "overlaps": _overlaps, "errors": _errors}


if __name__ == "__main__":
    sys.exit(redraw("eigen", draw))
