# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Find the leak
#
# Five functions that someone could have written. Each runs, trains and has a fault: it
# sees the future, or padding, or another document. Look at the code first, then at the
# picture, then at what the detector says.

# %%
import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.analysis import plots
from attn_jax.testing import (
    assert_causal,
    assert_padding_invariant,
    assert_segments_isolated,
)

# %% tags=["parameters"]
t = 8
suspects = range(5)

# %% [markdown]
# ## The suspects
#
# `x` holds a vector a token, `b t m`.


# %%
def block_mean(x, size=4):
    """Each token gets the mean of its block, to save time."""
    block = jnp.arange(x.shape[1]) // size
    same = (block[:, None] == block[None]).astype(x.dtype)
    return jnp.einsum("ts,bsm->btm", same / same.sum(1, keepdims=True), x)


def normalised(x):
    """The mean of the past, brought to one scale over time."""
    past = jnp.cumsum(x, axis=1) / jnp.arange(1, x.shape[1] + 1)[None, :, None]
    return past / jnp.std(past, axis=1, keepdims=True)


def filtered(x):
    """A decaying filter of the past, by a Fourier transform."""
    n = x.shape[1]
    taps = 0.5 ** jnp.arange(n)[None, :, None]
    return jnp.fft.irfft(jnp.fft.rfft(x, n, 1) * jnp.fft.rfft(taps, n, 1), n, 1)


def mean_of_real(x, real):
    """The mean of a row's real tokens."""
    total = jnp.sum(jnp.where(real[..., None], x, 0), axis=1, keepdims=True)
    return jnp.broadcast_to(total / x.shape[1], x.shape)


def with_previous(x, ids):
    """Each token with the one before, of packed documents."""
    return x + jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]


# %% [markdown]
# ## The picture
#
# How much output i moves with token j: the size of a derivative, relative to the
# largest. In a causal function everything right of the diagonal is 0.

# %%
x = jax.random.normal(jax.random.key(0), (1, t, 4))


def influence(f):
    derivative = jax.jacobian(lambda x: f(x)[0])(x)[:, :, 0]  # t m s m
    size = np.sqrt(np.sum(np.square(derivative), axis=(1, 3)))
    return size / size.max()


functions = (block_mean, normalised, filtered)
shown = {f.__name__: influence(f) for f in functions[: len(suspects)]}
figure = plots.head_grid(shown)
figure.axes[-1].set_ylabel("influence")
figure

# %% [markdown]
# ## The detectors
#
# They need no picture: they change tokens and look at what moves, to the bit, and at
# gradients, which find what rounding hides.

# %%
x = jax.random.normal(jax.random.key(1), (2, t, 4))
detectors = (
    lambda: assert_causal(block_mean, x),
    lambda: assert_causal(normalised, x),
    # A Fourier transform rounds all positions alike, hence the tolerance.
    lambda: assert_causal(filtered, x, tolerance=1e-5, scales=(1.0,)),
    lambda: assert_padding_invariant(mean_of_real, x),
    lambda: assert_segments_isolated(with_previous, x),
)
for i in suspects:
    try:
        detectors[i]()
    except AssertionError as error:
        print(f"{error}\n")
    else:
        raise RuntimeError("a leak that nobody found")

# %% [markdown]
# ## The repairs
#
# | suspect | what leaks | repair |
# |---|---|---|
# | `block_mean` | later tokens of the block | the mean of the block so far |
# | `normalised` | the deviation is over all time | one over features, for each token |
# | `filtered` | the end wraps around to the beginning | transform 2 t numbers |
# | `mean_of_real` | the length of the padding | divide by the number of real tokens |
# | `with_previous` | the end of the document before | zero where `ids` changes |


# %%
def repaired(x):
    n = x.shape[1]
    taps = 0.5 ** jnp.arange(n)[None, :, None]
    product = jnp.fft.rfft(x, 2 * n, 1) * jnp.fft.rfft(taps, 2 * n, 1)
    return jnp.fft.irfft(product, 2 * n, 1)[:, :n]


assert_causal(repaired, x, tolerance=1e-5, scales=(1.0,))

# %% [markdown]
# Decoding has a detector of its own, `assert_decode_matches`:
# [docs](../docs/testing.md).
