"""A sentence of a paper beside a run."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.special import stdtrit


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
    if not pairs:
        return f"{sometimes} (no {each} in common)"
    word = {count: always, 0: never}.get(wins, sometimes)
    return f"{word} ({counted(wins, count, each)})"


def counted(wins: int, count: int, each: str = "seed") -> str:
    """In how many of them it was so.

    >>> counted(1, 3), counted(0, 1)
    ('1 of 3 seeds', 'one seed')
    """
    return f"one {each}" if count == 1 else f"{wins} of {count} {each}s"


def paired_difference(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """How much lower the first of two numbers is, and half of its 95 % interval.

    The mean over seeds, which share their batches, and Student's t for as many of them.
    One seed says nothing of others: its interval is infinite.

    >>> mean, half = paired_difference([(2.4, 2.5), (2.5, 2.7), (2.3, 2.6)])
    >>> f"{mean:.3f} ± {half:.3f}"
    '0.200 ± 0.248'
    """
    gaps = [high - low for low, high in pairs]
    if len(gaps) == 1:
        return gaps[0], math.inf
    error = stdev(gaps) / math.sqrt(len(gaps))
    return fmean(gaps), float(stdtrit(len(gaps) - 1, 0.975)) * error
