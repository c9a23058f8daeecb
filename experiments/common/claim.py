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


def verdict(
    pairs: Sequence[tuple[float, float]],
    words: tuple[str, str, str] = ("yes", "no", "undecided"),
    each: str = "seed",
) -> str:
    """Whether the first of two numbers was the lower one, seed by seed.

    Models of one seed saw the same batches.

    >>> verdict([(2.4, 2.5), (2.5, 2.6)]), verdict([(2.4, 2.5), (2.6, 2.5)])
    ('yes (2 of 2 seeds)', 'undecided (1 of 2 seeds)')

    Args:
      words: for all, for none and for some of the pairs.
      each: what a pair is of.
    """
    wins, count = sum(low < high for low, high in pairs), len(pairs)
    always, never, sometimes = words
    word = {count: always, 0: never}.get(wins, sometimes)
    where = f"one {each}" if count == 1 else f"{wins} of {count} {each}s"
    return f"{word} ({where})"
