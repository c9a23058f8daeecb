"""Means and covariances of samples that come in pieces, in float64."""

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float

from attn_jax.nn._checks import check_sizes

Known = Array | np.ndarray  # of JAX or NumPy


class Components(NamedTuple):
    """Leading principal components.

    values: variances along them, descending.
    vectors: the directions, one a column.
    total: the variance in all directions, those left out included.
    """

    values: Float[np.ndarray, " r"]
    vectors: Float[np.ndarray, "n r"]
    total: float


class _Sums(NamedTuple):
    """Sums over samples x that have a mean.

    pairs: samples in which both entries of a pair are there.
    sums: over these, x_i - mean_i; 0 where no entry is missing anywhere.
    products: over these, (x_i - mean_i)(x_j - mean_j).
    """

    mean: np.ndarray
    pairs: Any
    sums: Any
    products: np.ndarray

    def moved(self, mean: np.ndarray) -> "_Sums":
        """The same about another mean."""
        step = mean - self.mean
        i, j = step[..., :, None], step[..., None, :]
        sums = self.sums - i * self.pairs
        products = self.products + i * j * self.pairs
        if np.ndim(self.sums):
            products -= j * self.sums + i * np.swapaxes(self.sums, -1, -2)
        return _Sums(mean, self.pairs, sums, products)

    def counts(self) -> Any:
        """Samples in which each entry is there."""
        if not np.ndim(self.pairs):
            return self.pairs
        return np.diagonal(self.pairs, axis1=-2, axis2=-1)


@dataclass(frozen=True, eq=False)
class Covariance:
    """Mean and covariance of samples, which may come in any number of pieces.

        mu = sum x / N,   C = sum (x - mu) (x - mu)^T / N

    Each piece is summed about its own mean and moved to the joint one when it is added
    (Chan et al. 1979), so that a mean far from 0 costs no digits. An entry that is not
    valid never enters: the sums are over the samples that have it.

        statistics = Covariance()
        for samples in pieces:
            statistics = statistics.update(samples)

    Axes in front of the samples' are kept, one covariance for each.

    Attributes:
      count: samples so far, N.
    """

    count: int = 0
    _sums: _Sums | None = None

    def update(
        self,
        samples: Float[Known, "*b N n"],
        *,
        valid: Bool[Known, "*b N n"] | None = None,
    ) -> "Covariance":
        """With so many samples more; this one stays as it is.

        Args:
          samples: one a row; what stands where one is not valid may be anything.
          valid: entries that are there; None is all.

        Raises:
          ValueError: samples of another length; an entry that is not finite.
        """
        x = _checked(samples)
        there = None if valid is None else np.broadcast_to(np.asarray(valid), x.shape)
        if there is not None and there.all():
            there = None
        if self._sums is not None and self._sums.mean.shape[-1] != x.shape[-1]:
            raise ValueError(
                f"samples: got {x.shape[-1]} entries each (shape {x.shape}) after some "
                f"of {self._sums.mean.shape[-1]}; expected the same; take samples of "
                "one length"
            )
        if x.shape[-2] == 0:
            return self
        bad = ~np.isfinite(x) if there is None else ~np.isfinite(x) & there
        if bad.any():
            place = tuple(map(int, np.argwhere(bad)[0]))
            raise ValueError(
                f"samples: got {x[place]} at {place}; expected finite numbers; look "
                "at what made them, or say with valid what is missing"
            )
        return self.merge(Covariance(x.shape[-2], _summed(x, there)))

    def merge(self, other: "Covariance") -> "Covariance":
        """Of the samples of both."""
        if self._sums is None or other._sums is None:
            return other if self._sums is None else self
        a, b = self._sums, other._sums
        total = a.counts() + b.counts()
        weighed = a.counts() * a.mean + b.counts() * b.mean
        mean = weighed / np.maximum(total, 1)
        left, right = a.moved(mean), b.moved(mean)
        whole = not np.ndim(a.sums) and not np.ndim(b.sums)
        sums = _Sums(
            mean,
            a.pairs + b.pairs,
            # What is 0 but for rounding.
            0.0 if whole else left.sums + right.sums,
            left.products + right.products,
        )
        return Covariance(self.count + other.count, sums)

    @property
    def mean(self) -> Float[np.ndarray, "*b n"]:
        """Of the samples that have the entry; 0 where none has it."""
        return self._all().mean

    @property
    def matrix(self) -> Float[np.ndarray, "*b n n"]:
        """C, divided by the number of samples N.

        A sample without one of two entries adds nothing, as if its entry were the mean,
        which is what a masked key counts as in `partial_attention`: variances of
        entries that are rarely there are small. Like any covariance it has no
        eigenvalue below 0; one of the samples that have both entries can.
        """
        return self._all().products / self.count

    def _all(self) -> _Sums:
        if self._sums is None:
            raise ValueError(
                "samples: got none; expected at least one; call update(samples) first"
            )
        return self._sums


