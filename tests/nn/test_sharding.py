"""What devices share equals what one computes: gradients, dropout, initial values."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from attn_jax import nn
from attn_jax.ops import masks
from tests.compiling import FAST
from tests.nn.cases import F32, M, T, attention, normal
from tests.ops.oracles import assert_close, assert_same_bits

ROWS, DEVICES = 4, (1, 2, 4)


def over(devices, *axes):
    """Axes laid over the first so many devices."""
    mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))
    return NamedSharding(mesh, PartitionSpec(*axes))


@pytest.mark.parametrize("name", nn.MECHANISMS)
def test_a_sharded_batch_has_the_gradients_of_one_device(name):
    module = attention(name, exclusive=True)
    graph, params = nnx.split(module)
    real = np.ones((ROWS, T), bool)
    real[1, 4:] = real[2, :3] = False

    def loss(params, x, real):
        layer = nnx.merge(graph, params)
        out = layer(x, mask=masks.causal() & masks.padding(real, real))
        return jnp.sum(jnp.sin(out)), out

    step = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
    x = normal(0, ROWS, T, M)
    gradients, out = step(params, x, real)
    place = over(4, "data")
    shared = jax.device_put((x, real), place)
    moved, shards = step(jax.device_put(params, over(4)), *shared)
    assert shards.sharding.is_equivalent_to(place, shards.ndim), "rows were gathered"
    assert_close(shards, out, F32, "output")
    for left, right in zip(
        jax.tree.leaves(moved), jax.tree.leaves(gradients), strict=True
    ):
        assert_close(left, right, F32, "gradient")


def test_dropout_does_not_depend_on_the_number_of_devices():
    module = attention(dropout_rate=0.4)
    run = jax.jit(lambda x, rng: module(x, rng=rng))
    x, rng = normal(0, ROWS, T, M), jax.random.key(3)
    kept = [
        np.asarray(run(jax.device_put(x, over(n, "data")), rng)) != 0 for n in DEVICES
    ]
    for each in kept[1:]:
        assert_same_bits(each, kept[0])
    assert 0.5 < kept[0].mean() < 0.7


def test_initial_values_do_not_depend_on_the_number_of_devices():
    """Each parameter is cut along its last axis where 4 divides it."""
    config = nn.AttentionConfig(d_model=8, num_heads=2)

    def initial():
        return nnx.to_pure_dict(nnx.state(nn.Attention(config, rngs=nnx.Rngs(5))))

    def place(devices, x):
        cut = x.shape[-1] % 4 == 0
        return over(devices, *[None] * (x.ndim - 1), *["data"] * cut)

    shapes, found = jax.eval_shape(initial), []
    for devices in DEVICES:
        shardings = jax.tree.map(functools.partial(place, devices), shapes)
        # To the bit where code is made fast as for users, and not as tests/conftest.py
        # asks: a number is rounded alike however many lie beside it.
        run = jax.jit(initial, out_shardings=shardings, compiler_options=FAST)
        found.append(jax.tree.leaves(run()))
    assert any(len(x.sharding.device_set) == 4 and x.any() for x in found[-1])
    for each in found[1:]:
        for got, want in zip(each, found[0], strict=True):
            assert_same_bits(got, want)
