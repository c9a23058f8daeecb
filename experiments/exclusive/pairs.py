"""Rows with and without exclusion side by side, seed by seed."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any, NamedTuple

from experiments.common.claim import Difference, paired_difference
from experiments.compare.training import BITS
from experiments.exclusive.rows import Row, parse_row


class Pair(NamedTuple):
    """An exclusive row and the row it is compared with.

    row: the exclusive one.
    sa, xsa: bits per byte of the seeds that both have.
    """

    row: Row
    sa: dict[int, float]
    xsa: dict[int, float]

    @property
    def gains(self) -> dict[int, float]:
        """How many bits lower exclusion is, of each seed."""
        return {seed: self.sa[seed] - self.xsa[seed] for seed in self.sa}

    @property
    def difference(self) -> Difference:
        """The mean of the gains and how sure it is."""
        return difference(self.xsa, self.sa)


def pairs(results: Mapping[str, Any]) -> dict[str, Pair]:
    """Every exclusive row that has a seed in common with its partner, by its name."""
    rows = {row["row"]: row for row in results["rows"]}
    found = {}
    for name, row in rows.items():
        parsed = parse_row(name)
        if parsed.exclusive and parsed.partner in rows:
            sa, xsa = bits(rows[parsed.partner]), bits(row)
            both = sorted(sa.keys() & xsa.keys())
            sides = ({seed: each[seed] for seed in both} for each in (sa, xsa))
            if both:
                found[name] = Pair(parsed, *sides)
    return found


def difference(low: Mapping[int, float], high: Mapping[int, float]) -> Difference:
    """How much lower the first numbers are, on the seeds that both have."""
    both = sorted(low.keys() & high.keys())
    return paired_difference([(low[seed], high[seed]) for seed in both])


def bits(row: Mapping[str, Any]) -> dict[int, float]:
    """Bits per byte of each seed."""
    return {run["seed"]: run[BITS] for run in row["runs"]}


def mean_similarity(row: Mapping[str, Any]) -> dict[str, list[float]]:
    """What figure 1 shows, a number a layer, the mean over seeds; {} where unknown."""
    found = [run["similarity"] for run in row["runs"] if run.get("similarity")]
    if not found:
        return {}
    return {
        key: [fmean(layer) for layer in zip(*(one[key] for one in found), strict=True)]
        for key in found[0]
    }
