"""What a model keeps as it is: saved with the rest, seen by no gradient or decay."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import data, models, nn, train
from attn_jax.train.trained import join, split
from tests.train.toy import assert_same_bits, make_params

LENGTH, LAYERS, HEADS = 8, 2, 2
CONFIG = models.DecoderConfig(
    vocab_size=5,
    max_length=LENGTH,
    num_layers=LAYERS,
    d_model=8,
    num_heads=HEADS,
    mechanism=nn.MixtureSynthesizer(
        members=(nn.RandomSynthesizer(trainable=False, init_std=0.5), nn.Softmax())
    ),
)
OPTIMIZER = train.adamw(1e-2, weight_decay=0.5, decay_synthesizers=True)


@functools.cache
def initial(seed):
    return jax.jit(lambda: nnx.state(models.Decoder(CONFIG, rngs=nnx.Rngs(seed))))()


def loss_fn(params, batch, rng):
    graph = nnx.graphdef(
        nnx.eval_shape(lambda: models.Decoder(CONFIG, rngs=nnx.Rngs(0)))
    )
    logits = nnx.merge(graph, params)(batch.tokens)
    return train.cross_entropy(logits, batch.targets, weights=batch.weights)


def batch_at(step):
    return data.copy_batch(
        seed=0, step=step, batch_size=3, length=LENGTH, num_symbols=4
    )


@pytest.fixture(scope="module")
def step():
    return train.make_train_step(loss_fn, OPTIMIZER, accumulation=3)


def begin(seed=0):
    return train.init_train_state(initial(seed), OPTIMIZER, seed=seed)


def fixed(params):
    """The matrices of the fixed Synthesizers, layer h n n."""
    core = params["stack"]["blocks"]["attention"]["mechanism"]
    return np.asarray(core["members"][0]["random"][...])


def norm(tree):
    return np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(tree)))


def test_a_fixed_matrix_has_no_gradient_no_decay_and_no_optimizer_state(step):
    state, shape = begin(), (LAYERS, HEADS, LENGTH, LENGTH)
    before = jax.tree.map(np.asarray, state.params)
    assert fixed(before).shape == shape
    assert shape in {x.shape for x in jax.tree.leaves(state.params)}
    assert shape not in {x.shape for x in jax.tree.leaves(state.opt_state)}
    trained, _ = split(before)
    assert norm(trained) < 0.99 * norm(before)
    for i in range(3):
        state, metrics = step(state, batch_at(i))
        if i == 0:
            np.testing.assert_allclose(metrics.parameter_norm, norm(trained), rtol=1e-5)
    assert int(metrics.total_skips) == 0
    assert_same_bits(fixed(state.params), fixed(before))
    moved, _ = split(state.params)
    for new, old in zip(jax.tree.leaves(moved), jax.tree.leaves(trained), strict=True):
        assert np.any(new != old)


def test_a_fixed_matrix_is_saved_and_restored(step, tmp_path):
    """Into a state that began with another one."""
    state = begin()
    for i in range(2):
        state, _ = step(state, batch_at(i))
    with train.Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(2, state)
        found = checkpointer.restore(begin(seed=1))
    assert np.any(fixed(begin(seed=1).params) != fixed(state.params))
    assert_same_bits(found, state)
    (on, _), (again, _) = (step(each, batch_at(2)) for each in (state, found))
    assert_same_bits(on, again)


def test_an_average_keeps_a_fixed_matrix_to_the_bit():
    """The sum of three equal numbers, divided by three, need not be one of them."""
    params = initial(0)
    mean = train.average_checkpoints([params] * 3)
    assert jax.tree.structure(mean) == jax.tree.structure(params)
    assert_same_bits(fixed(mean), fixed(params))


def test_parts_make_the_whole_again():
    for whole in (initial(0), make_params(), {"b": None, "a": [jnp.ones(2)]}):
        trained, kept = split(whole)
        assert_same_bits(join(trained, kept), whole)
        assert jax.tree.structure(join(trained, kept)) == jax.tree.structure(whole)
    assert len(jax.tree.leaves(split(initial(0))[1])) == 1
    assert jax.tree.leaves(split(make_params())[1]) == []
