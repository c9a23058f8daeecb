"""What the paper's figure 1 says, and what came out here."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.common.claim import Claim
from experiments.linear_scaling.comparison import (
    MEMORY,
    TIME,
    Kind,
    Ratio,
    exponent,
    ratio,
    their_exponent,
)
from experiments.linear_scaling.paper import FIGURE, NAMES

CAUTION = (
    "The paper measured on a GTX 1080 Ti; its numbers are read off a figure, within "
    "about 10 %. Ratios depend on sizes that it doesn't state; exponents don't. An "
    "exponent confirms a claim if it lies in the range named there in every round, "
    "and tells nothing where rounds disagree. * counts memory of calls that were "
    "compiled and never run."
)
# The range in which exponents confirm what the paper says of them.
LINEAR, QUADRATIC = (0.95, 1.05), (1.8, 2.2)
# Sorting costs a factor log N.
NEARLY_LINEAR = (0.95, 1.15)
GROWTHS = (
    ("Linear attention takes time in proportion to N", "linear", TIME, LINEAR),
    ("Linear attention takes memory in proportion to N", "linear", MEMORY, LINEAR),
    ("Softmax takes time in proportion to N squared", "softmax", TIME, QUADRATIC),
    ("Softmax takes memory in proportion to N squared", "softmax", MEMORY, QUADRATIC),
    ("LSH takes time nearly in proportion to N", "lsh-1", TIME, NEARLY_LINEAR),
)


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """The claims whose curves are in the results."""
    there = {row["model"] for row in results["rows"]}
    growths = [
        _growth(results, *claim) for claim in GROWTHS if NAMES[claim[1]] in there
    ]
    costs = [
        _cheaper(results, other)
        for other in ("softmax", "lsh-1")
        if {NAMES[other], "linear"} <= there
    ]
    return growths + costs


def _growth(
    results: Mapping[str, Any], claim: str, name: str, kind: Kind, expected: Sequence
) -> Claim:
    """Whether an exponent is in the range where it is expected, in all rounds."""
    low, high = expected
    claim = f"{claim} (exponent {low:.2f} to {high:.2f})"
    found = kind.growth(results, NAMES[name])
    lengths = kind.theirs[name]
    theirs = (
        f"exponent {their_exponent(kind, name):.2f}, N = {min(lengths):,} to "
        f"{max(lengths):,}"
    )
    if found is None:
        return Claim(claim, FIGURE, theirs, "fewer than 3 lengths", "undecided")
    ours = f"exponent {exponent(found)}, N = {found.first:,} to {found.last:,}"
    rounds = (found.least, found.exponent, found.most)
    held = "cannot be told"
    if low <= min(rounds) and max(rounds) <= high:
        held = "yes"
    elif max(rounds) < low or high < min(rounds):
        held = "no"
    return Claim(claim, FIGURE, theirs, ours, held)


def _cheaper(results: Mapping[str, Any], other: str) -> Claim:
    """Whether linear attention took less time and memory at every length."""
    model = NAMES[other]
    lengths = sorted({row["n"] for row in results["rows"]})
    ratios = {
        kind.name: [
            found
            for n in lengths
            for found in [ratio(results, kind, model, n)]
            if found is not None
        ]
        for kind in (TIME, MEMORY)
    }
    theirs = ", ".join(
        f"{kind.name} {_span(kind.theirs[other], kind.theirs['linear'])}"
        for kind in (TIME, MEMORY)
    )
    ours = "; ".join(
        f"{name} {min(found, key=_value)} to {max(found, key=_value)} times, N = "
        f"{found[0].n:,} to {found[-1].n:,}"
        for name, found in ratios.items()
        if found
    )
    verdict = "undecided"
    if all(ratios.values()):
        less = all(each.value > 1 for found in ratios.values() for each in found)
        verdict = "yes" if less else "no"
    what = f"Linear attention takes less than {other}, at every length"
    return Claim(what, FIGURE, theirs, ours or "not measured", verdict)


def _value(ratio: Ratio) -> float:
    return ratio.value


def _span(above: Mapping[int, float], below: Mapping[int, float]) -> str:
    """The least and the greatest ratio of two curves of the paper."""
    ratios = [above[n] / below[n] for n in above]
    return f"{min(ratios):.1f} to {max(ratios):.1f} times"
