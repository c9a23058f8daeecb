"""What a run left: its results, its config, and the lines of its metrics."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attn_jax.train import read_metrics
from attn_jax.train.metrics import FILE_NAME
from experiments.common.errors import UserError, fail
from experiments.common.grid import row_and_seed
from experiments.common.workdir import read_json

RESULTS = "results.json"
# Keys of results that are no names of rows.
OF_RESULTS = ("rows", "runs", "tasks", "training")


class Line(NamedTuple):
    """A line of metrics: whose it is, and its numbers by name."""

    row: str
    seed: int | None
    step: int
    numbers: Mapping[str, Any]


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

    @property
    def step(self) -> int:
        """How far it has come, by its metrics; 0 where there are none."""
        return max((line.step for line in self.lines), default=0)

    @property
    def goes_on(self) -> bool:
        """Whether it was trained further than its results say."""
        ended = self.config.get("steps") if self.results else None
        return isinstance(ended, int) and self.step > ended


def read_runs(paths: Sequence[str]) -> list[Run]:
    """The runs of a page, in the order they were named.

    Raises:
      UserError: a path that holds no run, or that was named twice.
      OSError: a file that cannot be read.
    """
    places = [Path(path) for path in paths]
    resolved = [Path(os.path.realpath(place)) for place in places]
    whole = [place / RESULTS if place.is_dir() else place for place in resolved]
    for i, place in enumerate(whole):
        if place in whole[:i]:
            expected = "different runs"
            fail("RUN", f"{paths[i]} twice", expected, "name each of them once")
    names = _short(resolved)
    return [_read(*each) for each in zip(names, places, strict=True)]


@contextlib.contextmanager
def readable(place: Path) -> Iterator[None]:
    """A mistake of what a file holds, as one of the run that it was named for."""
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise UserError(
            f"RUN: got {place}, whose files don't fit ({type(error).__name__}: "
            f"{error}); expected what an experiment of this version writes; leave it "
            "out, or run it again"
        ) from error


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


def _read(name: str, place: Path) -> Run:
    results, config, lines, figures = {}, {}, [], []
    with readable(place):
        if place.is_dir():
            results = _results(place / RESULTS)
            lines = _lines(place)
            figures = sorted((place / "figures").glob("*.png"))
            config = results.get("config") or _config(place)
        else:
            results = _results(place)
            config = results.get("config", {})
    if not results and not lines:
        _refuse(place)
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


def _refuse(place: Path) -> None:
    """Say what there is in the place of a run."""
    files = [*place.glob(f"*/{RESULTS}"), *place.glob(f"*/{FILE_NAME}")]
    inside = sorted({str(file.parent) for file in files})
    expected = f"a directory with results, or with a line of {FILE_NAME}"
    remedy = "pass runs/EXPERIMENT/PRESET, or docs/results/EXPERIMENT/RUN.json"
    if inside:
        remedy = f"pass {' '.join(inside)}"
        fail("RUN", f"{place}, which holds runs and is none", expected, remedy)
    if (place / "config.json").exists():
        remedy = "wait for the first, which comes after compilation"
        fail("RUN", f"{place}, which has logged nothing yet", expected, remedy)
    there = "which is there" if place.is_dir() else "which is not there"
    fail("RUN", f"{place}, {there} and holds no run", expected, remedy)


def _config(place: Path) -> dict[str, Any]:
    """What the runs of a directory have in common, while there are no results."""
    found = read_json(place / "config.json")
    if found is not None:
        return found
    of_runs = [
        read_json(path / "config.json") or {} for path in of_a_grid(place).values()
    ]
    first = of_runs[0] if of_runs else {}
    return {
        key: value
        for key, value in first.items()
        if all(each.get(key) == value for each in of_runs)
    }


def of_a_grid(place: Path) -> dict[tuple[str, int], Path]:
    """The runs that have a directory of their own, by row and seed."""
    found = {row_and_seed(path): path for path in sorted(place.glob("*"))}
    return {who: path for who, path in found.items() if who is not None}


def _lines(place: Path) -> list[Line]:
    """The lines of the run's own file and of those of its grid."""
    found = []
    for numbers in _numbers(place):
        row = str(numbers.get("model", numbers.get("name", "")))
        found.append(Line(row, numbers.get("seed"), numbers["step"], numbers))
    for (row, seed), path in of_a_grid(place).items():
        found += [Line(row, seed, line["step"], line) for line in _numbers(path)]
    for line in found:
        if not isinstance(line.step, int):
            raise TypeError(f'{FILE_NAME}: "step": {line.step!r} is no whole number')
    return found


def _numbers(place: Path) -> list[dict[str, Any]]:
    file = place / FILE_NAME
    return read_metrics(file) if file.is_file() else []


def _short(places: Sequence[Path]) -> list[str]:
    """As much of each path's end as tells them apart, two parts or more."""
    parts = [(*place.parts[:-1], place.name.removesuffix(".json")) for place in places]
    for count in range(2, max(map(len, parts)) + 1):
        names = ["/".join(each[-count:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [str(place) for place in places]
