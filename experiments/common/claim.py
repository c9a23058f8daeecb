"""A sentence of a paper beside a run."""

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
