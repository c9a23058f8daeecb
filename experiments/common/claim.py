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


class Difference(NamedTuple):
    """How much lower the first of two numbers is than the second, over seeds.

    half: of the 95 % interval of the mean; infinite with one seed.
    """

    mean: float
    half: float
    count: int

    @property
    def side(self) -> int:
        """1 or -1 where the interval is above or below 0, 0 where 0 lies in it."""
        if abs(self.mean) <= self.half:
            return 0
        return 1 if self.mean > 0 else -1

    def written(self, form: str = ".3f") -> str:
        """The mean and half of its interval; one seed has none.

        >>> Difference(0.2, 0.248, 3).written()
        '+0.200 ± 0.248'
        """
        mean = f"{self.mean:+{form}}"
        return mean if self.count == 1 else f"{mean} ± {self.half:{form}}"


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


def paired_difference(pairs: Sequence[tuple[float, float]]) -> Difference:
    """How much lower the first of two numbers is, and how sure that is.

    The mean over seeds, which share their batches, and Student's t for as many of them.
    One seed says nothing of others: its interval is infinite.

    >>> paired_difference([(2.4, 2.5), (2.5, 2.7), (2.3, 2.6)]).written()
    '+0.200 ± 0.248'
    """
    gaps, count = [high - low for low, high in pairs], len(pairs)
    if count == 1:
        return Difference(gaps[0], math.inf, count)
    error = stdev(gaps) / math.sqrt(count)
    half = float(stdtrit(count - 1, 0.975)) * error
    return Difference(fmean(gaps), half, count)


def judged(
    difference: Difference, words: tuple[str, str, str], form: str = ".3f"
) -> str:
    """Whether the first is lower, as far as the seeds can tell.

    >>> words = ("yes", "no", "undecided")
    >>> judged(Difference(0.3, 0.2, 3), words), judged(Difference(0.1, 0.2, 3), words)
    ('yes (+0.300 ± 0.200)', 'undecided (+0.100 ± 0.200)')

    Args:
      words: where the interval is above 0, below 0, and where 0 lies in it.
      form: of its numbers.
    """
    above, below, either = words
    if difference.count == 1:
        return f"{either} (one seed)"
    word = {1: above, -1: below, 0: either}[difference.side]
    return f"{word} ({difference.written(form)})"
