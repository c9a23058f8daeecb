"""Exponents and ratios of the paper's figure beside those of a run."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from experiments.linear_scaling import paper
from experiments.linear_scaling.fits import (
    Growth,
    growth_of_memory,
    growth_of_time,
    line,
    megabytes,
    milliseconds,
    star,
)


class Kind(NamedTuple):
    """Time or memory: the paper's numbers, and how ours are read."""

    name: str
    theirs: Mapping[str, Mapping[int, float]]
    ours: Callable[[Mapping[str, Any]], float | None]
    growth: Callable[[Mapping[str, Any], str], Growth | None]


TIME = Kind("time", paper.MILLISECONDS, milliseconds, growth_of_time)
MEMORY = Kind("memory", paper.MEGABYTES, megabytes, growth_of_memory)
# Lengths at which the figure is read off for both.
RATIOS = {"softmax": (512, 1024, 2048, 4096), "lsh-1": (512, 65536)}


def beside_the_paper(results: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What, the paper's number and ours, where the run has one."""
    lines = [
        (f"exponent of {kind.name}, {ours}", f"{their_exponent(kind, name):.2f}", here)
        for kind in (TIME, MEMORY)
        for name, ours in paper.NAMES.items()
        for here in [exponent(kind.growth(results, ours))]
        if here != "-"
    ]
    for kind in (TIME, MEMORY):
        for name, lengths in RATIOS.items():
            for n in lengths:
                here = ratio(results, kind, paper.NAMES[name], n)
                if here is not None:
                    what = f"{kind.name} of {paper.NAMES[name]} over linear, N = {n:,}"
                    theirs = kind.theirs[name][n] / kind.theirs["linear"][n]
                    lines.append((what, f"{theirs:.1f}", str(here)))
    return lines


def their_exponent(kind: Kind, name: str) -> float:
    """The slope of a curve of the paper, by all of its points that are read off."""
    return line(list(kind.theirs[name].items()))[0]


class Ratio(NamedTuple):
    """How many times linear attention's time or memory a model takes at a length."""

    n: int
    value: float
    star: str

    def __str__(self) -> str:
        return f"{self.value:.1f}{self.star}"


def ratio(results: Mapping[str, Any], kind: Kind, model: str, n: int) -> Ratio | None:
    """None where one of the two isn't known."""
    rows = [find(results, name, n) for name in (model, "linear")]
    above, below = map(kind.ours, rows)
    if above is None or below is None:
        return None
    return Ratio(n, above / below, star(*rows))


def find(results: Mapping[str, Any], model: str, n: int) -> Mapping[str, Any]:
    """The row of a model and length; an empty one where there is none."""
    fits = (r for r in results["rows"] if r["model"] == model and r["n"] == n)
    return next(fits, {})


def exponent(growth: Growth | None) -> str:
    """An exponent, and where rounds give several, their range."""
    if growth is None:
        return "-"
    text = f"{growth.exponent:.2f}{growth.star}"
    if growth.least == growth.most:
        return text
    return f"{text} ({growth.least:.2f} to {growth.most:.2f})"