def _checked(samples: Any) -> np.ndarray:
    x = np.asarray(samples, np.float64)
    if x.ndim < 2:
        raise ValueError(
            f"samples: got shape {x.shape}; expected (N, n), one sample a row; a "
            "single one is samples[None]"
        )
    return x


def _summed(x: np.ndarray, valid: np.ndarray | None) -> _Sums:
    """The sums of one piece, about its own mean."""
    if valid is None:
        mean = x.mean(axis=-2)
        centred = x - mean[..., None, :]
        products = np.swapaxes(centred, -1, -2) @ centred
        return _Sums(mean, float(x.shape[-2]), 0.0, products)
    count = valid.sum(axis=-2)
    mean = np.where(valid, x, 0.0).sum(axis=-2) / np.maximum(count, 1)
    centred = np.where(valid, x - mean[..., None, :], 0.0)
    there = valid.astype(np.float64)
    flipped = np.swapaxes(centred, -1, -2)
    pairs = np.swapaxes(there, -1, -2) @ there
    return _Sums(mean, pairs, flipped @ there, flipped @ centred)


@dataclass(frozen=True, eq=False, kw_only=True)
class Sketch:
    """Leading components of samples that are too long for a covariance.

        Y = C Omega,   C ~ Y (Omega^T Y)^-1 Y^T

    Omega has some orthonormal random columns. Y is summed in float64 while samples come
    and go, as a `Covariance` is; mean and total variance are exact. Memory O(n rank)
    where a covariance takes O(n²).

    Reference: Tropp et al. 2017, 1706.05736, algorithm 3 (the Nyström approximation).

    Attributes:
      size: entries of a sample, n.
      rank: components that are wanted; twice as many columns are kept, and 16 more.
      seed: of Omega.
      count: samples so far.
    """

    size: int
    rank: int
    seed: int = 0
    count: int = 0
    _mean: Any = 0.0
    _product: Any = 0.0
    _total: float = 0.0

    def __post_init__(self) -> None:
        check_sizes(size=self.size, rank=self.rank)
        if self.rank > self.size:
            raise ValueError(
                f"rank: got {self.rank}; expected at most size = {self.size}, the "
                "entries of a sample"
            )

    def update(self, samples: Float[Known, "N n"]) -> "Sketch":
        """With so many samples more; this one stays as it is.

        Raises:
          ValueError: samples of another length; an entry that is not finite.
        """
        x = _checked(samples)
        if x.shape[1:] != (self.size,):
            raise ValueError(
                f"samples: got shape {x.shape}; expected (N, {self.size}), as size says"
            )
        if not np.isfinite(x).all():
            row = int(np.argwhere(~np.isfinite(x))[0][0])
            raise ValueError(
                f"samples: got numbers that are not finite in row {row}; expected "
                "finite ones; leave out what is masked"
            )
        if not len(x):
            return self
        mean, n = x.mean(axis=0), len(x)
        x = x - mean
        omega, total = _columns(self.size, self._width(), self.seed), self.count + n
        step = mean - self._mean
        between = self.count * n / total
        return replace(
            self,
            count=total,
            _mean=self._mean + step * (n / total),
            _product=self._product
            + x.T @ (x @ omega)
            + between * np.outer(step, step @ omega),
            _total=self._total + float(np.sum(x * x)) + between * float(step @ step),
        )

    @property
    def mean(self) -> Float[np.ndarray, " n"]:
        return np.broadcast_to(self._mean, (self.size,))

    def components(self) -> Components:
        """The leading `rank` components; their values are a little too small.

        Raises:
          ValueError: fewer samples than rank + 1.
        """
        check_count(self.count, self.rank)
        omega = _columns(self.size, self._width(), self.seed)
        product = self._product / self.count
        shift = np.sqrt(self.size) * np.finfo(np.float64).eps * np.linalg.norm(product)
        product = product + shift * omega
        inner = omega.T @ product
        root = np.linalg.cholesky((inner + inner.T) / 2)
        vectors, values, _ = np.linalg.svd(
            np.linalg.solve(root, product.T).T, full_matrices=False
        )
        values = np.maximum(values**2 - shift, 0.0)[: self.rank]
        return Components(values, vectors[:, : self.rank], self._total / self.count)

    def _width(self) -> int:
        return min(self.size, 2 * self.rank + 16)


@functools.lru_cache(maxsize=4)
def _columns(size: int, width: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(size, width))
    return np.linalg.qr(drawn)[0]


def check_count(count: int, rank: int) -> None:
    """Samples enough for so many components."""
    if count <= rank:
        raise ValueError(
            f"samples: got {count} for rank {rank}; expected at least {rank + 1}, "
            f"since N samples vary in N - 1 directions; take {rank + 1 - count} more, "
            "or ask for a lower rank"
        )
