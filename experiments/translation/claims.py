"""What the papers say about translation, and what came out here."""

from collections.abc import Mapping
from typing import Any

from experiments.common.claim import Claim, verdict
from experiments.translation.config import departures

CAUTION = (
    "A small model, trained on help pages: its BLEU says nothing about the paper's "
    "data, whose scale is another, and the two are counted differently."
)


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """The claim of Vaswani et al. 2017, for runs with its attention throughout."""
    if departures(results["config"]) or results["config"]["synthetic"]:
        return []
    test, words = results["test"]["bleu"], results["baselines"]["dictionary"]["bleu"]
    return [
        Claim(
            "A model of attention alone translates",
            "Vaswani et al. 2017, table 2",
            "27.3 BLEU (tokenised, compounds split), newstest2014, 65M parameters, "
            "4.5 million pairs",
            f"{test:.1f} BLEU (detokenised), {results['parameters'] / 1e6:.1f}M "
            f"parameters, {results['corpus']['pairs']['train']:,} pairs; word for word "
            f"{words:.1f}",
            verdict([(words, test)]),
        )
    ]
