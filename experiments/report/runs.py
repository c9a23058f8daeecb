"""What a run left: its results, its config, and the lines of its metrics."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attn_jax.train import read_metrics
from attn_jax.train.metrics import FILE_NAME
from experiments.common.errors import fail
from experiments.common.grid import row_and_seed
from experiments.common.workdir import read_json

# Keys of results that are no names of rows.
OF_RESULTS = ("rows", "runs", "tasks", "training")


class Line(NamedTuple):
    """A line of metrics: whose it is, and its numbers by name."""

    row: str
    seed: int
    step: int
    numbers: dict[str, Any]


class Run(NamedTuple):
    """A command's work directory, or the results.json of one.

    name: short, and another for each run of a page.
    results: empty while the command isn't done.
    config: of the results, or what the directory's runs have in common.
    """

    name: str
    path: Path
    results: dict[str, Any]
    config: dict[str, Any]
    lines: list[Line]
    figures: list[Path]


def read_runs(paths: Sequence[str]) -> list[Run]:
    """The runs of a page, in the order they were named.

    Raises:
      UserError: a path that holds no run, or that was named twice.
      ValueError, OSError: a file that cannot be read.
    """
    places = [Path(path) for path in paths]
    resolved = [place.resolve() for place in places]
    for i, place in enumerate(resolved):
        if place in resolved[:i]:
            expected = "different runs"
            fail("RUN", f"{paths[i]} twice", expected, "name each of them once")
    names = _short(resolved)
    return [_read(*each) for each in zip(names, places, strict=True)]


def _read(name: str, place: Path) -> Run:
    if place.is_file():
        results, lines, figures = _results(place), [], []
    else:
        results = _results(place / "results.json")
        lines = [line for file in _metrics_of(place) for line in _lines(place, file)]
        figures = sorted((place / "figures").glob("*.png"))
    if not results and not lines:
        there = "which is there" if place.is_dir() else "which is not there"
        expected = f"a directory with results, or with a line of {FILE_NAME}"
        remedy = "pass runs/EXPERIMENT/PRESET, or docs/results/EXPERIMENT/RUN.json"
        fail("RUN", f"{place}, {there} and holds no run", expected, remedy)
    config = results["config"] if results else _config(place)
    return Run(name, place, results, config, lines, figures)


def _results(file: Path) -> dict[str, Any]:
    """What a run wrote; empty where there is no such file."""
    results = read_json(file)
    if results is None:
        return {}
    named = isinstance(results.get("experiment"), str)
    if not named or not isinstance(results.get("config"), Mapping):
        expected = "the results.json of an experiment"
        remedy = 'pass one with "experiment" and "config", or a directory without'
        fail("RUN", f"{file}, which is none", expected, remedy)
    return results


@contextlib.contextmanager
def readable(run: Run) -> Iterator[None]:
    """A mistake of what a file holds, as one of the run that it was named for."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        fail(
            "RUN",
            f"{run.path}, whose files don't fit ({type(error).__name__}: {error})",
            "what an experiment of this version writes",
            "leave it out, or run it again",
        )


def _config(place: Path) -> dict[str, Any]:
    """What the runs of a directory have in common, while there are no results."""
    found = read_json(place / "config.json")
    if found is not None:
        return found
    of_runs = [read_json(file) or {} for file in sorted(place.glob("*/config.json"))]
    first = of_runs[0] if of_runs else {}
    return {
        key: value
        for key, value in first.items()
        if all(each.get(key) == value for each in of_runs)
    }


def _metrics_of(place: Path) -> list[Path]:
    files = [place / FILE_NAME, *sorted(place.glob(f"*/{FILE_NAME}"))]
    return [file for file in files if file.is_file()]


def _lines(place: Path, file: Path) -> Iterator[Line]:
    """The lines of a file; a directory says more of a run than its lines do."""
    own = row_and_seed(file.parent) if file.parent != place else None
    for numbers in read_metrics(file):
        row = str(numbers.get("model", numbers.get("name", "")))
        seed = numbers.get("seed", 0)
        if own is not None:
            row, seed = own
        yield Line(row, seed, numbers["step"], numbers)


def holders(value: Any, name: str, row: str = "") -> Iterator[tuple[str, Any]]:
    """Every object in results that has a name, and the row that it lies in.

    A row says so itself, or is a key.
    """
    if isinstance(value, list):
        for each in value:
            yield from holders(each, name, row)
    if not isinstance(value, Mapping):
        return
    row = str(value.get("row", value.get("model", row)))
    if value.get(name):
        yield row, value
    for key, each in value.items():
        inside = row if key in OF_RESULTS else f"{row}, {key}".removeprefix(", ")
        yield from holders(each, name, inside)


def _short(places: Sequence[Path]) -> list[str]:
    """As much of each path's end as tells them apart, two parts or more."""
    for count in range(2, max(len(place.parts) for place in places) + 1):
        names = ["/".join(place.with_suffix("").parts[-count:]) for place in places]
        if len(set(names)) == len(names):
            return names
    return [str(place) for place in places]
