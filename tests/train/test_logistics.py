"""Mixtures of discretised logistics against their definition in float64."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from attn_jax.train import (
    mixture_of_logistics_log_likelihood,
    sample_mixture_of_logistics,
)

SCALES = (-30.0, -7.0, -5.0, -2.0, 0.0, 3.0, 7.0, 30.0)
MEANS = (-40.0, -1.5, -1.0, -0.2, 0.0, 0.61, 1.0, 2.0, 1e3)


def cdf(z):
    """The logistic function, without overflow."""
    return 1 / (1 + np.exp(-z)) if z > 0 else np.exp(z) / (1 + np.exp(z))


def oracle(parameters, pixel, levels):
    """log p of one pixel; each difference is taken where it loses no digits."""
    logits, means, log_scales = np.split(np.asarray(parameters, np.float64), 3)
    weights = np.exp(logits - logits.max())
    total, x, r = 0.0, 2 * pixel / (levels - 1) - 1, 1 / (levels - 1)
    for i in range(len(logits)):
        s = np.exp(min(max(log_scales[i], -7), 7))
        upper = np.inf if pixel == levels - 1 else (x + r - means[i]) / s
        lower = -np.inf if pixel == 0 else (x - r - means[i]) / s
        if lower > 0:
            inside = (0 if upper == np.inf else -cdf(-upper)) + cdf(-lower)
        else:
            inside = (1 if upper == np.inf else cdf(upper)) - (
                0 if lower == -np.inf else cdf(lower)
            )
        total += weights[i] / weights.sum() * inside
    return np.log(total)


def parameters_of(rng, *shape, k):
    """Means inside and outside of the range, scales from sharp to flat."""
    logits = rng.normal(size=(*shape, k)) * 2
    means = rng.normal(size=(*shape, k))
    log_scales = rng.uniform(-4, 1, size=(*shape, k))
    return np.concatenate([logits, means, log_scales], axis=-1)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("shape", "k", "levels"), [((), 1, 256), ((7,), 3, 17), ((2, 3), 10, 256)]
)
def test_equals_the_definition(shape, k, levels):
    """Values, and gradients by finite differences of the definition."""
    rng = np.random.default_rng(0)
    parameters = parameters_of(rng, *shape, k=k)
    pixels = np.asarray(rng.integers(levels, size=shape))
    pixels.reshape(-1)[:1] = levels - 1

    def total(parameters):
        log_p = mixture_of_logistics_log_likelihood(parameters, pixels, levels=levels)
        return jnp.sum(log_p), log_p

    gradient, log_p = jax.jit(jax.grad(total, has_aux=True))(parameters)
    assert log_p.dtype == jnp.float64
    step = 1e-5
    for i in np.ndindex(shape):
        want = oracle(parameters[i], pixels[i], levels)
        np.testing.assert_allclose(log_p[i], want, rtol=1e-9)
        for j in range(3 * k):
            shifted = parameters[i] + step * np.eye(3 * k)[j] * [[1], [-1]]
            up, down = (oracle(each, pixels[i], levels) for each in shifted)
            slope = (up - down) / (2 * step)
            np.testing.assert_allclose(gradient[(*i, j)], slope, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("levels", [2, 17, 256])
def test_probabilities_sum_to_1(levels):
    """One logistic of every mean and scale, and mixtures of all of them."""
    means, scales = (axis.reshape(-1) for axis in np.meshgrid(MEANS, SCALES))
    single = np.stack([np.zeros(len(means)), means, scales], axis=-1)
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(5, len(means))) * 9
    mixed = np.concatenate(
        [logits, np.tile(means, (5, 1)), np.tile(scales, (5, 1))], axis=1
    )
    values = np.arange(levels)
    for parameters in (single, mixed):
        wide = np.repeat(parameters[:, None], levels, axis=1)
        pixels = np.tile(values, (len(parameters), 1))
        log_p = mixture_of_logistics_log_likelihood(wide, pixels, levels=levels)
        assert np.isfinite(log_p).all()
        np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_and_gradients_are_finite_everywhere(dtype):
    """At 0, at 255, and at bins that are as far from the mean as can be."""
    with jax.enable_x64(dtype == "float64"):
        means, scales = (axis.reshape(-1) for axis in np.meshgrid(MEANS, SCALES))
        parameters = np.stack([np.zeros(len(means)), means, scales], axis=-1)
        parameters = jnp.asarray(np.repeat(parameters[:, None], 5, axis=1), dtype)
        pixels = np.tile([0, 1, 128, 254, 255], (len(means), 1))

        def total(parameters):
            log_p = mixture_of_logistics_log_likelihood(parameters, pixels)
            return jnp.sum(log_p), log_p

        gradient, log_p = jax.grad(total, has_aux=True)(parameters)
        assert gradient.dtype == log_p.dtype == jnp.dtype(dtype)
        assert np.isfinite(log_p).all()
        assert np.isfinite(gradient).all()
        # Something is to be learnt of the mean wherever its logistic isn't flat.
        assert (gradient[..., 1] != 0)[scales < 7].any(axis=1).all()


@pytest.mark.parametrize(
    ("mean", "pixels"), [(60.0, [0, 100, 254]), (-60.0, [1, 100, 255])]
)
def test_far_from_the_mean_the_gradient_is_that_of_the_tail(mean, pixels):
    """d log p / d μ = ∓ 1 / s and d log p / d log s = |x - μ| / s, edges included."""
    parameters = jnp.tile(jnp.array([0.0, mean, -2.0]), (3, 1))

    def total(parameters):
        return mixture_of_logistics_log_likelihood(parameters, jnp.array(pixels)).sum()

    gradient, s = jax.grad(total)(parameters), np.exp(-2.0)
    np.testing.assert_allclose(gradient[:, 1], -np.sign(mean) / s, rtol=1e-4)
    np.testing.assert_allclose(gradient[:, 2], 60 / s, rtol=0.02)


def test_reduces_to_a_bernoulli_variable():
    mean, log_scale = 0.3, -0.5
    parameters = jnp.tile(jnp.array([0.7, mean, log_scale]), (2, 1))
    log_p = mixture_of_logistics_log_likelihood(parameters, jnp.array([0, 1]), levels=2)
    logit = mean / np.exp(log_scale)
    want = jax.nn.log_sigmoid(jnp.array([-logit, logit]))
    np.testing.assert_allclose(log_p, want, rtol=1e-6)


def test_half_precision_is_computed_in_float32():
    rng = np.random.default_rng(2)
    parameters = jnp.asarray(parameters_of(rng, 64, k=10), jnp.bfloat16)
    pixels = rng.integers(256, size=64)
    log_p = mixture_of_logistics_log_likelihood(parameters, pixels)
    assert log_p.dtype == jnp.float32
    exact = np.asarray(parameters.astype(jnp.float32), np.float64)
    want = [oracle(*each, 256) for each in zip(exact, pixels, strict=True)]
    np.testing.assert_allclose(log_p, want, rtol=2e-5)


def test_bytes_are_pixels():
    parameters = jnp.zeros((2, 3))
    pixels = np.array([0, 255], np.uint8)
    log_p = mixture_of_logistics_log_likelihood(parameters, pixels)
    wide = mixture_of_logistics_log_likelihood(parameters, pixels.astype(np.int32))
    np.testing.assert_array_equal(log_p, wide)


@pytest.mark.parametrize("levels", [2, 17])
def test_what_is_drawn_has_the_likelihood(levels):
    """Counts of 40,000 draws by a chi-square test; both edges carry much."""
    parameters = np.array([0.3, 1.0, -0.5, -1.2, 0.1, 1.4, -1.0, -2.5, -0.5])
    wide = jnp.tile(jnp.asarray(parameters, jnp.float32), (40_000, 1))
    draw = jax.jit(partial(sample_mixture_of_logistics, levels=levels))
    pixels = np.asarray(draw(wide, jax.random.key(0)))
    assert pixels.dtype == np.int32
    counts = np.bincount(pixels, minlength=levels)
    assert len(counts) == levels
    p = np.exp([oracle(parameters, pixel, levels) for pixel in range(levels)])
    assert p[0] > 0.1
    assert p[-1] > 0.08
    assert scipy.stats.chisquare(counts, p * len(pixels)).pvalue > 1e-3
    assert not np.array_equal(pixels, draw(wide, jax.random.key(1)))


def test_a_sharp_logistic_is_drawn_at_its_level():
    levels = np.arange(256)
    means = 2 * levels / 255 - 1
    parameters = np.stack([np.zeros(256), means, np.full(256, -20.0)], axis=-1)
    wide = jnp.asarray(np.tile(parameters, (40, 1, 1)), jnp.float32)
    pixels = np.asarray(sample_mixture_of_logistics(wide, jax.random.key(0)))
    assert (pixels == levels).mean() > 0.95
    assert np.abs(pixels - levels).max() <= 2


def test_a_pixel_that_is_no_level_is_refused_or_nan():
    parameters = jnp.zeros((3, 6))
    for bad in (-1, 17):
        pixels = jnp.array([0, bad, 16])
        with pytest.raises(ValueError, match=rf"pixels: got values .*{bad}.* 0 to 16"):
            mixture_of_logistics_log_likelihood(parameters, pixels, levels=17)
        traced = jax.jit(partial(mixture_of_logistics_log_likelihood, levels=17))
        np.testing.assert_array_equal(
            np.isnan(traced(parameters, pixels)), [False, True, False]
        )


@pytest.mark.usefixtures("plain_errors")
@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.zeros((2, 4)), np.zeros(2, int)), {}, r"parameters: got shape \(2, 4\)"),
        ((np.zeros((2, 0)), np.zeros(2, int)), {}, r"parameters: got shape \(2, 0\)"),
        ((np.zeros((2, 3), int), np.zeros(2, int)), {}, "parameters: got int32"),
        ((np.zeros((2, 3)), np.zeros(3, int)), {}, r"pixels: got shape \(3,\)"),
        ((np.zeros((2, 3)), np.zeros(2)), {}, "pixels: got float32; expected integers"),
        ((np.zeros((2, 3)), np.zeros(2, int)), {"levels": 1}, "levels: got 1"),
        ((np.zeros((2, 3)), np.zeros(2, int)), {"levels": 2.5}, "levels: got 2.5"),
    ],
)
def test_bad_arguments_are_named(arguments, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        mixture_of_logistics_log_likelihood(*arguments, **options)
