"""How what a decoder gives for a pixel stands for a distribution over its levels."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp

from attn_jax.data import Batch
from attn_jax.train import (
    cross_entropy,
    mixture_of_logistics_log_likelihood,
    sample_mixture_of_logistics,
)
from experiments.linear_images.config import ImagesConfig


class Head(NamedTuple):
    """A distribution over the levels of a pixel.

    outputs: numbers that the decoder gives for a pixel.
    losses: (outputs, batch) -> (sum of -log p in nats, sum of weights).
    sampler: as `attn_jax.decoding.sample` takes it; None where outputs are logits.
    """

    outputs: int
    losses: Callable[[Any, Batch], tuple[Any, Any]]
    sampler: Callable[..., Any] | None


def make_head(config: ImagesConfig) -> Head:
    """The head that a config names."""
    return HEADS[config.head](config)


def _categorical(config: ImagesConfig) -> Head:
    """A logit for each level."""

    def losses(outputs: Any, batch: Batch) -> tuple[Any, Any]:
        return cross_entropy(outputs, batch.targets, weights=batch.weights)

    return Head(config.levels, losses, None)


def _logistics(config: ImagesConfig) -> Head:
    """Weights, means and scales of a mixture of logistics."""
    levels = config.levels

    def losses(outputs: Any, batch: Batch) -> tuple[Any, Any]:
        log_p = mixture_of_logistics_log_likelihood(
            outputs, batch.targets, levels=levels
        )
        return -jnp.sum(batch.weights * log_p), jnp.sum(batch.weights)

    sampler = partial(sample_mixture_of_logistics, levels=levels)
    return Head(3 * config.mixtures, losses, sampler)


HEADS = {"logistics": _logistics, "categorical": _categorical}
