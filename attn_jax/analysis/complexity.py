"""Table 1 of the 2017 paper: what a layer costs by its kind.

n is the length, d the width. `attn_jax.analysis.flops` counts real layers.
"""

from math import log
from typing import NamedTuple


class Complexity(NamedTuple):
    """A row of the paper's table 1, without the O( ).

    operations: a layer's. sequential: those that must follow one another.
    path: the longest way between two positions.
    """

    operations: float
    sequential: float
    path: float


def self_attention(n: int, d: int) -> Complexity:
    """n² d, 1, 1 (Vaswani et al. 2017, table 1)."""
    return Complexity(n * n * d, 1, 1)


def recurrent(n: int, d: int) -> Complexity:
    """n d², n, n (Vaswani et al. 2017, table 1)."""
    return Complexity(n * d * d, n, n)


def convolutional(n: int, d: int, k: int) -> Complexity:
    """k n d², 1, log_k n, for a kernel of k > 1 (Vaswani et al. 2017, table 1)."""
    return Complexity(k * n * d * d, 1, log(n) / log(k))


def restricted_self_attention(n: int, d: int, r: int) -> Complexity:
    """r n d, 1, n / r, each query seeing r keys (Vaswani et al. 2017, table 1)."""
    return Complexity(r * n * d, 1, n / r)
