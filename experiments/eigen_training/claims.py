"""What is known of the paper's claims about training, and what came out here."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from experiments.common.claim import Claim, verdict
from experiments.eigen_training.table import right

CAUTION = (
    "The paper's text was not at hand: its claims are those of a review, whose "
    "questions RQ4 and RQ5 these are, and details of selection, maps and masks are "
    "ours. Other data and smaller models: differences between rows compare, not "
    "accuracies. In the study of sentences a row is four film snippets of one class, "
    "joined, since one alone has about a fifth of 128 tokens. Length, rate, ridge and "
    "the 50 updates were set once, without a search; but trials with one seed came "
    "before, were judged on the same test side, and showed a fault in how maps were "
    "fitted where keys are padded, which was mended. There, no entry of a map moves by "
    "more than 0.005 in all updates (50 of at most 1e-4): fixed and learnt maps are "
    "nearly the same, and RQ5 stays open. In the study of masked pieces, of one seed, "
    "maps are learnt from nothing."
)
PAPER = "Bhojanapalli et al. 2021, by a review"


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """The claims whose models are all in the results."""
    rows = {row["model"]: right(row) for row in results["rows"]}
    found = [*_kept(rows, results["config"]["length"])]
    for k in (8, 16, 32):
        found += _compared(
            rows,
            f"RQ5: a learnt map beats a fixed one at k = {k}",
            "the more so the smaller k; no number",
            f"learnt-{k}",
            f"fixed-{k}",
        )
    found += _compared(
        rows,
        "RQ5: one map for all layers is better at k = 16",
        "no number",
        "shared-16",
        "learnt-16",
    )
    found += _compared(
        rows,
        "RQ5: a map a layer is better at k = 32",
        "no number",
        "learnt-32",
        "shared-32",
    )
    return found


def _kept(rows: Mapping[str, list[float]], n: int) -> list[Claim]:
    """How much of the full model's accuracy a quarter of the scores keeps, at best."""
    end = f"-{n // 4}"
    few = {name: fmean(values) for name, values in rows.items() if name.endswith(end)}
    if "full" not in rows or not few:
        return []
    full, best = fmean(rows["full"]), max(few, key=lambda name: few[name])
    return [
        Claim(
            f"RQ4: {n // 4} of {n} scores a query keep 97 % of the accuracy",
            PAPER,
            "MNLI 81.6 to 79.7 (97.7 %), BERT base with 32",
            f"{100 * full:.1f} to {100 * few[best]:.1f} ({best}, "
            f"{100 * few[best] / full:.1f} %)",
            "yes" if few[best] >= 0.97 * full else "no",
        )
    ]


def _compared(
    rows: Mapping[str, list[float]], claim: str, theirs: str, better: str, worse: str
) -> list[Claim]:
    if not {better, worse} <= rows.keys():
        return []
    numbers = ", ".join(
        f"{name} {100 * fmean(rows[name]):.1f}" for name in (better, worse)
    )
    held = verdict(list(zip(rows[worse], rows[better], strict=True)))
    return [Claim(claim, PAPER, theirs, numbers, held)]
