"""GPT-2 from a file's own arrays: NumPy, float64, written from Radford et al. 2019.

Learnt positions, a norm before each layer and one at the end, gelu by its tanh, logits
from the embedding. Weights are (in, out), as the authors' code has them; queries, keys
and values are three thirds of one product. Nothing of the library takes part.
"""

import math

import numpy as np


def linear(arrays, name, x):
    return x @ arrays[f"{name}.weight"] + arrays[f"{name}.bias"]


def norm(arrays, name, x, epsilon):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    scaled = (x - mean) / np.sqrt(variance + epsilon)
    return scaled * arrays[f"{name}.weight"] + arrays[f"{name}.bias"]


def gelu(x):
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def attend(arrays, name, x, heads):
    """Each head of each row, each query over itself and what is before it."""
    b, t, m = x.shape
    width = m // heads
    joined = linear(arrays, f"{name}.c_attn", x)
    q, k, v = joined[..., :m], joined[..., m : 2 * m], joined[..., 2 * m :]
    out = np.zeros_like(x)
    for row, head, i in np.ndindex(b, heads, t):
        at = slice(head * width, (head + 1) * width)
        scores = k[row, : i + 1, at] @ q[row, i, at] / math.sqrt(width)
        weights = np.exp(scores - scores.max())
        out[row, i, at] = weights / weights.sum() @ v[row, : i + 1, at]
    return linear(arrays, f"{name}.c_proj", out)


def decoder(arrays, tokens, *, heads, epsilon=1e-5):
    """Logits of the token after each token."""
    arrays = {name: np.asarray(x, np.float64) for name, x in arrays.items()}
    x = arrays["wte.weight"][tokens] + arrays["wpe.weight"][: tokens.shape[1]]
    i = 0
    while f"h.{i}.ln_1.weight" in arrays:
        layer = f"h.{i}"
        y = norm(arrays, f"{layer}.ln_1", x, epsilon)
        x = x + attend(arrays, f"{layer}.attn", y, heads)
        y = norm(arrays, f"{layer}.ln_2", x, epsilon)
        y = gelu(linear(arrays, f"{layer}.mlp.c_fc", y))
        x = x + linear(arrays, f"{layer}.mlp.c_proj", y)
        i += 1
    return norm(arrays, "ln_f", x, epsilon) @ arrays["wte.weight"].T
