"""What papers say about the rows of the table, and what came out here."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from experiments.common.claim import Claim, verdict

CAUTION = (
    "Losses are bits per byte on validation text. Much smaller models, trained for "
    "minutes: what holds here may not hold at a paper's scale, nor the other way round."
)


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """The claims whose models are all in the results."""
    rows = {row["model"]: row for row in results["rows"]}
    return [
        Claim(
            claim,
            paper,
            theirs,
            _numbers(rows, better, worse),
            verdict(list(zip(_bits(rows[better]), _bits(rows[worse]), strict=True))),
        )
        for claim, paper, theirs, better, worse in CLAIMS
        if better in rows and worse in rows
    ]


# Claim, paper, its number, the model that should have the lower loss, the other one.
CLAIMS = (
    (
        "Taking the own value out of softmax attention helps",
        "Zhai 2026, table 2",
        "mean accuracy of 8 tasks 56.2 -> 57.2, 1.3B parameters",
        "softmax+exclusive",
        "softmax",
    ),
    (
        "Linear attention stays behind softmax",
        "Katharopoulos et al. 2020, table 1",
        "MNIST, bits per dimension 0.621 -> 0.644",
        "softmax",
        "linear",
    ),
    (
        "Random logits stay behind dot products",
        "Tay et al. 2021, table 4",
        "C4, log perplexity 1.865 -> 1.972, T5 base",
        "softmax",
        "random",
    ),
    (
        "Dense logits stay behind dot products",
        "Tay et al. 2021, table 4",
        "C4, log perplexity 1.865 -> 1.965, T5 base",
        "softmax",
        "dense",
    ),
    (
        "Random logits mixed with dot products get ahead of them",
        "Tay et al. 2021, table 4",
        "C4, log perplexity 1.865 -> 1.849, T5 base",
        "mixture",
        "softmax",
    ),
)


def _numbers(rows: Mapping[str, Any], better: str, worse: str) -> str:
    means = {name: fmean(_bits(rows[name])) for name in (better, worse)}
    return ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())


def _bits(row: Mapping[str, Any]) -> list[float]:
    return [run["validation_bits_per_byte"] for run in row["runs"]]
