"""What attention from selected scores saves, as four conventions count it.

n tokens, k selected keys a query, d features of queries, keys and values. What is
compared is a head's own work: n² d multiply-adds for the scores and n² d for the values
under their weights. Projections are the same either way, and in a layer of BERT at
n = 128 they are twelve times as much, so no speed follows from these numbers.
`attn_jax.analysis.flops` counts whole layers.
"""

from typing import NamedTuple

from attn_jax.nn._checks import check_sizes


class Savings(NamedTuple):
    """Of each convention: a share of multiply-adds that is saved, or a number of keys.

    scores: of the scores alone, their reconstruction counted.
    scores_of_others: the same, but only the n - k scores that are not selected are
        reconstructed.
    without_reconstruction: of scores and values, as if reconstruction were free.
    with_reconstruction: of scores and values, reconstruction counted.
    """

    scores: float
    scores_of_others: float
    without_reconstruction: float
    with_reconstruction: float


def savings(n: int, k: int, d: int) -> Savings:
    """The share of multiply-adds that k of n scores a query save; below 0 they cost.

        1 - k (1 / n + 1 / d),          1 - k (d + n - k) / (n d),
        (1 - k / n) / 2,                (1 - k (1 / n + 1 / d)) / 2

    Bhojanapalli et al. 2021 are said to report 25 to 45 %; by which convention is not
    known. The third gives 25 to 44 % for k = 64 to 16 at n = 128.

    Args:
      n: tokens.
      k: selected keys a query, at most n.
      d: features of a head.

    Raises:
      ValueError: k above n.
    """
    check_sizes(n=n, k=k, d=d)
    if k > n:
        raise ValueError(f"k: got {k}; expected at most n = {n}, the keys there are")
    scores = 1 - k * (1 / n + 1 / d)
    others = 1 - k * (d + n - k) / (n * d)
    return Savings(scores, others, (1 - k / n) / 2, scores / 2)


def break_even(n: int, d: int) -> Savings:
    """The number of selected keys from which on nothing is saved.

        n d / (n + d),   min(n, d),   n,   n d / (n + d)

    Args:
      n: tokens.
      d: features of a head.
    """
    check_sizes(n=n, d=d)
    counted = n * d / (n + d)
    return Savings(counted, float(min(n, d)), float(n), counted)
