"""What is known of the paper's claims about scores, and what came out here."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.common.claim import Claim
from experiments.eigen.command_line import RANDOM
from experiments.eigen.table import off_diagonal

CAUTION = (
    "The paper's text was not at hand: its claims are those of the abstract and of a "
    "review, whose questions RQ1 to RQ3 these are, without numbers. When a claim "
    "counts as held is our choice: 90 % of the variance in a quarter of the "
    "dimensions; an overlap of twice that of random spaces, which layers that are not "
    "trained may have too; a held-out error of at most a tenth of the variance."
)
PAPER = "Bhojanapalli et al. 2021"
# Of n: 16 to 32 at the length of BERT's sequences.
FEW = (1 / 8, 1 / 4)


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """The claims, of the models that were trained."""
    trained = [row for row in results["rows"] if row["model"] != RANDOM]
    found = [claim for row in trained for claim in _alone(row, results)]
    pairs = [pair for pair in results["between"] if RANDOM not in pair["models"]]
    return [*found, *(_across(pair, results) for pair in pairs)]


def _alone(row: Mapping[str, Any], results: Mapping[str, Any]) -> list[Claim]:
    n, name = results["config"]["length"], row["model"]
    most = max(row["needed"]["rows"])
    overlap, chance = off_diagonal(row["layers"]["overlap"]), results["random_overlap"]
    (control,) = (each for each in results["rows"] if each["model"] == RANDOM)
    untrained = off_diagonal(control["layers"]["overlap"])
    found = [
        Claim(
            f"RQ1: scores vary in few dimensions ({name})",
            f"{PAPER}, abstract",
            "no number",
            f"90 % in {min(row['needed']['rows'])} to {most} of {n}",
            "yes" if most <= n / 4 else "no",
        ),
        Claim(
            f"RQ2: layers share components ({name})",
            f"{PAPER}, abstract",
            "significant overlap, no number",
            f"overlap {overlap:.2f}, random spaces {chance:.2f}, layers of a random "
            f"encoder {untrained:.2f}; transfer "
            f"{off_diagonal(row['layers']['transfer']):.2f} of at most "
            f"{np.diagonal(row['layers']['transfer']).mean():.2f}",
            "yes" if overlap > 2 * chance else "no",
        ),
    ]
    known = list(results["config"]["known"])
    wanted = [i for i, k in enumerate(known) if FEW[0] <= k / n <= FEW[1]]
    if wanted:
        means = np.mean(row["curves"]["greedy"], axis=0)
        shown = ", ".join(f"{means[i, 1]:.3f} at k = {known[i]}" for i in wanted)
        found.append(
            Claim(
                f"RQ3: an eighth to a quarter of the scores tell the others ({name})",
                f"{PAPER}, by a review",
                "a low error with 16 to 32, no number",
                f"held-out error {shown} of the variance (components leave "
                f"{means[wanted[-1], 2]:.3f})",
                "yes" if means[wanted[-1], 1] <= 0.1 else "no",
            )
        )
    return found


def _across(pair: Mapping[str, Any], results: Mapping[str, Any]) -> Claim:
    one, other = pair["models"]
    overlap, chance = float(np.mean(pair["overlap"])), results["random_overlap"]
    return Claim(
        f"RQ2: models share components ({one} for {other})",
        f"{PAPER}, abstract",
        "significant overlap, no number",
        f"overlap {overlap:.2f}, random spaces {chance:.2f}; transfer "
        f"{np.mean(pair['transfer']):.2f} of at most {np.mean(pair['own']):.2f}",
        "yes" if overlap > 2 * chance else "no",
    )
