"""What models wrote, beside what other rows and runs made of the same."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.common.grid import numbers_of
from experiments.report.runs import Run, holders, of_a_grid, readable

# What a model wrote, among the texts of a sample; the others were given.
WRITTEN = "translation"


class Sample(NamedTuple):
    """What was given, by name, and what was made of it: run, row and text."""

    given: dict[str, str]
    made: list[tuple[str, str, str]]


def samples_of(runs: Sequence[Run]) -> list[Sample]:
    """One for each thing that was given; the first seed of a row stands for it."""
    found: dict[tuple[tuple[str, str], ...], dict[tuple[str, str], str]] = {}
    for run in runs:
        with readable(run.path):
            for row, given, text in _of(run):
                made = found.setdefault(tuple(given.items()), {})
                made.setdefault((run.name, row), text)
    return [
        Sample(dict(given), [(*who, text) for who, text in made.items()])
        for given, made in found.items()
    ]


def _of(run: Run) -> Iterator[tuple[str, dict[str, str], str]]:
    """Row, what was given, and what was made of it."""
    prompt = run.results.get("prompt")
    given = {"prompt": str(prompt)} if prompt else {}
    for row, holder in [*holders(run.results, "sample"), *_finished(run)]:
        yield row, given, str(holder["sample"])
    for row, holder in holders(run.results, "samples"):
        for sample in holder["samples"]:
            if isinstance(sample, Mapping) and WRITTEN in sample:
                told = {key: str(text) for key, text in sample.items()}
                yield row, told, told.pop(WRITTEN)


def _finished(run: Run) -> Iterator[tuple[str, dict[str, Any]]]:
    """Runs of a grid, whose results keep numbers alone."""
    for (row, _), path in of_a_grid(run.path).items():
        numbers = numbers_of(path)
        if numbers and numbers.get("sample"):
            yield row, numbers
