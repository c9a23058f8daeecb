"""Exclusive self attention computed the slow way, from equation 2 of Zhai 2026."""

import numpy as np


def exclude_self(y, v, strength=1.0):
    """z_i = y_i - strength (y_i . v_i) v_i / |v_i|^2, in float64."""
    *lead, h, _ = y.shape
    g = v.shape[-2]
    strength = np.broadcast_to(strength, (*lead, h, 1))
    out = np.zeros(y.shape)
    for *token, head in np.ndindex(*lead, h):
        out[(*token, head)] = one(
            y[(*token, head)],
            v[(*token, head // (h // g))],
            float(strength[(*token, head, 0)]),
        )
    return out


def one(y, v, strength):
    """The projection of one vector; y itself where v is 0."""
    length = np.sqrt(np.sum(v**2))
    if length == 0:
        return y
    unit = v / length
    return y - strength * np.sum(y * unit) * unit


def pullback(y, v, strength, cotangent):
    """Gradients of y, v and strength (*b t h 1) for a cotangent of z.

    With u = v / |v| and c the cotangent: dy = c - k (c.u) u and
    dv = -k / |v| ((y.u) c + (c.u) y - 2 (y.u) (c.u) u), dk = -(y.u) (c.u).
    """
    *lead, h, _ = y.shape
    g = v.shape[-2]
    dy, dv, dk = np.zeros(y.shape), np.zeros(v.shape), np.zeros((*lead, h, 1))
    for *token, head in np.ndindex(*lead, h):
        at, own = (*token, head), (*token, head // (h // g))
        k = float(np.broadcast_to(strength, dk.shape)[(*at, 0)])
        length = np.sqrt(np.sum(v[own] ** 2))
        u, c = v[own] / length, cotangent[at]
        yu, cu = y[at] @ u, c @ u
        dy[at] = c - k * cu * u
        dv[own] += -k / length * (yu * c + cu * y[at] - 2 * yu * cu * u)
        dk[(*at, 0)] = -yu * cu
    return dy, dv, dk
