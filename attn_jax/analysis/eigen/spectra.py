"""Spectra, what leading components explain, and how far two spaces overlap."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from attn_jax.analysis.eigen.covariance import (
    Components,
    Covariance,
    Known,
    check_count,
)
from attn_jax.nn._checks import check_sizes

# A covariance matrix, the statistics it is from, or components known already.
Source = Any


def spectrum(matrix: Source) -> Float[np.ndarray, " n"]:
    """Eigenvalues of a covariance matrix, descending; 0 where rounding is below it.

    Cost: O(n³) time.

    Args:
      matrix: a covariance matrix, a `Covariance` or `Components`.
    """
    if isinstance(matrix, Components):
        return matrix.values
    return np.maximum(np.linalg.eigvalsh(as_matrix(matrix))[::-1], 0.0)


def components(matrix: Source, r: int | None = None) -> Components:
    """The leading r eigenvalues and eigenvectors of a covariance matrix; None is all.

    Cost: O(n³) time.

    Raises:
      ValueError: r above n, or a `Covariance` of fewer than r + 1 samples.
    """
    if isinstance(matrix, Components):
        r = len(matrix.values) if r is None else _rank(r, len(matrix.values))
        return Components(matrix.values[:r], matrix.vectors[:, :r], matrix.total)
    found = as_matrix(matrix, 0 if r is None else r)
    r = len(found) if r is None else _rank(r, len(found))
    values, vectors = np.linalg.eigh(found)
    values = np.maximum(values[::-1], 0.0)
    return Components(values[:r], vectors[:, ::-1][:, :r], float(np.trace(found)))


def sample_components(samples: Float[Known, "N n"], r: int) -> Components:
    """The components of samples held at once, from the smaller of two matrices.

        C = X^T X / N  and  G = X X^T / N:  the same eigenvalues,  v = X^T u / |X^T u|

    for centred samples X. Exact, and the way for few long samples, such as whole score
    matrices; a `Sketch` needs no more memory however many they are.

    Cost: O(N n min(N, n)) time.

    Raises:
      ValueError: fewer than r + 1 samples, or r above n.
    """
    x = np.asarray(samples, np.float64)
    if x.ndim != 2:
        raise ValueError(
            f"samples: got shape {x.shape}; expected (N, n), one sample a row"
        )
    count, n = x.shape
    check_count(count, _rank(r, n))
    x = x - x.mean(axis=0)
    total = float(np.sum(x * x)) / count
    if n <= count:
        found = components(x.T @ x / count, r)
        return found._replace(total=total)
    values, left = np.linalg.eigh(x @ x.T / count)
    vectors = x.T @ left[:, ::-1][:, :r]
    lengths = np.linalg.norm(vectors, axis=0)
    vectors = vectors / np.where(lengths > 0, lengths, 1.0)
    return Components(np.maximum(values[::-1][:r], 0.0), vectors, total)


def explained_variance(matrix: Source, r: int) -> float:
    """The share of the variance that lies along r directions, at best.

        EV(r) = sum_{j <= r} l_j / sum_j l_j

    Args:
      matrix: a covariance matrix, a `Covariance` or `Components`.
      r: number of directions.

    Raises:
      ValueError: r above n; a variance of 0; too few samples.
    """
    found = components(matrix, r)
    return _share(float(np.sum(found.values)), found.total)


def subspace_overlap(a: Source, b: Source, r: int) -> float:
    """How much of one space of r components lies in that of another.

        |U_a^T U_b|² / r

    1 for equal spaces; r / n on average for random ones (`random_overlap`). Where the
    r-th and the next variance are nearly equal, which directions belong to the space is
    a matter of chance, and `transfer` says more.

    Args:
      a, b: covariance matrices of one size, or what stands for them.
      r: dimension of both spaces.

    Raises:
      ValueError: sizes that differ; r above n; too few samples.
    """
    left, right = components(a, r).vectors, components(b, r).vectors
    _same_size(len(left), len(right))
    return min(1.0, float(np.sum((left.T @ right) ** 2)) / r)


def transfer(a: Source, b: Source, r: int) -> float:
    """The share of b's variance that a's leading r components explain.

        tr(U_a^T C_b U_a) / tr C_b

    To be compared with `explained_variance(b, r)`, the most that any r directions can;
    r / n is what random ones explain. Not symmetric. Where b is `Components`, what it
    left out counts as unexplained.

    Args, Raises: as in `subspace_overlap`.
    """
    directions = components(a, r).vectors
    if isinstance(b, Components):
        _same_size(len(directions), len(b.vectors))
        within = (directions.T @ b.vectors) ** 2 @ b.values
        return _share(float(np.sum(within)), b.total)
    matrix = as_matrix(b, r)
    _same_size(len(directions), len(matrix))
    within = np.sum(directions * (matrix @ directions))
    return _share(float(within), float(np.trace(matrix)))


def random_overlap(r: int, n: int) -> float:
    """The overlap, and the transfer, of random spaces: r / n on average."""
    return _rank(r, n) / n


def between(
    measure: Callable[[Source, Source, int], float], sources: Sequence[Source], r: int
) -> Float[np.ndarray, "k k"]:
    """`subspace_overlap` or `transfer` of every pair: of layers, heads, models, seeds.

    Args:
      measure: of two sources; the row is the first.
      sources: k of them.
      r: number of components.
    """
    known = [components(source, r) for source in sources]
    seconds = known if measure is subspace_overlap else sources
    return np.array([[measure(a, b, r) for b in seconds] for a in known])


def as_matrix(matrix: Source, rank: int = 0) -> Float[np.ndarray, "n n"]:
    """The matrix of a source, of enough samples for a rank where their number is known.

    Raises:
      ValueError: no square matrix; numbers that are not finite; too few samples.
    """
    if isinstance(matrix, Covariance):
        check_count(matrix.count, rank)
        matrix = matrix.matrix
    found = np.asarray(matrix, np.float64)
    if found.ndim != 2 or found.shape[0] != found.shape[1]:
        raise ValueError(
            f"matrix: got shape {found.shape}; expected (n, n), a covariance; make it "
            "with Covariance().update(samples).matrix"
        )
    if not np.isfinite(found).all():
        raise ValueError(
            "matrix: got numbers that are not finite; expected a covariance; look at "
            "the samples that it is from"
        )
    return found


def _rank(r: int, n: int) -> int:
    check_sizes(r=r)
    if r > n:
        raise ValueError(
            f"r: got {r}; expected at most {n}, the number of components there are"
        )
    return r


def _share(part: float, whole: float) -> float:
    if not whole > 0:
        raise ValueError(
            f"matrix: got a variance of {whole:g} in all; expected one above 0, since "
            "shares of it are asked for; look at samples that differ"
        )
    return min(1.0, max(0.0, part / whole))


def _same_size(one: int, other: int) -> None:
    if one != other:
        raise ValueError(
            f"b: got {other} entries a sample for a's {one}; expected the same; "
            "compare scores of one length"
        )
