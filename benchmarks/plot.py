"""Two log-log figures, drawn from results alone: time and temporary memory."""

from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.results import Results

COLOURS = {
    "softmax": "#1f77b4",
    "linear": "#d95f02",
    "linear scan": "#e6ab02",
    "random": "#1b9e77",
    "factorized_random": "#66a61e",
    "dense": "#7570b3",
    "factorized_dense": "#e7298a",
    "mixture": "#4d4d4d",
    "jax.nn": "#999999",
    "flax.nnx": "#c9a06a",
    "tokamax xla": "#8c564b",
    "tokamax xla_chunked": "#17becf",
    "torch": "#d62728",
    "torch cumsum": "#ff9896",
}
OURS = ("softmax", "linear", "linear scan", "random", "factorized_random")
OURS += ("dense", "factorized_dense", "mixture")
FIGURES = {"performance-time": "time", "performance-memory": "memory"}


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw both figures into a folder, and return their paths: none without a sweep."""
    from matplotlib.figure import Figure

    if not results.get("sweep"):
        return []
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, kind in FIGURES.items():
        figure = Figure(figsize=(9.4, 4.2), layout="constrained")
        both = figure.subplots(1, 2, sharey=True)
        titles = (("forward", "forward"), ("both", "forward + backward"))
        for axes, (direction, title) in zip(both, titles, strict=True):
            handles = _curves(axes, results, direction, kind)
            axes.set_title(title, fontsize=10, loc="left")
            axes.set_xlabel("N, tokens a row")
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.25, linewidth=0.5)
        both[0].set_ylabel(
            "milliseconds a row" if kind == "time" else "temporary MB a row"
        )
        figure.legend(handles=handles, loc="outside right upper", fontsize=8)
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=110)
    return paths


def _curves(axes: Any, results: Results, direction: str, kind: str) -> list[Any]:
    handles = []
    for name, colour in COLOURS.items():
        points = [
            (row["n"], value / row["batch"])
            for row in results.get("sweep", ())
            if (row["name"], row["direction"]) == (name, direction)
            and (value := _value(row, kind)) is not None
        ]
        style = "-" if name in OURS else "--"
        x, y = zip(*points, strict=True) if points else ((), ())
        options = {"marker": ".", "markersize": 4, "linewidth": 1.2}
        handles += axes.plot(x, y, style, color=colour, label=name, **options)
    return [handle for handle in handles if len(handle.get_xdata())]


def _value(row: Any, kind: str) -> float | None:
    """Milliseconds or megabytes of a whole batch; None where there are none."""
    if kind == "time":
        return 1e3 * median(row["samples"]) if row.get("samples") else None
    return (row.get("temporary_bytes") or 0) / 1e6 or None
