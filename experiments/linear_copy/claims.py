"""What the paper says about its copy task, and what came out here."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from experiments.common.claim import Claim, verdict
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
    means, enough = {}, {}
    for name in ("softmax", "linear"):
        symbols = [run[SYMBOLS] for run in rows[name]["runs"]]
        means[name] = fmean(symbols)
        enough[name] = all(share >= ENOUGH for share in symbols)
    held = "yes" if enough["linear"] else "no"
    return Claim(
        "Linear attention copies as well as softmax attention",
        PAPER,
        "both curves end at one loss",
        ", ".join(f"{name} {mean:.2%} of the symbols" for name, mean in means.items()),
        f"{held} (every seed at {ENOUGH:.0%} or more)"
        if enough["softmax"]
        else "undecided (softmax does not copy)",
    )


def _below(linear: Mapping[str, Any], other: Mapping[str, Any]) -> Claim:
    """Linear ends at a lower loss than hashes, on the seeds that both have."""
    ours, theirs = (
        {run["seed"]: run[LOSS] for run in row["runs"]} for row in (linear, other)
    )
    pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    return Claim(
        f"Linear attention ends at a lower loss than {other['model']}",
        PAPER,
        "its curve lies lower",
        f"linear {fmean(ours.values()):.4f}, {other['model']} "
        f"{fmean(theirs.values()):.4f}",
        verdict(pairs) if pairs else "undecided (no seed in common)",
    )
