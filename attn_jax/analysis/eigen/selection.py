"""Which scores to compute: those that say most about the others.

Every selection of entries of one covariance has the signature (matrix, k, candidates),
so that one can stand for another in `row_selection` and in comparisons.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from attn_jax.analysis.eigen.covariance import Known
from attn_jax.analysis.eigen.spectra import Source, as_matrix
from attn_jax.nn._checks import check_sizes
from attn_jax.nn._table import Table

Candidates = Bool[Known, " n"] | None
# Of matrices left after what is selected, their diagonals, and which of these count.
Score = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def greedy_selection(
    matrix: Source, k: int, *, candidates: Candidates = None
) -> Int[np.ndarray, " k"]:
    """Each time the entry that leaves the least variance unexplained.

        j = argmax |E_:j|² / E_jj,   E <- E - E_:j E_:j^T / E_jj,   E = C at first

    E is the covariance that is left when the selected entries are known, tr E the
    squared error of the best reconstruction from them. The same entries as solving
    least squares anew for every candidate; of several equally good ones the first.

    Cost: O(k n²) time.

    Reference: Bhojanapalli et al. 2021, 2106.08823, who select by information gain; the
    criterion is ours.

    Args:
      matrix: a covariance matrix, or a `Covariance`.
      k: entries to select.
      candidates: entries that may be selected; None is all.

    Returns:
      The entries, in the order of their selection.

    Raises:
      ValueError: k above n or the number of candidates; a `Covariance` of k samples or
        fewer.
    """
    return _one(matrix, k, candidates, _explained)


def pivoted_cholesky_selection(
    matrix: Source, k: int, *, candidates: Candidates = None
) -> Int[np.ndarray, " k"]:
    """Each time the entry that the selected ones explain least: j = argmax E_jj.

    Cost: O(k n²) time here; it needs k columns of C alone.

    Args, Returns, Raises: as in `greedy_selection`.
    """
    return _one(matrix, k, candidates, lambda left, size, some: size.sum(axis=0))


def random_selection(
    matrix: Source, k: int, *, candidates: Candidates = None, seed: int = 0
) -> Int[np.ndarray, " k"]:
    """Any k of the candidates, as a seed says; else as `greedy_selection`."""
    places = _open(len(as_matrix(matrix)), k, candidates)
    return np.random.default_rng(seed).permutation(places)[:k]


def strided_selection(
    matrix: Source, k: int, *, candidates: Candidates = None
) -> Int[np.ndarray, " k"]:
    """From the first candidate to the last in equal steps; else as the others."""
    places = _open(len(as_matrix(matrix)), k, candidates)
    return places[np.arange(k) * (len(places) - 1) // max(k - 1, 1)]


SELECTIONS: Table[Callable[..., np.ndarray]] = Table(
    "selection",
    {
        "greedy": greedy_selection,
        "cholesky": pivoted_cholesky_selection,
        "strided": strided_selection,
        "random": random_selection,
    },
)

# Of these, the first k of more are what k alone would be.
NESTED = (greedy_selection, pivoted_cholesky_selection, random_selection)


def row_selection(
    matrices: Float[Known, "t n n"],
    k: int,
    *,
    select: Callable[..., np.ndarray] = greedy_selection,
    causal: bool = False,
) -> Int[np.ndarray, "t k"]:
    """Keys of its own for each query, from the covariance of its row.

    Args:
      matrices: one a query position.
      k: keys a query.
      select: a selection of this module.
      causal: query i selects keys 0 .. i; where these are fewer than k, the last is
        repeated, which says nothing new.

    Raises:
      ValueError: as the selection.
    """
    n = np.shape(matrices)[-1]
    check_sizes(k=k)
    _open(n, k, None)
    rows = []
    for i, matrix in enumerate(matrices):
        candidates = np.arange(n) <= i if causal else None
        known = min(k, i + 1) if causal else k
        keys = select(matrix, known, candidates=candidates)
        rows.append(np.pad(keys, (0, k - known), mode="edge"))
    return np.stack(rows)


def column_selection(matrices: Float[Known, "t n n"], k: int) -> Int[np.ndarray, " k"]:
    """The same keys for all queries: `greedy_selection` with gains summed over rows.

    Cost: O(k t n²) time, O(t n²) memory.

    Args:
      matrices: one a query position.
      k: keys.

    Raises:
      ValueError: k above n.
    """
    left = np.array(matrices, np.float64)
    _open(left.shape[-1], k, None)
    return np.array(_select(left, k, np.ones(left.shape[-1], bool), _explained))


def matrix_selection(matrix: Source, n: int, k: int) -> Int[np.ndarray, "t k"]:
    """Keys of each query, from the covariance of whole score matrices.

    `greedy_selection` over all t n entries, of which a row is closed when k of it are
    selected: a score may say something of other rows too.

    Cost: O(t k (t n)²) time, O((t n)²) memory.

    Args:
      matrix: covariance of scores t n that are laid out row after row.
      n: keys, the length of a row.
      k: keys a query.

    Raises:
      ValueError: no whole number of rows; k above n.
    """
    left = as_matrix(matrix).copy()[None]
    t, rest = divmod(left.shape[-1], n)
    if rest:
        raise ValueError(
            f"n: got {n} for {left.shape[-1]} entries; expected a divisor, the length "
            "of a row"
        )
    _open(n, k, None)
    taken: list[list[int]] = [[] for _ in range(t)]

    def close(entry: int) -> slice:
        """What may not be selected any more."""
        row = entry // n
        taken[row].append(entry % n)
        full = len(taken[row]) == k
        return slice(row * n, (row + 1) * n) if full else slice(entry, entry + 1)

    _select(left, t * k, np.ones(t * n, bool), _explained, close)
    return np.array(taken)


def _explained(left: np.ndarray, size: np.ndarray, some: np.ndarray) -> np.ndarray:
    """What each entry explains of the variance that is left, itself included."""
    gains = np.einsum("gij,gij->gj", left, left)
    return np.where(some, gains / np.where(some, size, 1.0), 0.0).sum(axis=0)


def _one(matrix: Source, k: int, candidates: Candidates, score: Score) -> np.ndarray:
    left = as_matrix(matrix, k).copy()[None]
    n = left.shape[-1]
    allowed = np.zeros(n, bool)
    allowed[_open(n, k, candidates)] = True
    return np.array(_select(left, k, allowed, score))


def _select(
    left: np.ndarray,
    k: int,
    allowed: np.ndarray,
    score: Score,
    close: Callable[[int], Any] = lambda entry: entry,
) -> list[int]:
    """k entries, best first; `left`: g n n loses what they explain.

    Variances that are rounding of what was there at first count as 0.
    """
    diagonal = np.einsum("gii->gi", left)
    floor = 1e-12 * diagonal.max(axis=-1, keepdims=True, initial=0.0)
    chosen = []
    for _ in range(k):
        some = diagonal > floor
        scores = np.where(allowed, score(left, diagonal, some), -np.inf)
        entry = int(np.argmax(scores))
        chosen.append(entry)
        allowed[close(entry)] = False
        column = left[:, :, entry].copy()
        size = np.where(some[:, entry], diagonal[:, entry], np.inf)
        left -= column[:, :, None] * (column / size[:, None])[:, None, :]
        left[:, :, entry] = left[:, entry, :] = 0.0
    return chosen


def _open(n: int, k: int, candidates: Candidates) -> np.ndarray:
    """The entries that may be selected, of which k are wanted."""
    check_sizes(k=k)
    places = np.arange(n) if candidates is None else np.flatnonzero(candidates)
    if candidates is not None and np.shape(candidates) != (n,):
        raise ValueError(
            f"candidates: got shape {np.shape(candidates)}; expected ({n},), one flag "
            "an entry"
        )
    if k > len(places):
        what = "entries" if candidates is None else "candidates"
        raise ValueError(
            f"k: got {k}; expected at most {len(places)}, the number of {what}; select "
            "fewer"
        )
    return places
