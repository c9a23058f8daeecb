"""Positions computed the slow way, one number at a time."""

import math

import numpy as np


def sinusoidal(position: int, column: int, d_model: int) -> float:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i + 1) = cos of the same."""
    angle = position / 10000 ** (2 * (column // 2) / d_model)
    return math.cos(angle) if column % 2 else math.sin(angle)


def rotary(x, positions, base=10000.0, interleaved=False):
    """Each pair of features as a complex number times e^{i angle}."""
    d = x.shape[-1]
    out = np.zeros(x.shape)
    positions = np.broadcast_to(positions, x.shape[:-2])
    for *token, head in np.ndindex(*x.shape[:-1]):
        for i in range(d // 2):
            one, two = (2 * i, 2 * i + 1) if interleaved else (i, i + d // 2)
            vector = x[(*token, head)]
            angle = float(positions[tuple(token)]) * base ** (-2 * i / d)
            turned = complex(vector[one], vector[two]) * complex(
                math.cos(angle), math.sin(angle)
            )
            out[(*token, head, one)], out[(*token, head, two)] = (
                turned.real,
                turned.imag,
            )
    return out


def alibi_slopes(h: int) -> list[float]:
    """The slopes of Press et al. 2022: powers of 2^(-8/h), else interleaved ones."""
    if h & (h - 1) == 0:
        return [2 ** (-8 / h * (k + 1)) for k in range(h)]
    below = 1
    while below * 2 < h:
        below *= 2
    return alibi_slopes(below) + alibi_slopes(2 * below)[0::2][: h - below]


def alibi(h, t, s, offset=0):
    """-slope |i + offset - j|."""
    out = np.zeros((h, t, s))
    for head, slope in enumerate(alibi_slopes(h)):
        for i in range(t):
            for j in range(s):
                out[head, i, j] = -slope * abs(i + offset - j)
    return out
