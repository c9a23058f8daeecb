"""A network small enough for every test of training, with dropout, in plain JAX."""

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.train import (
    adamw,
    cosine_schedule,
    cross_entropy,
    init_train_state,
    make_train_step,
)

FEATURES, HIDDEN, CLASSES, ROWS = 3, 5, 7, 8
SCHEDULE = cosine_schedule(3e-2, num_steps=12, warmup_steps=3)


def make_params(seed=0, hidden=HIDDEN):
    rng = np.random.default_rng(seed)
    shapes = {
        "first": {"kernel": (FEATURES, hidden), "bias": (hidden,)},
        "second": {"kernel": (hidden, CLASSES), "bias": (CLASSES,)},
    }
    return jax.tree.map(
        lambda shape: jnp.asarray(rng.normal(size=shape), jnp.float32),
        shapes,
        is_leaf=lambda x: isinstance(x, tuple),
    )


def logits_of(params, inputs, rng=None):
    hidden = jnp.dot(inputs, params["first"]["kernel"])
    hidden = jnp.tanh(hidden + jnp.broadcast_to(params["first"]["bias"], hidden.shape))
    if rng is not None:
        hidden *= jax.random.bernoulli(rng, 0.8, hidden.shape)
    logits = jnp.dot(hidden, params["second"]["kernel"])
    return logits + jnp.broadcast_to(params["second"]["bias"], logits.shape)


def loss_fn(params, batch, rng):
    inputs, labels, weights = batch
    return cross_entropy(logits_of(params, inputs, rng), labels, weights=weights)


def loss_without_dropout(params, batch, rng):
    del rng
    return loss_fn(params, batch, None)


def batch_at(step):
    """Inputs, labels and weights, the latter uneven over the rows."""
    rng = np.random.default_rng((17, step))
    inputs = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    labels = rng.integers(CLASSES, size=ROWS)
    weights = rng.integers(0, 3, size=ROWS).astype(np.float32)
    weights[0] = 1.0
    return inputs, labels, weights


def make_run(loss=loss_fn, **options):
    """A new state and the step that goes with it."""
    optimizer = adamw(SCHEDULE)
    state = init_train_state(make_params(), optimizer, seed=5)
    return state, make_train_step(loss, optimizer, schedule=SCHEDULE, **options)


def assert_same_bits(left, right):
    """Equal pytrees: structure, dtype and every bit."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for x, y in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            assert x.dtype == y.dtype
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        assert x.tobytes() == y.tobytes()
