"""Numbers over steps: of the lines of metrics, or of what results kept of them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from experiments.common.tables import mean_and_spread
from experiments.report.runs import Line, Run, holders

# What the training loop logs; all else is of an evaluation.
TRAINING = (
    "loss",
    "tokens_per_second",
    "learning_rate",
    "gradient_norm",
    "update_norm",
    "parameter_norm",
)
# Neither: they say whose a line is, or count.
ASIDE = (
    "step",
    "seed",
    "nonfinite",
    "tokens",
    "skipped",
    "skipped_steps",
    "training_seconds",
)


class Curve(NamedTuple):
    """A measure of one run, row and seed; a value that was not finite is None."""

    run: str
    row: str
    seed: int | None
    measure: str
    steps: list[int]
    values: list[float | None]


def curves_of(run: Run) -> list[Curve]:
    """All that a run has, from its metrics where there are any.

    A step that comes again begins the rest anew: there somebody ran a program again.
    """
    found: dict[tuple[str, int | None], dict[str, dict[int, float | None]]] = {}
    latest: dict[tuple[str, int | None], int] = {}
    for row, seed, step, numbers in run.lines or _kept(run.results):
        own = found.setdefault((row, seed), {})
        if step < latest.get((row, seed), step):
            for name, points in own.items():
                own[name] = {s: value for s, value in points.items() if s < step}
        latest[row, seed] = step
        for measure, value in numbers.items():
            if measure in ASIDE:
                continue
            if _lost(measure, numbers):
                own.setdefault(measure, {})[step] = None
            elif _is_number(value):
                own.setdefault(measure, {})[step] = float(value)
    return [
        Curve(run.name, *who, measure, list(points), list(points.values()))
        for who, own in found.items()
        for measure, points in own.items()
        if points
    ]


def measures(curves: Sequence[Curve]) -> list[str]:
    """Their names: of evaluations first, then those of training."""
    there = dict.fromkeys(curve.measure for curve in curves)
    return [
        *(name for name in there if name not in TRAINING),
        *(name for name in TRAINING if name in there),
    ]


def ends(curves: Sequence[Curve]) -> tuple[list[str], list[list[str]]]:
    """A table of where curves ended: evaluations and the loss, over seeds."""
    names = [name for name in measures(curves) if name not in TRAINING[1:]]
    groups = dict.fromkeys((curve.run, curve.row) for curve in curves)
    rows = []
    for run, row in groups:
        own = [curve for curve in curves if (curve.run, curve.row) == (run, row)]
        last = sorted(curve.steps[-1] for curve in own)
        cells = [_end([each for each in own if each.measure == name]) for name in names]
        reached = dict.fromkeys((last[0], last[-1]))
        rows.append([run, row, " to ".join(f"{step:,}" for step in reached), *cells])
    return ["run", "row", "steps", *names], rows


def not_finite(run: Run) -> list[str]:
    """What became infinite or NaN in a run, and how many steps it left out for it."""
    found: dict[tuple[str, str], str] = {}
    for row, seed, step, numbers in run.lines or _kept(run.results):
        who = ", ".join([run.name, *filter(None, [row, of_seed(seed)])])
        for measure in numbers:
            if measure not in ASIDE and _lost(measure, numbers):
                what = f"{measure} was not finite at step {step:,}"
                found.setdefault((who, measure), what)
        if skipped := numbers.get("skipped_steps"):
            found[who, "skipped"] = f"{skipped:,} steps left out"
    return [f"{who}: {what}" for (who, _), what in found.items()]


def of_seed(seed: int | None) -> str:
    """The seed in words, where it is known."""
    return "" if seed is None else f"seed {seed}"


def mean_curve(curves: Sequence[Curve]) -> tuple[list[int], list[float], list[str]]:
    """Steps that all seeds have, their mean there, and mean and spread in words."""
    points = [dict(zip(each.steps, each.values, strict=True)) for each in curves]
    shared = [
        step
        for step in curves[0].steps
        if all(each.get(step) is not None for each in points)
    ]
    values = [[each[step] for each in points] for step in shared]
    means = [fmean(value) for value in values]
    return shared, means, [mean_and_spread(value, "{:.5g}") for value in values]


def _end(curves: Sequence[Curve]) -> str:
    last = [curve.values[-1] for curve in curves]
    finite = [value for value in last if value is not None]
    if not last:
        return ""
    if len(finite) < len(last):
        return "not finite"
    if len({curve.steps[-1] for curve in curves}) > 1:
        return "at different steps"
    return mean_and_spread(finite, "{:#.4g}")


def _kept(results: Mapping[str, Any]) -> Iterator[Line]:
    """Evaluations that results have under "curve", wherever that is."""
    found = list(holders(results, "curve"))
    for row, holder in found:
        points = holder["curve"]
        if not isinstance(points[0], Mapping):
            unknown = f"evaluation of {results.get('experiment')}"
            every = [other for _, other in found]
            names = ["step", *_names(holder, every, unknown)]
            points = [dict(zip(names, point, strict=True)) for point in points]
        for point in points:
            yield Line(row, holder.get("seed"), point["step"], point)


def _names(
    holder: Mapping[str, Any], every: Sequence[Mapping[str, Any]], unknown: str
) -> list[str]:
    """What a curve measures: the one number beside it that its last point repeats.

    Two may be equal by chance, though not in all curves with the same numbers beside.
    """
    alike = [other for other in every if _numbers(other) == _numbers(holder)]
    names = []
    for i in range(1, len(holder["curve"][-1])):
        same = [
            key
            for key in _numbers(holder)
            if all(other["curve"][-1][i] == other[key] for other in alike)
        ]
        nameless = unknown if i == 1 else f"{unknown}, number {i}"
        names.append(same[0] if len(same) == 1 else nameless)
    return names


def _numbers(holder: Mapping[str, Any]) -> list[str]:
    return sorted(key for key, value in holder.items() if isinstance(value, float))


def _lost(measure: str, numbers: Mapping[str, Any]) -> bool:
    """Whether a number was not finite."""
    value = numbers[measure]
    lost = isinstance(value, float) and not math.isfinite(value)
    return lost or measure in numbers.get("nonfinite", ())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
