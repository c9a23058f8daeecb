"""What papers say about feature maps and normalisers, and what came out here."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from experiments.common.claim import Claim, verdict
from experiments.compare.training import BITS
from experiments.linear_copy.training import LOSS

CAUTION = (
    "Both claims are of arguments about gradients, to which the papers give no number "
    "for these tasks. Small models, trained for a minute: what holds here may not hold "
    "at a paper's scale, nor the other way round."
)
# Task -> the number that is lower where a row is better, and how it is written.
LOWER = {"copy": (LOSS, "{:.4f} nats"), "text": (BITS, "{:.3f} bits per byte")}
# Claim, paper, what it says, the row that should be better, the other one.
CLAIMS = (
    (
        "elu + 1 does better than relu, which has no gradient below 0",
        "Katharopoulos et al. 2020, section 3.2.1",
        "chosen for it, without numbers",
        "elu",
        "relu",
    ),
    (
        "A norm does better than the division, whose gradient is unbounded",
        "Qin et al. 2022, section 3.1",
        "argued from the gradients",
        "elu+norm",
        "elu",
    ),
)


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """The claims whose rows are in the results, one for each task."""
    return [
        Claim(f"{claim} ({task})", paper, theirs, _numbers(task, found), held)
        for claim, paper, theirs, better, worse in CLAIMS
        for task, rows in results["tasks"].items()
        if better in rows and worse in rows
        for found in [_found(task, rows, better, worse)]
        for held in [verdict(list(zip(*found.values(), strict=True)))]
    ]


def _found(task: str, rows: Mapping[str, Any], *names: str) -> dict[str, list[float]]:
    """The numbers of two rows, seed by seed."""
    measure, _ = LOWER[task]
    return {name: [run[measure] for run in rows[name]] for name in names}


def _numbers(task: str, found: Mapping[str, list[float]]) -> str:
    _, form = LOWER[task]
    return ", ".join(f"{name} {form.format(fmean(x))}" for name, x in found.items())
