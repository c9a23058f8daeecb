"""Figures of a run: how mechanisms look, and drawing again from a results.json."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attn_jax.analysis.plots import line_styles
from experiments.common.errors import UserError, fail
from experiments.common.interrupts import complain
from experiments.common.workdir import read_json

Draw = Callable[[dict[str, Any], Path], list[Path]]
# Makes a figure of results.
Fill = Callable[[Mapping[str, Any]], Any]
# Half as many pixels again as a README shows, of a figure of its width.
DPI = 150

# A mechanism looks the same in every figure.
_LOOKS = line_styles(
    ("softmax", "linear", "random", "dense", "factorized_dense", "factorized_random")
    + ("mixture",)
)
# What has no look of its own: that of another, with dashes of its own. LSH never stands
# beside Synthesizers.
_LIKE = {
    "softmax-dense": ("softmax", "-"),
    "softmax-blockwise": ("factorized_dense", "-"),
    "lsh-1": ("factorized_random", "-"),
    "lsh-4": ("random", "-"),
    "lsh-8": ("dense", "-"),
    "lsh": ("random", ":"),
    "fixed_random": ("mixture", ":"),
    "fixed_random_wide": ("random", ":"),
    "convolution": ("dense", ":"),
    "bottleneck": ("factorized_dense", ":"),
    "gated": ("factorized_random", ":"),
    "random+dense": ("mixture", "--"),
}


def mechanism_styles(models: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The look of each model by its mechanism: colour, marker and dash.

    What has a + in its name, an exclusive mechanism or a mixture, is dashed and hollow;
    @ and a number of heads change nothing; a name that nobody knows is grey.
    """
    return {model: _look(model.partition("@")[0]) for model in models}


def _look(name: str) -> dict[str, Any]:
    base = name if name in _LIKE else name.partition("+")[0]
    base, dash = _LIKE.get(base, (base, "-"))
    look = _LOOKS.get(base, {"color": "#8c8c8c", "marker": "."}) | {"linestyle": dash}
    if "+" not in name:
        return look
    return look | {"linestyle": "--", "markerfacecolor": "white"}


def fill_and_save(
    fills: Mapping[str, Fill], results: Mapping[str, Any], folder: Path
) -> list[Path]:
    """Make each figure, write it by its name into a folder, and return the paths."""
    return save({name: fill(results) for name, fill in fills.items()}, folder)


def save(figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write each figure by its name into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=DPI)
    return paths


def redraw(experiment: str, draw: Draw, arguments: Sequence[str] | None = None) -> int:
    """`python -m experiments.<experiment>.plot RESULTS`: figures beside the results.

    Returns:
      The exit code: 2 where there are no such results.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        results, folder = _read(experiment, arguments)
    except (UserError, ValueError, OSError) as error:
        return complain(error, 2)
    for path in draw(results, folder):
        print(path)
    return 0


def _read(experiment: str, arguments: Sequence[str]) -> tuple[dict[str, Any], Path]:
    """The results, and where their figures go."""
    expected = f"the results.json of a run of {experiment}"
    remedy = f"pass runs/{experiment}/.../results.json"
    if len(arguments) != 1:
        fail("results", f"{len(arguments)} paths", expected, remedy)
    source = Path(arguments[0])
    results = read_json(source)
    if results is None:
        fail("results", f"{source}, which is not there", expected, remedy)
    if results.get("experiment") != experiment:
        fail("results", f"{source}, which is none", expected, remedy)
    return results, source.parent / "figures"
