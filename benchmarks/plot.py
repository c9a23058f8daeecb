"""Two log-log figures, drawn from results alone: time and temporary memory."""

from pathlib import Path
from statistics import median
from typing import Any

from attn_jax.analysis import plots
from benchmarks.results import Results
from experiments.common.figures import save

# In the order of `line_styles`: seven lines of ours, and dashed ones for the rest.
NAMES = ("softmax", "linear", "random", "dense", "factorized_dense")
NAMES += ("factorized_random", "mixture", "linear scan", "jax.nn", "flax.nnx")
NAMES += ("tokamax xla", "tokamax xla_chunked", "torch", "torch cumsum")
FIGURES = {"performance-time": "time", "performance-memory": "memory"}


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw both figures into a folder, and return their paths: none without a sweep."""
    if not results.get("sweep"):
        return []
    return save(
        {name: _figure(results, kind) for name, kind in FIGURES.items()}, folder
    )


def _figure(results: Results, kind: str) -> Any:
    figure, both = plots.panels(1, 2, share="y")
    titles = (("forward", "forward"), ("both", "forward + backward"))
    for axes, (direction, title) in zip(both, titles, strict=True):
        _curves(axes, results, direction, kind)
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xscale("log", base=2)
        axes.set(xlabel="N, tokens a row", yscale="log")
    both[0].set_ylabel("milliseconds a row" if kind == "time" else "temporary MB a row")
    plots.legend(figure)
    return figure


def _curves(axes: Any, results: Results, direction: str, kind: str) -> None:
    for name, look in plots.line_styles(NAMES).items():
        points = [
            (row["n"], value / row["batch"])
            for row in results.get("sweep", ())
            if (row["name"], row["direction"]) == (name, direction)
            and (value := _value(row, kind)) is not None
        ]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, label=name, markersize=4, linewidth=1.2, **look)


def _value(row: Any, kind: str) -> float | None:
    """Milliseconds or megabytes of a whole batch; None where there are none."""
    if kind == "time":
        return 1e3 * median(row["samples"]) if row.get("samples") else None
    return (row.get("temporary_bytes") or 0) / 1e6 or None
