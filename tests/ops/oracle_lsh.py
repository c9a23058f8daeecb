"""LSH attention computed the slow way: NumPy, float64, one pair of tokens at a time.

Kitaev et al. 2020, section 2. Buckets and chunks are lists of positions, and what a
query sees is a set: the union over rounds of those it meets. Layout `*b t h d`.
"""

from typing import NamedTuple

import numpy as np

from tests.ops import oracles


class LSH(NamedTuple):
    """Outputs and, where a cotangent of the output was given, gradients."""

    out: np.ndarray
    qk: np.ndarray
    v: np.ndarray


def attention(
    qk,
    v,
    allowed,
    rotations,
    bucket_size,
    *,
    real=None,
    ids=None,
    queries=None,
    cotangent=None,
) -> LSH:
    """Softmax attention of qk to qk / |qk| over the keys that `sight` finds.

    queries: how many of the first tokens ask; None is all.
    """
    lead, (t, h, d), (g, e) = qk.shape[:-3], qk.shape[-3:], v.shape[-2:]
    queries = t if queries is None else queries
    flat = qk.reshape(-1, t, h, d)
    table = sight(flat, allowed, rotations, bucket_size, real, ids, queries)
    k, pullback = unit(qk)
    found = oracles.softmax_attention(
        qk[..., :queries, :, :],
        k,
        np.repeat(v, h // g, axis=-2),
        table.reshape(*lead, h, queries, t),
        cotangent=cotangent,
    )
    dqk = pullback(found.k)
    dqk[..., :queries, :, :] += found.q
    dv = found.v.reshape(*lead, t, g, h // g, e).sum(axis=-2)
    return LSH(found.out, dqk, dv)


def sight(qk, allowed, rotations, bucket_size, real, ids, queries):
    """Bool[b h queries t]: the keys that a query meets in some round, or itself alone.

    rotations: m r h d, of which each row and segment uses the first columns.
    """
    (b, t, h, _), rounds = qk.shape, rotations.shape[1]
    allowed = np.broadcast_to(allowed, (b, h, queries, t))
    real = np.broadcast_to(True if real is None else real, (b, t))
    ids = np.broadcast_to(0 if ids is None else ids, (b, t))
    table = np.zeros((b, h, queries, t), bool)
    for row, head in np.ndindex(b, h):
        groups = [
            [i for i in range(t) if real[row, i] and ids[row, i] == number]
            for number in sorted(set(ids[row].tolist()))
        ]
        for group in groups:
            for n in range(rounds):
                cut = chunks(
                    qk[row, :, head], group, rotations[:, n, head], bucket_size
                )
                for chunk, before in zip(cut, [[], *cut], strict=False):
                    for i in (i for i in chunk if i < queries):
                        for j in [*before, *chunk]:
                            if j != i and allowed[row, head, i, j]:
                                table[row, head, i, j] = True
            for i in (i for i in group if i < queries):
                if not table[row, head, i].any():
                    table[row, head, i, i] = allowed[row, head, i, i]
    return table


def chunks(x, group, rotation, size):
    """The positions of a group, sorted by bucket and position, `size` a list."""
    half = -(-len(group) // (2 * size))

    def bucket(i):
        turned = rotation[:half] @ x[i]
        return int(np.argmax(np.concatenate([turned, -turned])))

    order = sorted(group, key=lambda i: (bucket(i), i))
    return [order[n : n + size] for n in range(0, len(order), size)]


def unit(x):
    """x / |x| and its pullback; 0 where x is 0."""
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    length = np.where(length > 0, length, np.inf)
    u = x / length

    def pullback(g):
        return (g - np.sum(g * u, axis=-1, keepdims=True) * u) / length

    return u, pullback
