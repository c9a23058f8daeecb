"""A sentence of a paper beside a run."""

from collections.abc import Sequence
from typing import NamedTuple


class Claim(NamedTuple):
    """A sentence of a paper beside this run.

    claim, theirs: what the paper says, and its number with the scale it is from.
    ours: the number here.
    held: "yes", "no", or "undecided" where seeds disagree, and in how many it held.
    """

    claim: str
    paper: str
    theirs: str
    ours: str
    held: str


def verdict(pairs: Sequence[tuple[float, float]]) -> str:
    """Whether the first of two numbers was the lower one, seed by seed.

    Models of one seed saw the same batches.

    >>> verdict([(2.4, 2.5), (2.5, 2.6)]), verdict([(2.4, 2.5), (2.6, 2.5)])
    ('yes (2 of 2 seeds)', 'undecided (1 of 2 seeds)')
    """
    wins = sum(low < high for low, high in pairs)
    word = {len(pairs): "yes", 0: "no"}.get(wins, "undecided")
    seeds = "one seed" if len(pairs) == 1 else f"{wins} of {len(pairs)} seeds"
    return f"{word} ({seeds})"
