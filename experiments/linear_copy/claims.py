"""What the paper says about its copy task, and what came out here."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from experiments.common.claim import Claim, counted, verdict
from experiments.linear_copy.table import ENOUGH
from experiments.linear_copy.training import LOSS, SYMBOLS

PAPER = "Katharopoulos et al. 2020, figure 2"
CAUTION = (
    "The paper shows curves and gives no number. Shorter sequences and smaller models, "
    "trained for minutes: what holds here may not hold at the paper's scale, nor the "
    "other way round."
)


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """The claims whose models are all in the results."""
    rows = {row["model"]: row for row in results["rows"]}
    if "linear" not in rows:
        return []
    found = [_as_softmax(rows)] if "softmax" in rows else []
    hashes = [name for name in rows if name.startswith("lsh-")]
    return found + [_below(rows["linear"], rows[name]) for name in hashes]


def _as_softmax(rows: Mapping[str, Any]) -> Claim:
    """Linear copies as softmax does, if that copies at all."""
    symbols = {
        name: [run[SYMBOLS] for run in rows[name]["runs"]]
        for name in ("softmax", "linear")
    }
    enough, count = sum(x >= ENOUGH for x in symbols["linear"]), len(symbols["linear"])
    held = "yes" if enough == count else "no"
    return Claim(
        "Linear attention copies as well as softmax attention",
        PAPER,
        "both curves end at one loss",
        ", ".join(
            f"{name} {fmean(shares):.2%} of the symbols"
            for name, shares in symbols.items()
        ),
        f"{held} ({counted(enough, count)} at {ENOUGH:.0%} or more)"
        if min(symbols["softmax"]) >= ENOUGH
        else "undecided (softmax does not copy)",
    )


def _below(linear: Mapping[str, Any], other: Mapping[str, Any]) -> Claim:
    """Linear ends at a lower loss than hashes, on the seeds that both have."""
    ours, theirs = (
        {run["seed"]: run[LOSS] for run in row["runs"]} for row in (linear, other)
    )
    seeds = sorted(ours.keys() & theirs.keys())
    found = {
        name: [losses[seed] for seed in seeds]
        for name, losses in (("linear", ours), (other["model"], theirs))
    }
    return Claim(
        f"Linear attention ends at a lower loss than {other['model']}",
        PAPER,
        "its curve lies lower",
        ", ".join(f"{name} {fmean(x):.4f}" for name, x in found.items() if x),
        verdict(list(zip(*found.values(), strict=True))),
    )
