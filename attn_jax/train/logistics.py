"""Pixels from mixtures of discretised logistics: their likelihood, and drawing them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32, Integer, Key

from attn_jax.ops._shapes import is_traced
from attn_jax.train._checks import fail, integer

_LIMIT = 7.0  # of |log s|


class _Mixture(NamedTuple):
    """What the numbers that a model gives mean."""

    log_weights: Float[Array, "*b k"]
    means: Float[Array, "*b k"]
    log_scales: Float[Array, "*b k"]


def mixture_of_logistics_log_likelihood(
    parameters: Float[Any, "*b c"], pixels: Integer[Any, "*b"], *, levels: int = 256
) -> Float[Array, "*b"]:
    """log p of pixels under a mixture of k logistics, cut into bins of equal width.

        p(pixel) = Σ_i π_i [σ((x + r - μ_i) / s_i) - σ((x - r - μ_i) / s_i)]
        x = 2 pixel / (levels - 1) - 1,  r = 1 / (levels - 1)
        [log π + const, μ, log s] = parameters,  c = 3 k

    The bin of the first level reaches down to -∞ and that of the last one up to ∞, so
    that p sums to 1 over the levels. What is computed is

        log(σ(a) - σ(b)) = log σ(a) + log σ(-b) + log(1 - exp(b - a))

    in which nothing cancels: values and gradients are exact however far a bin is from
    the means. log s is held between -7 and 7, as narrow as a ninth of a bin of 256
    levels, and so wide that all bins inside are alike.

    Reduces to a Bernoulli variable of logit μ / s with k = 1 and levels = 2. Cost:
    O(b k) time and memory.

    Reference: Salimans et al. 2017 (PixelCNN++), equations 1 and 2, for one channel;
    Katharopoulos et al. 2020, section 4.2, take k = 10.

    Args:
      parameters: k logits of the weights, k means, k logarithms of scales, in this
        order; computed with in at least float32.
      pixels: values from 0 to levels - 1.
      levels: how many values a pixel can have.

    Returns:
      The logarithms, in at least float32.

    Raises:
      ValueError, TypeError: shapes or dtypes that do not fit, and a pixel that is no
        level. Under jit, where values are not known, its log p is NaN.
    """
    mixture = _read(parameters, levels)
    pixels = _checked_pixels(pixels, mixture.means.shape[:-1], levels)
    known = (pixels >= 0) & (pixels < levels)
    pixels = jnp.where(known, pixels, 0)[..., None]
    r = 1 / (levels - 1)
    x = 2 * r * pixels.astype(mixture.means.dtype) - 1
    steepness = jnp.exp(-mixture.log_scales)
    a = (x + r - mixture.means) * steepness
    b = (x - r - mixture.means) * steepness
    # At the ends a is ∞ or b is -∞, and what depends on it is log 1.
    first, last = pixels == 0, pixels == levels - 1
    inside = jnp.log(-jnp.expm1(-2 * r * steepness))
    log_p = (
        jnp.where(last, 0, jax.nn.log_sigmoid(a))
        + jnp.where(first, 0, jax.nn.log_sigmoid(-b))
        + jnp.where(first | last, 0, inside)
    )
    total = jax.nn.logsumexp(mixture.log_weights + log_p, axis=-1)
    return jnp.where(known, total, jnp.nan)


def sample_mixture_of_logistics(
    parameters: Float[Any, "*b c"], rng: Key[Array, ""], *, levels: int = 256
) -> Int32[Array, "*b"]:
    """Draws pixels with the probabilities of `mixture_of_logistics_log_likelihood`.

        i ~ π,  u ~ Uniform(0, 1),  y = μ_i + s_i log(u / (1 - u))
        pixel = the level nearest to y

    It is a `sampler` for `attn_jax.decoding.sample`. Cost: O(b k).

    Args:
      parameters, levels: as in `mixture_of_logistics_log_likelihood`.
      rng: a typed key.
    """
    mixture = _read(parameters, levels)
    which, where = jax.random.split(rng)
    i = jax.random.categorical(which, mixture.log_weights)[..., None]
    mean, log_scale = (
        jnp.take_along_axis(each, i, axis=-1)[..., 0]
        for each in (mixture.means, mixture.log_scales)
    )
    y = mean + jnp.exp(log_scale) * jax.random.logistic(where, mean.shape, mean.dtype)
    level = jnp.round((y + 1) / 2 * (levels - 1))
    return jnp.clip(level, 0, levels - 1).astype(jnp.int32)


def _read(parameters: Any, levels: int) -> _Mixture:
    """The parameters, checked and taken apart."""
    integer("levels", levels, minimum=2)
    parameters = jnp.asarray(parameters)
    if not jnp.issubdtype(parameters.dtype, jnp.floating):
        remedy = "pass what the model gives"
        fail("parameters", f"{parameters.dtype}", "a floating dtype", remedy, TypeError)
    if parameters.ndim == 0 or not parameters.shape[-1] or parameters.shape[-1] % 3:
        fail(
            "parameters",
            f"shape {parameters.shape}",
            "a last axis of 3 k numbers: logits of weights, means, log scales",
            "give the model 3 outputs for each of the k logistics",
        )
    dtype = jnp.promote_types(parameters.dtype, jnp.float32)
    logits, means, log_scales = jnp.split(parameters.astype(dtype), 3, axis=-1)
    return _Mixture(
        jax.nn.log_softmax(logits, axis=-1),
        means,
        jnp.clip(log_scales, -_LIMIT, _LIMIT),
    )


def _checked_pixels(pixels: Any, shape: tuple[int, ...], levels: int) -> Array:
    """The pixels as integers of that shape; a concrete one that is no level raises."""
    pixels = jnp.asarray(pixels)
    if not jnp.issubdtype(pixels.dtype, jnp.integer):
        remedy = "pass levels, not brightness"
        fail("pixels", str(pixels.dtype), "integers", remedy, TypeError)
    if pixels.shape != shape:
        fail(
            "pixels",
            f"shape {pixels.shape} beside parameters of shape {(*shape, 'c')}",
            "the shape of the parameters without their last axis",
            "pass one pixel for each row of parameters",
        )
    # Bytes are levels too, and 256 is no uint8.
    pixels = pixels.astype(jnp.promote_types(pixels.dtype, jnp.int32))
    if not is_traced(pixels) and pixels.size:
        values = np.asarray(pixels)
        if values.min() < 0 or values.max() >= levels:
            fail(
                "pixels",
                f"values from {values.min()} to {values.max()}",
                f"0 to {levels - 1} (levels - 1)",
                "pass the levels that the images have",
            )
    return pixels
