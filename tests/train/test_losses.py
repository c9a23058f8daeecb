"""Cross entropy against its definition in float64, and what may not have influence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.train import cross_entropy


def oracle(logits, labels, weights, smoothing):
    """Sums of losses and weights, and the gradient of the former, by definition."""
    logits = np.asarray(logits, np.float64)
    vocab = logits.shape[-1]
    total, count, gradient = 0.0, 0.0, np.zeros(logits.shape)
    for i in np.ndindex(labels.shape):
        weight = 0.0 if labels[i] < 0 else float(weights[i])
        if weight == 0:
            continue
        target = np.full(vocab, smoothing / vocab)
        target[labels[i]] += 1 - smoothing
        shifted = logits[i] - logits[i].max()
        log_p = shifted - np.log(np.exp(shifted).sum())
        total -= weight * (target * log_p).sum()
        count += weight
        gradient[i] = weight * (np.exp(log_p) - target)
    return total, count, gradient


@jax.jit
def value_and_grad(logits, labels, weights):
    def loss(logits):
        return cross_entropy(logits, labels, weights=weights, label_smoothing=0.1)

    (total, count), gradient = jax.value_and_grad(loss, has_aux=True)(logits)
    return total, count, gradient


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
def test_equals_the_definition(shape):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(*shape, 7)).astype(np.float32)
    labels = np.asarray(rng.integers(-1, 7, size=shape), np.int32)
    weights = np.asarray(rng.integers(0, 3, size=shape), np.float32)
    expected = oracle(logits, labels, weights, 0.1)
    for value, wanted in zip(
        value_and_grad(logits, labels, weights), expected, strict=True
    ):
        np.testing.assert_allclose(value, wanted, rtol=2e-6, atol=2e-6)


def test_label_smoothing_in_closed_form():
    # softmax(log [8, 4, 2, 2]) = [1/2, 1/4, 1/8, 1/8]; ε = 0.4 gives the right class
    # 0.7 and each other one 0.1: 0.7 ln 2 + 0.1 (ln 4 + ln 8 + ln 8) = 1.5 ln 2.
    logits = jnp.log(jnp.array([[8.0, 4.0, 2.0, 2.0]]))
    total, count = cross_entropy(logits, jnp.array([0]), label_smoothing=0.4)
    np.testing.assert_allclose(total, 1.5 * np.log(2), rtol=1e-6)
    assert count == 1


def test_reduces_to_the_log_probability_of_the_label():
    logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125]]))
    total, count = cross_entropy(logits, jnp.array([1, 0]))
    np.testing.assert_allclose(total, np.log(4) + np.log(8), rtol=1e-6)
    assert count == 2


def test_padding_leaves_the_mean_unchanged():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(2, 5, 4)).astype(np.float32)
    labels = rng.integers(4, size=(2, 5))
    padded = np.concatenate([logits, 9 * np.ones((2, 3, 4), np.float32)], axis=1)
    weights = np.concatenate([np.ones((2, 5)), np.zeros((2, 3))], axis=1)
    ignored = np.concatenate([labels, np.full((2, 3), -100)], axis=1)
    total, count = cross_entropy(logits, labels, label_smoothing=0.1)
    for options in ({"weights": weights}, {}):
        padded_total, padded_count = cross_entropy(
            padded, ignored, label_smoothing=0.1, **options
        )
        np.testing.assert_allclose(
            padded_total / padded_count, total / count, rtol=1e-6
        )
        assert padded_count == count == 10


@pytest.mark.parametrize("junk", [np.nan, np.inf, -np.inf, 1e38])
def test_weight_zero_has_no_influence(junk):
    rng = np.random.default_rng(2)
    clean = rng.normal(size=(4, 5)).astype(np.float32)
    labels = np.array([0, 1, -100, 5])
    weights = np.array([1.0, 0.0, 1.0, 0.0], np.float32)
    dirty = clean.copy()
    dirty[1:] = junk
    for value, wanted in zip(
        value_and_grad(dirty, labels, weights),
        value_and_grad(clean, labels, weights),
        strict=True,
    ):
        assert np.isfinite(value).all()
        np.testing.assert_array_equal(value, wanted)
    assert not value_and_grad(dirty, labels, weights)[2][1:].any()


def test_a_label_of_vocab_is_refused_where_it_counts():
    logits, labels = jnp.zeros((3, 5)), jnp.array([0, 5, 7])
    message = r"labels: got 2 labels of vocab or more, the largest 7; .* vocab = 5"
    with pytest.raises(ValueError, match=message):
        cross_entropy(logits, labels)
    total, count = cross_entropy(logits, labels, weights=jnp.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(total, np.log(5), rtol=1e-6)
    assert count == 1
    # Under jit the values are not known: the loss says that something is wrong.
    total, count = jax.jit(cross_entropy)(logits, labels)
    assert np.isnan(total)
    assert count == 3


def test_bytes_are_labels():
    labels = np.array([0, 255], np.uint8)
    total, count = cross_entropy(jnp.zeros((2, 256)), labels)
    np.testing.assert_allclose(total / count, np.log(256), rtol=1e-6)


def test_half_precision_is_computed_in_float32():
    rng = np.random.default_rng(3)
    logits = jnp.asarray(rng.normal(size=(64, 50)) * 4, jnp.bfloat16)
    labels = rng.integers(50, size=64)
    total, count = cross_entropy(logits, labels)
    wanted, _, _ = oracle(logits.astype(jnp.float32), labels, np.ones(64), 0.0)
    assert total.dtype == count.dtype == jnp.float32
    np.testing.assert_allclose(total, wanted, rtol=1e-6)


def test_a_class_that_is_ruled_out_costs_nothing():
    logits = jnp.array([[0.0, 0.0, -jnp.inf]])
    total, _ = cross_entropy(logits, jnp.array([1]))
    np.testing.assert_allclose(total, np.log(2), rtol=1e-6)


@pytest.mark.usefixtures("plain_errors")
@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.zeros((2, 3)), np.zeros(3, int)), {}, r"labels: got shape \(3,\)"),
        ((np.zeros((2, 0)), np.zeros(2, int)), {}, r"labels: got shape \(2,\)"),
        ((np.zeros((2, 3)), np.zeros(2)), {}, "labels: got float32"),
        ((np.zeros((2, 3), int), np.zeros(2, int)), {}, "logits: got int32"),
        (
            (np.zeros((2, 3)), np.zeros(2, int)),
            {"weights": np.ones(3)},
            r"weights: got shape \(3,\) beside labels of shape \(2,\)",
        ),
        (
            (np.zeros((2, 3)), np.zeros(2, int)),
            {"label_smoothing": 1.0},
            "label_smoothing: got 1.0",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cross_entropy(*arguments, **options)
