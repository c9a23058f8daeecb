"""Attention that is right, in a few plain lines, and the ways in which it can leak."""

import jax
import jax.numpy as jnp
import numpy as np

B, T, H, D, E = 3, 7, 2, 5, 4


def arrays(*lasts, t=T, b=B):
    rng = np.random.default_rng(0)
    return [
        jnp.asarray(rng.normal(size=(b, t, *last)).astype(np.float32)) for last in lasts
    ]


QKV = arrays((H, D), (H, D), (H, E))
(X,) = arrays((D,))


def attend(q, k, v, allowed):
    """Softmax attention under allowed: Bool[b t s], 0 where a query sees nothing."""
    allowed = allowed[:, None]
    k, v = (jnp.where(allowed.any((1, 2))[..., None, None], x, 0) for x in (k, v))
    q = jnp.where(allowed.any((1, 3))[..., None, None], q, 0)
    logits = jnp.einsum("bthd,bshd->bhts", q, k)
    weights = jax.nn.softmax(jnp.where(allowed, logits, -1e30), -1)
    return jnp.einsum("bhts,bshe->bthe", jnp.where(allowed, weights, 0), v)


def tril(t, diagonal=0):
    return jnp.tril(jnp.ones((1, t, t), bool), diagonal)


def causal(q, k, v):
    return attend(q, k, v, tril(q.shape[1]))


def off_by_one(q, k, v):
    return attend(q, k, v, tril(q.shape[1], 1))


def weights_requested(q, k, v):
    """The path that also returns weights has forgotten the mask."""
    return attend(q, k, v, jnp.ones_like(tril(q.shape[1])))


def block_means(x, size=3):
    """Each token gets the mean of its block, its own future included."""
    t = x.shape[-2]
    blocks = jnp.arange(t) // size
    same = (blocks[:, None] == blocks[None]).astype(x.dtype)
    return jnp.einsum("ts,...sm->...tm", same / same.sum(1, keepdims=True), x)


def past_means(x):
    """The causal thing that block means should have been."""
    t = x.shape[-2]
    seen = jnp.tril(jnp.ones((t, t), x.dtype))
    return jnp.einsum("ts,...sm->...tm", seen / seen.sum(1, keepdims=True), x)


def filtered(x, length):
    """x convolved with a decaying filter, by a Fourier transform of some length."""
    t = x.shape[-2]
    taps = (0.5 ** jnp.arange(t)).reshape((1,) * (x.ndim - 2) + (t, 1))
    product = jnp.fft.rfft(x, length, axis=-2) * jnp.fft.rfft(taps, length, axis=-2)
    return jnp.fft.irfft(product, length, axis=-2)[..., :t, :].astype(x.dtype)


def circular(x):
    return filtered(x, x.shape[-2])


def padded_filter(x):
    return filtered(x, 2 * x.shape[-2])


def shift(x):
    """The token before, as a token-mixing gate takes it."""
    return x + jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]


def shift_across(x, ids):
    return shift(x)


def shift_inside(x, ids):
    before = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    same = jnp.pad(ids[:, 1:] == ids[:, :-1], ((0, 0), (1, 0)))
    return x + jnp.where(same[..., None], before, 0)


def hidden_by_rounding(x):
    """A future whose share is lost when it is added, but not in the gradient."""
    return past_means(x) + 1e-30 * x[:, ::-1]


def batch_norm(x):
    return past_means(x) / jnp.std(x, axis=0, keepdims=True)


def linear(q, k, v, real, in_denominator):
    """Linear attention to real keys; which keys the denominator counts is a choice."""
    shown = real[..., None, None]
    q, k, v = (jnp.where(shown, x, 0) for x in (q, k, v))
    phi_q, phi_k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    sums = jnp.einsum("bshd,bshe->bhde", jnp.where(shown, phi_k, 0), v)
    total = jnp.where(jnp.logical_or(shown, in_denominator), phi_k, 0).sum(1)
    return jnp.einsum("bthd,bhde->bthe", phi_q, sums) / jnp.einsum(
        "bthd,bhd->bth", phi_q, total
    ).reshape(*phi_q.shape[:3], 1)
