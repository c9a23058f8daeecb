"""Models in training: 16 bits stay finite, and lengths in buckets compile once each."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from attn_jax import data, models, nn, train
from attn_jax.ops import masks

LENGTH = 16


def built(config):
    """A decoder's structure and its initial values, drawn in one compiled function."""

    def make():
        return models.Decoder(config, rngs=nnx.Rngs(0))

    return nnx.graphdef(nnx.eval_shape(make)), jax.jit(lambda: nnx.state(make()))()


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

    @jax.jit
    def evaluate(params, tokens, real):
        traced.append(tokens.shape)
        return nnx.merge(graph, params)(tokens, mask=masks.padding(real, real))

    for length in (3, 8, 5, 16, 9, 1, 12):
        bucket = 8 if length <= 8 else 16
        tokens = np.arange(bucket)[None] % 5
        evaluate(params, tokens, np.arange(bucket)[None] < length)
    assert sorted(traced) == [(1, 8), (1, 16)]


class Pairs(NamedTuple):
    """Sources and what is to be written after them: the source, backwards."""

    source: np.ndarray
    source_real: np.ndarray
    target_in: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


BOS, EOS = 1, 2


def reversals(step, rows=16, longest=4):
    """Rows of 1 to 4 symbols from 3 on; targets begin with bos and end with eos."""
    rng = np.random.default_rng((5, step))
    lengths = rng.integers(1, longest + 1, size=(rows, 1))
    real = np.arange(longest) < lengths
    source = np.where(real, rng.integers(3, 8, size=(rows, longest)), -1)
    labels = np.full((rows, longest + 1), -1)
    for row, n in enumerate(lengths[:, 0]):
        labels[row, : n + 1] = [*source[row, :n][::-1], EOS]
    target = np.concatenate([np.full((rows, 1), BOS), labels[:, :-1]], axis=1)
    return Pairs(source, real, target, labels, (labels >= 0).astype(np.float32))


def test_an_encoder_decoder_trains_as_in_the_paper():
    """Noam's schedule, Adam (0.9, 0.98, 1e-9), smoothing, the mean of the last sets."""
    config = models.EncoderDecoderConfig(
        vocab_size=8,
        max_length=8,
        num_layers=1,
        d_model=32,
        num_heads=2,
        d_ff=64,
        dropout_rate=0.1,
    )

    def make():
        return models.EncoderDecoder(config, rngs=nnx.Rngs(0))

    graph = nnx.graphdef(nnx.eval_shape(make))
    params = jax.jit(lambda: nnx.state(make()))()

    def loss_fn(params, batch, rng, smoothing=0.1):
        real, seen = batch.source_real, batch.weights > 0
        logits = nnx.merge(graph, params)(
            batch.source,
            batch.target_in,
            source_mask=masks.padding(real, real),
            target_mask=masks.padding(seen, seen),
            rng=rng,
        )
        return train.cross_entropy(
            logits, batch.labels, weights=batch.weights, label_smoothing=smoothing
        )

    schedule = train.noam_schedule(config.d_model, warmup_steps=60, scale=0.5)
    optimizer = train.adam(schedule)
    step = train.make_train_step(loss_fn, optimizer, schedule=schedule)
    state, last = train.init_train_state(params, optimizer, seed=0), []
    for i in range(300):
        state, metrics = step(state, reversals(i))
        if i >= 295:
            last.append(jax.tree.map(jnp.copy, state.params))
    assert int(state.skipped.total) == 0
    assert float(metrics.learning_rate) == float(schedule(299))
    evaluate = jax.jit(lambda p, batch: loss_fn(p, batch, None, smoothing=0.0))
    total, weight = evaluate(train.average_checkpoints(last), reversals(10**6, 64))
    assert total / weight < 0.5, "1.5 is the least without the source"
