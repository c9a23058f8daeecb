"""The least that a model has to beat: a table of what follows what."""

import numpy as np
from numpy.typing import NDArray

Pairs = tuple[NDArray[np.integer], NDArray[np.integer]]


def bits_of_pairs(train: Pairs, held_out: Pairs, size: int) -> float:
    """Bits per symbol of a table of pairs, counted on the training side.

        p(next = j | symbol = i) = (n_ij + 1) / (Σ_j n_ij + size)

    with n_ij how often j follows i.

    Args:
      train, held_out: symbols below size, and what follows each of them.
    """
    before, after = (np.asarray(side, np.int32).reshape(-1) for side in train)
    counts = np.bincount(before * size + after, minlength=size * size)
    counts = counts.reshape(size, size) + 1
    bits = np.log2(counts.sum(axis=1, keepdims=True)) - np.log2(counts)
    return float(np.mean(bits[held_out]))
