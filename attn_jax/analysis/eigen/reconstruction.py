"""The other scores from the selected ones: least squares, and its error."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attn_jax.analysis.eigen.covariance import Covariance, Known, check_count
from attn_jax.analysis.eigen.selection import NESTED, greedy_selection
from attn_jax.analysis.eigen.spectra import Source, as_matrix, spectrum

RELATIVE = 1e-10  # of the greatest eigenvalue: what counts as 0, and the least ridge


class _Map(NamedTuple):
    reconstruction: Float[np.ndarray, "n k"]
    offset: Float[np.ndarray, " n"]


class Reconstruction(_Map):
    """The pair (reconstruction, offset), and how it was found.

    Attributes:
      ridge: what was added to the variances of the selected entries: what was asked
        for, or, where these say the same of one another, enough to tell them apart.
      rank: how many of the selected entries say something of their own.
    """

    ridge: float
    rank: int


def fit_reconstruction(
    matrix: Source,
    mean: Float[Known, " n"],
    selected: Int[Known, " k"],
    ridge: float = 0.0,
) -> Reconstruction:
    """The best linear map from selected entries to all.

        R = C_:S (C_SS + lambda 1)^-1,   c = mu - R mu_S,   x ~ R x_S + c

    Selected entries are reproduced exactly: their rows of R are those of the identity.
    Where C_SS is singular (an entry selected twice, one that never varies, fewer
    samples than entries) a small ridge is added, which the result says.

    Cost: O(k³ + n k²) time.

    Args:
      matrix: a covariance matrix, or a `Covariance`.
      mean: of the same samples.
      selected: entries that are known.
      ridge: lambda, added to each variance; it shrinks R where samples are few.

    Returns:
      A pair of R and c, with the ridge and the rank of C_SS as attributes.

    Raises:
      ValueError: entries that are not there, more than there are, or a ridge below 0.
    """
    matrix = as_matrix(matrix)
    chosen = _checked(selected, len(matrix))
    mean = np.asarray(mean, np.float64)
    if mean.shape != (len(matrix),):
        raise ValueError(
            f"mean: got shape {mean.shape} for a matrix of shape {matrix.shape}; "
            f"expected ({len(matrix)},), of the same samples"
        )
    if not ridge >= 0:
        raise ValueError(f"ridge: got {ridge}; expected a number >= 0")
    inner = matrix[np.ix_(chosen, chosen)]
    values = np.linalg.eigvalsh(inner)
    least = RELATIVE * max(float(values[-1]), 0.0)
    rank = int(np.sum(values > least))
    if rank < len(chosen):
        ridge = max(ridge, least - min(float(values[0]), 0.0), np.finfo(float).tiny)
    found = np.linalg.solve(inner + ridge * np.eye(len(chosen)), matrix[chosen]).T
    first = np.unique(chosen, return_index=True)[1]
    found[chosen] = 0.0
    found[chosen[first], first] = 1.0
    result = Reconstruction(found, mean - found @ mean[chosen])
    result.ridge, result.rank = float(ridge), rank
    return result


class RowMaps(NamedTuple):
    """What `partial_attention` needs: one map a query, and the selected means."""

    reconstruction: Float[np.ndarray, "t n k"]
    offset: Float[np.ndarray, "t n"]
    mean: Float[np.ndarray, "t k"]


def fit_rows(
    statistics: Covariance, selected: Int[Known, "..."], ridge: float = 0.0
) -> RowMaps:
    """`fit_reconstruction` for each query position.

    Args:
      statistics: of t positions, or of one that stands for all (rows pooled).
      selected: Int[t k], or Int[k], the same for all.
      ridge: relative to the mean variance of each row's scores, so that one number
        serves all.

    Raises:
      ValueError: as in `fit_reconstruction`; rows that do not fit together.
    """
    if not ridge >= 0:
        raise ValueError(f"ridge: got {ridge}; expected a number >= 0")
    matrices, means = statistics.matrix, statistics.mean
    n = matrices.shape[-1]
    rows = np.asarray(selected)
    if matrices.ndim == 2:
        t = len(rows) if rows.ndim == 2 else n
        matrices = np.broadcast_to(matrices, (t, n, n))
        means = np.broadcast_to(means, (t, n))
    rows = np.broadcast_to(rows, (len(matrices), rows.shape[-1]))
    scales = ridge * np.trace(matrices, axis1=-2, axis2=-1) / n
    each = zip(matrices, means, rows, scales, strict=True)
    maps = [fit_reconstruction(*row) for row in each]
    return RowMaps(
        np.stack([fitted.reconstruction for fitted in maps]),
        np.stack([fitted.offset for fitted in maps]),
        np.take_along_axis(means, rows, axis=-1),
    )


def residual(matrix: Source, selected: Int[Known, " k"]) -> float:
    """The squared error that is left, at best, when the selected entries are known.

        tr C - tr(C_:S C_SS^-1 C_S:)

    At least the sum of the eigenvalues after the k-th, which k directions of any kind
    leave.

    Args:
      matrix: a covariance matrix, or a `Covariance`.
      selected: entries that are known.
    """
    matrix = as_matrix(matrix)
    chosen = _checked(selected, len(matrix))
    inner = np.linalg.pinv(
        matrix[np.ix_(chosen, chosen)], rcond=RELATIVE, hermitian=True
    )
    explained = np.einsum("ai,ab,bi->", matrix[chosen], inner, matrix[chosen])
    return max(0.0, float(np.trace(matrix) - explained))


def reconstruction_error(
    matrix: Source,
    mean: Float[Known, " n"],
    selected: Int[Known, " k"],
    fitted: tuple[Any, Any],
) -> float:
    """E |x - R x_S - c|² of samples that have this mean and covariance.

    Of other samples than R and c are from, it says what these are worth.

    Args:
      matrix: of the samples to judge by.
      mean: theirs.
      selected: entries that are known.
      fitted: R and c.
    """
    matrix, (found, offset) = as_matrix(matrix), fitted
    chosen, mean = _checked(selected, len(matrix)), np.asarray(mean, np.float64)
    cross = np.sum(found * matrix[:, chosen])
    both = np.einsum("ia,ab,ib->", found, matrix[np.ix_(chosen, chosen)], found)
    bias = mean - found @ mean[chosen] - offset
    return max(0.0, float(np.trace(matrix) - 2 * cross + both + bias @ bias))


class Point(NamedTuple):
    """Errors with k scores known, as shares of the variance.

    fitted: of the samples that the map is from. held_out: of others.
    bound: what the others' own k leading components would leave, and nothing less can.
    """

    k: int
    fitted: float
    held_out: float
    bound: float


def error_curve(
    statistics: Covariance,
    held_out: Covariance,
    ks: Sequence[int],
    *,
    select: Callable[..., np.ndarray] = greedy_selection,
    ridge: float = 0.0,
) -> list[Point]:
    """How the error of reconstruction falls with the number of known scores.

    Args:
      statistics: what entries are selected by and the map is fitted to; where it has
        several positions, each has a selection and a map of its own, and errors are
        summed.
      held_out: of other samples.
      ks: numbers of entries.
      select: a selection of `attn_jax.analysis.eigen`.
      ridge: relative, as in `fit_rows`.

    Raises:
      ValueError: a k above n, or not below the number of samples; samples of another
        shape, or without variance; no k.
    """
    if statistics.matrix.shape != held_out.matrix.shape:
        raise ValueError(
            f"held_out: got matrices of shape {held_out.matrix.shape} for statistics "
            f"of shape {statistics.matrix.shape}; expected the same kind of samples"
        )
    if not len(ks):
        raise ValueError("ks: got none; expected at least one number of entries")
    mine, theirs = _rows_of(statistics), _rows_of(held_out)
    n = statistics.matrix.shape[-1]
    left = np.sum([spectrum(matrix) for matrix, _ in theirs], axis=0)
    whole = [sum(np.trace(matrix) for matrix, _ in rows) for rows in (mine, theirs)]
    for name, variance in zip(("statistics", "held_out"), whole, strict=True):
        if not variance > 0:
            raise ValueError(
                f"{name}: got a variance of {variance:g} in all; expected scores that "
                "vary; add samples"
            )
    ks = list(ks)
    check_count(statistics.count, max(ks))
    errors = np.zeros((len(ks), 2))
    for (matrix, mean), other in zip(mine, theirs, strict=True):
        scale = ridge * np.trace(matrix) / n
        most = select(matrix, max(ks)) if select in NESTED else None
        for place, k in enumerate(ks):
            chosen = select(matrix, k) if most is None else most[:k]
            fitted = fit_reconstruction(matrix, mean, chosen, scale)
            errors[place] += [
                reconstruction_error(*judge, chosen, fitted)
                for judge in ((matrix, mean), other)
            ]
    return [
        Point(k, *map(float, (*(found / whole), left[k:].sum() / whole[1])))
        for k, found in zip(ks, errors, strict=True)
    ]


def _rows_of(statistics: Covariance) -> list[tuple[np.ndarray, np.ndarray]]:
    """Covariance and mean of each position."""
    matrices, means = statistics.matrix, statistics.mean
    n = matrices.shape[-1]
    return list(zip(matrices.reshape(-1, n, n), means.reshape(-1, n), strict=True))


def _checked(selected: Any, n: int) -> np.ndarray:
    chosen = np.asarray(selected)
    if chosen.ndim != 1 or not np.issubdtype(chosen.dtype, np.integer):
        raise ValueError(
            f"selected: got dtype {chosen.dtype} and shape {chosen.shape}; expected "
            "Int[k], the numbers of the known entries"
        )
    if not 0 < len(chosen) <= n:
        raise ValueError(
            f"selected: got k = {len(chosen)} entries of n = {n}; expected 1 to {n}"
        )
    if chosen.min() < 0 or chosen.max() >= n:
        raise ValueError(
            f"selected: got numbers from {chosen.min()} to {chosen.max()}; expected 0 "
            f"to {n - 1}, entries of the matrix"
        )
    return chosen
