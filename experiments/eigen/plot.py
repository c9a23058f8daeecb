"""Three figures, drawn from results.json alone.

python -m experiments.eigen.plot runs/eigen/default/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attn_jax.analysis import plots
from experiments.common.figures import fill_and_save, redraw


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figures into a folder, and return their paths."""
    return fill_and_save(FIGURES, results, folder)


def _spectra(results: Mapping[str, Any]) -> Any:
    """Variance in the leading components of rows, a line a layer; centred, dotted."""
    figure, panels = _panels(results)
    for axes, row in zip(panels, results["rows"], strict=True):
        layers = {f"layer {i + 1}": np.asarray(x) for i, x in enumerate(row["spectra"])}
        centred = dict(
            zip(layers, map(np.asarray, row["centred_spectra"]), strict=True)
        )
        plots.spectra(layers, axes=axes)
        looks = plots.line_styles(layers, ordered=True)
        dotted = {name: look | {"linestyle": ":"} for name, look in looks.items()}
        plots.spectra(centred, styles=dotted, axes=axes)
        axes.set(title=row["model"], ylabel="")
    panels[0].set_ylabel("share of the variance")
    plots.legend(figure)
    return figure


def _overlaps(results: Mapping[str, Any]) -> Any:
    """Overlap of the leading spaces of all layers of all models."""
    layers = {row["model"]: len(row["spectra"]) for row in results["rows"]}
    tables = {(row["model"],) * 2: row["layers"]["overlap"] for row in results["rows"]}
    tables |= {tuple(pair["models"]): pair["overlap"] for pair in results["between"]}
    whole = np.block([[np.array(tables[a, b]) for b in layers] for a in layers])
    figure = plots.overlap_matrix(whole, groups=layers)
    rank, random = results["config"]["rank"], results["random_overlap"]
    figure.axes[-1].set_ylabel(f"overlap of {rank} components; random {random:.2f}")
    return figure


def _errors(results: Mapping[str, Any]) -> Any:
    """Held-out error over the number of known scores, means over layers."""
    figure, panels = _panels(results)
    known = results["config"]["known"]
    for axes, row in zip(panels, results["rows"], strict=True):
        bound = np.mean(row["curves"]["greedy"], axis=0)[:, 2]
        for name, look in plots.line_styles(row["curves"]).items():
            errors = np.mean(row["curves"][name], axis=0)[:, 1]
            axes.plot(known, errors, label=name, markersize=4, **look)
        axes.plot(known, bound, color="black", linestyle="--", label="components")
        axes.set(title=row["model"], xlabel="known scores a query", yscale="log")
    panels[0].set_ylabel("held-out error, share of the variance")
    plots.legend(figure)
    return figure


def _panels(results: Mapping[str, Any]) -> tuple[Any, Any]:
    """One panel a model."""
    figure, panels = plots.panels(1, len(results["rows"]), height=3.6, share="y")
    return figure, np.ravel(panels)


FIGURES = {"spectra": _spectra, "overlaps": _overlaps, "errors": _errors}


if __name__ == "__main__":
    sys.exit(redraw("eigen", draw))
