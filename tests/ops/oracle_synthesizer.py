"""Synthesizers computed the slow way: NumPy, float64, one logit at a time.

Tay et al. 2021. Layout `*b t h e` for values, `*b h t n` for logits; query head j
reads value head j // (h / g). Attention visits only the keys that a query may see.
"""

from typing import NamedTuple

import numpy as np


class Attention(NamedTuple):
    """The output and the gradients for a cotangent of it."""

    out: np.ndarray
    logits: np.ndarray
    v: np.ndarray


def attention(logits, v, allowed, cotangent) -> Attention:
    """y_i = sum_j softmax_j(l_ij) v_j over the keys in sight, j < s."""
    lead, (s, g, _) = v.shape[:-3], v.shape[-3:]
    h, t = logits.shape[-3:-1]
    allowed = np.broadcast_to(allowed, (*lead, h, t, s))
    out, dlogits, dv = np.zeros(cotangent.shape), np.zeros(logits.shape), 0 * v
    for *b, head, i in np.ndindex(*lead, h, t):
        at, group = (*shared(b, logits), head, i), head // (h // g)
        seen = np.flatnonzero(allowed[(*b, head, i)])
        if seen.size == 0:
            continue
        row, values = logits[at][seen], v[tuple(b)][seen, group]
        raised = np.exp(row - row.max())
        p = raised / raised.sum()
        out[(*b, i, head)] = p @ values
        dp = values @ cotangent[(*b, i, head)]
        dlogits[at][seen] += p * (dp - p @ dp)
        for weight, key in zip(p, seen, strict=True):
            dv[(*b, key, group)] += weight * cotangent[(*b, i, head)]
    return Attention(out, dlogits, dv)


def shared(b, x) -> tuple[int, ...]:
    """Where example b is in x, whose batch axes may be missing or 1."""
    sizes = x.shape[:-3]
    b = b[len(b) - len(sizes) :]
    return tuple(0 if n == 1 else m for m, n in zip(b, sizes, strict=True))


def dense_logits(x, w1, b1, w2, b2):
    """S_i = W2 relu(W1 x_i + b1) + b2, for each head."""
    (*lead, t, _), (h, _, d), n = x.shape, w1.shape, w2.shape[-1]
    out = np.zeros((*lead, h, t, n))
    for *b, head, i in np.ndindex(*lead, h, t):
        token = x[(*b, i)]
        hidden = [max(token @ w1[head, :, k] + b1[head, k], 0.0) for k in range(d)]
        out[(*b, head, i)] = np.array(hidden) @ w2[head] + b2[head]
    return out


def convolution_logits(x, w1, b1, w2, b2, place=lambda b, head, i, c: i - c):
    """S_i = W2 relu(sum_c W1_c x_{i - c} + b1) + b2, for each head.

    place says where x_{i - c} stands in row b for a head; nowhere if that is below 0.
    """
    (*lead, t, _), (taps, h, _, d), n = x.shape, w1.shape, w2.shape[-1]
    out = np.zeros((*lead, h, t, n))
    for *b, head, i in np.ndindex(*lead, h, t):
        hidden = b1[head].astype(np.float64)
        for c in range(taps):
            j = i if c == 0 else place(tuple(b), head, i, c)
            if j >= 0:
                hidden = hidden + x[(*b, j)] @ w1[c, head]
        hidden = [max(hidden[k], 0.0) for k in range(d)]
        out[(*b, head, i)] = np.array(hidden) @ w2[head] + b2[head]
    return out


def gated_logits(x, w1, b1, v1, c1, w2, b2):
    """S_i = W2 ((W1 x_i + b1) sigmoid(V1 x_i + c1)) + b2, for each head."""
    (*lead, t, _), (h, _, d), n = x.shape, w1.shape, w2.shape[-1]
    out = np.zeros((*lead, h, t, n))
    for *b, head, i in np.ndindex(*lead, h, t):
        token, hidden = x[(*b, i)], np.zeros(d)
        for k in range(d):
            gate = 1 / (1 + np.exp(-(token @ v1[head, :, k] + c1[head, k])))
            hidden[k] = (token @ w1[head, :, k] + b1[head, k]) * gate
        out[(*b, head, i)] = hidden @ w2[head] + b2[head]
    return out


def factorized_dense_logits(a, b):
    """C_ij = A_{i, j // b} B_{i, j mod b}."""
    na, nb = a.shape[-1], b.shape[-1]
    out = np.zeros((*a.shape[:-1], na * nb))
    for *index, j in np.ndindex(*out.shape):
        out[(*index, j)] = a[(*index, j // nb)] * b[(*index, j % nb)]
    return out


def factorized_random_logits(r1, r2):
    """R = R1 R2^T, for each head."""
    (h, t, _), n = r1.shape, r2.shape[1]
    out = np.zeros((h, t, n))
    for head, i, j in np.ndindex(h, t, n):
        out[head, i, j] = r1[head, i] @ r2[head, j]
    return out


def factorized_dense_pullback(a, b, dlogits):
    """Gradients of a and b for those of the logits."""
    nb, da, db = b.shape[-1], np.zeros(a.shape), np.zeros(b.shape)
    for *index, j in np.ndindex(*dlogits.shape):
        block, place = (*index, j // nb), (*index, j % nb)
        da[block] += dlogits[(*index, j)] * b[place]
        db[place] += dlogits[(*index, j)] * a[block]
    return da, db


def factorized_random_pullback(r1, r2, dlogits):
    """Gradients of r1 and r2 for those of the logits."""
    dr1, dr2 = np.zeros(r1.shape), np.zeros(r2.shape)
    for head, i, j in np.ndindex(*dlogits.shape):
        dr1[head, i] += dlogits[head, i, j] * r2[head, j]
        dr2[head, j] += dlogits[head, i, j] * r1[head, i]
    return dr1, dr2


def mixture(logits, alphas):
    """S = sum_k alpha_k S_k, alpha indexed by head."""
    out = np.zeros(np.broadcast_shapes(*(x.shape for x in logits)))
    for k, x in enumerate(logits):
        for *b, head, i, j in np.ndindex(*out.shape):
            at = (*shared(b, x), head, i, j)
            out[(*b, head, i, j)] += alphas[head, k] * x[at]
    return out
