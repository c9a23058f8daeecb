"""Models in training: 16 bits stay finite, and lengths in buckets compile once each."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

from attn_jax import data, models, nn, train
from attn_jax.ops import masks
from tests.nn.cases import light_jit

LENGTH = 16


def built(config):
    """A decoder's structure and its initial values, drawn in one compiled function."""

    def make():
        return models.Decoder(config, rngs=nnx.Rngs(0))

    return nnx.graphdef(nnx.eval_shape(make)), light_jit(lambda: nnx.state(make()))()


def copy_task(step):
    return data.copy_batch(
        seed=0, step=step, batch_size=4, length=LENGTH, num_symbols=4
    )


def test_200_steps_of_linear_attention_in_bfloat16_stay_finite_and_learn():
    config = models.DecoderConfig(
        vocab_size=5,
        max_length=LENGTH,
        num_layers=1,
        d_model=16,
        num_heads=2,
        mechanism=nn.Linear(),
        dtype=jnp.bfloat16,
        param_dtype=jnp.bfloat16,
    )
    graph, params = built(config)

    def loss_fn(params, batch, rng):
        logits = nnx.merge(graph, params)(batch.tokens)
        return train.cross_entropy(logits, batch.targets, weights=batch.weights)

    optimizer = train.adamw(3e-3)
    state = train.init_train_state(params, optimizer, seed=0)
    step, losses = train.make_train_step(loss_fn, optimizer), []
    for i in range(200):
        state, metrics = step(state, copy_task(i))
        losses.append(metrics.loss)
    assert np.isfinite(losses).all()
    assert int(state.skipped.total) == 0
    assert np.mean(losses[-20:]) < 0.8 * np.mean(losses[:20])


def test_lengths_in_buckets_compile_once_a_bucket():
    config = models.DecoderConfig(
        vocab_size=5, max_length=16, num_layers=1, d_model=8, num_heads=2
    )
    graph, params = built(config)
    traced = []

    @light_jit
    def evaluate(params, tokens, real):
        traced.append(tokens.shape)
        return nnx.merge(graph, params)(tokens, mask=masks.padding(real, real))

    for length in (3, 8, 5, 16, 9, 1, 12):
        bucket = 8 if length <= 8 else 16
        tokens = np.arange(bucket)[None] % 5
        evaluate(params, tokens, np.arange(bucket)[None] < length)
    assert sorted(traced) == [(1, 8), (1, 16)]
