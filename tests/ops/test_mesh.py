"""Attention over a mesh equals that of one device, and moves no more than it must."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from attn_jax.ops import linear_attention, masks, softmax_attention
from tests.ops.oracles import assert_close

B, T, H, G, D, E = 2, 24, 4, 2, 3, 5
LENGTHS = jnp.array([[19], [24]])
REAL = jnp.arange(T)[None, :] < LENGTHS
LEFT = REAL[:, ::-1]
IDS = jnp.arange(T)[None, :] // jnp.array([[7], [24]])
SOME = jax.random.bernoulli(jax.random.key(9), 0.3, (B, H, T, T))
CAUSAL = masks.causal()

PACKED = masks.segments(IDS) & masks.padding(LEFT, LEFT)
RULES = PACKED & masks.window(5, 5) & masks.prefix(jnp.array([3, 15]))

# name: op, mask, whether devices share tokens
CASES = {
    "softmax": (softmax_attention, CAUSAL & masks.padding(LEFT, LEFT), True),
    "softmax-rules": (softmax_attention, RULES & masks.dense(SOME), True),
    "linear-causal": (linear_attention, CAUSAL & masks.padding(LEFT, LEFT), True),
    "linear-full": (linear_attention, masks.padding(REAL, REAL), True),
    "linear-segments": (linear_attention, CAUSAL & PACKED, False),
}


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


def inputs():
    return normal(0, B, T, H, D), normal(1, B, T, G, D), normal(2, B, T, G, E)


def output_and_gradients(op, mask, options, *arrays):
    def output(*arrays):
        given = {} if len(arrays) == 3 else {"bias": arrays[3]}
        return op(*arrays[:3], mask=mask, **given, **options)

    out, pullback = jax.vjp(output, *arrays)
    return out, *pullback(jnp.sin(out))


def mesh_of(**axes):
    types = (AxisType.Auto,) * len(axes)
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=types)


@pytest.mark.parametrize("name", CASES)
def test_shared_tokens_and_heads_give_the_same(name):
    op, mask, shared_tokens = CASES[name]
    arrays, options = inputs(), {}
    if name == "softmax":
        arrays = (*arrays, normal(3, 1, H, T, T))
        options = {"implementation": "blockwise", "block_size": 4}
    run = jax.jit(
        lambda mask, *arrays: output_and_gradients(op, mask, options, *arrays)
    )
    want = run(mask, *arrays)
    mesh = mesh_of(data=1, sequence=2, tensor=2)
    place = NamedSharding(mesh, PartitionSpec("data", "sequence", "tensor"))
    shared = tuple(jax.device_put(x, place) for x in arrays[:3]) + arrays[3:]
    with jax.set_mesh(mesh):
        got = run(mask, *shared)
    for i, (left, right) in enumerate(zip(got, want, strict=True)):
        assert_close(np.asarray(left), np.asarray(right), 1e-5, f"{name} {i}")
    if shared_tokens:
        assert got[0].sharding.is_equivalent_to(place, 4), "tokens were gathered"


def test_linear_attention_exchanges_one_state_a_device():
    """Forward one all-gather of sums, backward one reduction of their gradients."""
    mesh = mesh_of(sequence=4)
    place = NamedSharding(mesh, PartitionSpec(None, "sequence"))
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place) for x in inputs()]

    def run(*arrays):
        return output_and_gradients(linear_attention, CAUSAL, {}, *arrays)

    with jax.set_mesh(mesh):
        text = jax.jit(run).lower(*shapes).compile().as_text()
    found = re.findall(r"= (.*?) (all-\w+|reduce-\w+|collective-\w+)\(", text)
    sizes = [
        np.prod([int(n) for n in shape.split(",") if n])
        for result, _ in found
        for shape in re.findall(r"f32\[([\d,]*)\]", result)
    ]
    assert sizes, "nothing was exchanged"
    assert max(sizes) <= 4 * B * G * D * E, "more than a state a device was exchanged"
