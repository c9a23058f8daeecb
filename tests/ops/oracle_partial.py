"""Attention from selected scores, the slow way: NumPy, float64, one score at a time.

Bhojanapalli et al. 2021. Layout `*b t h d`; query head j reads key head j // (h / g).
A query visits the selected keys that it may see, makes logits of these scores for the
keys in sight alone, and walks back through the same steps for the gradients.
"""

from typing import NamedTuple

import numpy as np


class Attention(NamedTuple):
    """The output and the gradients for a cotangent of it."""

    out: np.ndarray
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    reconstruction: np.ndarray
    offset: np.ndarray
    mean: np.ndarray


def attention(
    q, k, v, selected, reconstruction, offset, mean, allowed, cotangent, scale=None
) -> Attention:
    """softmax(R_i p_i + c_i) v, p_ia = scale q_i . k_{S_ia} or, unseen, mean_ia."""
    lead, (t, h, d), (s, g) = q.shape[:-3], q.shape[-3:], k.shape[-3:-1]
    scale = d**-0.5 if scale is None else scale
    selected = np.broadcast_to(selected, (t, np.shape(selected)[-1]))
    allowed = np.broadcast_to(allowed, (*lead, h, t, s))
    out = np.zeros(cotangent.shape)
    slopes = dq, dk, dv, dmatrix, doffset, dmean = [
        np.zeros(x.shape) for x in (q, k, v, reconstruction, offset, mean)
    ]
    for *b, head, i in np.ndindex(*lead, h, t):
        group, sight = head // (h // g), allowed[(*b, head, i)]
        seen = np.flatnonzero(sight)
        if seen.size == 0:
            continue
        keys = [j if j < s and sight[j] else None for j in selected[i]]
        query, one = q[(*b, i, head)], {n: 0 if n == 1 else head for n in (1, h)}
        scores = np.array(
            [
                mean[one[mean.shape[0]], i, a]
                if j is None
                else scale * float(query @ k[(*b, j, group)])
                for a, j in enumerate(keys)
            ]
        )
        at, bt = one[reconstruction.shape[0]], one[offset.shape[0]]
        logits = np.array(
            [reconstruction[at, i, j] @ scores + offset[bt, i, j] for j in seen]
        )
        raised = np.exp(logits - logits.max())
        p = raised / raised.sum()
        values = np.array([v[(*b, j, group)] for j in seen])
        out[(*b, i, head)] = p @ values

        dp = values @ cotangent[(*b, i, head)]
        dlogits = p * (dp - p @ dp)
        dscores = np.zeros(len(keys))
        for n, j in enumerate(seen):
            dv[(*b, j, group)] += p[n] * cotangent[(*b, i, head)]
            dmatrix[at, i, j] += dlogits[n] * scores
            doffset[bt, i, j] += dlogits[n]
            dscores += dlogits[n] * reconstruction[at, i, j]
        for a, j in enumerate(keys):
            if j is None:
                dmean[one[mean.shape[0]], i, a] += dscores[a]
            else:
                dq[(*b, i, head)] += dscores[a] * scale * k[(*b, j, group)]
                dk[(*b, j, group)] += dscores[a] * scale * query
    return Attention(out, *slopes)
