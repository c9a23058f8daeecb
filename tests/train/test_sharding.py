"""Where parameters, optimizer state and batches lie; what doesn't fit is refused."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec

from attn_jax.data import Batch
from attn_jax.models import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
)
from attn_jax.nn import MECHANISMS
from attn_jax.train import (
    adamw,
    init_on,
    init_train_state,
    layout,
    layout_table,
    make_mesh,
    make_train_step,
    parse_mesh,
    shard_batch,
    shardings,
)
from attn_jax.train.names import leaf_names

SIZES = {
    "vocab_size": 12,
    "max_length": 6,
    "num_layers": 2,
    "d_model": 8,
    "num_heads": 4,
    "use_bias": True,
}


def shapes_of(build, config):
    return nnx.state(nnx.eval_shape(lambda: build(config, rngs=nnx.Rngs(0))))


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_parameter_of_every_mechanism_has_logical_axes(name):
    config = DecoderConfig(
        mechanism=MECHANISMS[name](), qk_norm=True, positions="learned", **SIZES
    )
    for each in layout(shapes_of(Decoder, config), parse_mesh("tensor=2,fsdp=2")):
        assert each.axes is not None, each.name
        places = [axis for axis in each.spec if axis]
        assert len(set(places)) == len(places), each
        if "heads" in each.axes:
            heads = each.axes.index("heads")
            assert each.spec[heads] == ("tensor" if each.shape[heads] > 1 else None)


def test_the_parameters_of_other_models_have_logical_axes():
    heads = {"pooling": "first", "num_classes": 3, "masked_lm": True, "num_types": 2}
    gates = {"exclusive": True, "exclusive_gate": "tanh"}
    gates |= {"output_gate": True, "value_residual": True, "embedding_norm": True}
    models = (
        (Encoder, EncoderConfig(**SIZES, **heads)),
        (EncoderDecoder, EncoderDecoderConfig(**SIZES)),
        (Decoder, DecoderConfig(tie_embeddings=False, scan_layers=False, **SIZES)),
        (Decoder, DecoderConfig(**SIZES, **gates)),
    )
    for build, config in models:
        placed = layout(shapes_of(build, config), parse_mesh("data=2"))
        assert not [each.name for each in placed if each.axes is None]


def state_of(config):
    """A state of zeros, which compile quickly."""
    shapes = shapes_of(Decoder, config)

    def init():
        params = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return init_train_state(params, adamw(1e-3), seed=0)

    return init


def test_a_device_holds_the_bytes_that_the_table_says():
    """Optimizer state lies where its parameter does, after a step too."""
    mechanism = MECHANISMS["mixture"]()
    init = state_of(DecoderConfig(mechanism=mechanism, num_kv_heads=2, **SIZES))
    mesh = make_mesh("fsdp=2,tensor=2")
    expected = layout(jax.eval_shape(init), mesh.shape)
    state = init_on(mesh, init)

    def loss(params, batch, rng):
        squares = [jnp.sum((x - 1) ** 2) for x in jax.tree.leaves(params)]
        return jnp.sum(jnp.stack(squares)), jnp.sum(batch.weights)

    with jax.set_mesh(mesh):
        train_step = make_train_step(loss, adamw(1e-3))
        after, _ = train_step(jax.tree.map(jnp.copy, state), shard_batch(ones(4), mesh))
    for arrays in (state, after):
        for each, x in zip(expected, jax.tree.leaves(arrays), strict=True):
            assert x.addressable_shards[0].data.nbytes == each.device_bytes, each
    specs = {each.name: each.spec for each in expected}
    kernels = [name for name in specs if name[-2:] == ("up", "kernel")]
    assert len(kernels) == 3, "of params, mu and nu"
    assert {specs[name] for name in kernels} == {PartitionSpec(None, "fsdp", "tensor")}
    table = layout_table(jax.eval_shape(init), mesh.shape)
    total = sum(each.device_bytes for each in expected)
    assert f"in all: {total:,} bytes on each of the devices of data=1, fsdp=2" in table
    row = next(line for line in table.splitlines() if "up/kernel" in line)
    shape, place, number = re.split(r"\s{2,}", row)[1:]
    assert (shape, place) == ("2 layers x 8 embed x 32 mlp", "fsdp, tensor")
    assert number == f"{2 * 8 * 32 * 4 // 4:,}"


def ones(rows, length=6):
    tokens = np.ones((rows, length), np.int32)
    return Batch(tokens, tokens, np.ones((rows, length), np.float32))


def test_the_last_batch_of_an_evaluation_is_filled_at_weight_0():
    mesh = make_mesh("data=2,fsdp=2")
    batch = shard_batch(ones(5), mesh, fill=True)
    assert leaf_names(batch) == leaf_names(ones(5))
    np.testing.assert_array_equal(batch.weights.sum(axis=1), [6] * 5 + [0] * 3)
    assert batch.tokens.sharding.spec == PartitionSpec(("data", "fsdp"))
    with pytest.raises(ValueError, match=r"batch: got 5 rows.*weights"):
        shard_batch({"tokens": ones(5).tokens}, mesh, fill=True)
    whole = shard_batch(ones(4, 5), make_mesh("sequence=2"), fill=True)
    assert whole.tokens.sharding.is_fully_replicated


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("data", r"mesh: got 'data' in 'data'; expected axes and numbers"),
        ("rows=2", r"'rows=2'.*of data, fsdp, tensor, sequence"),
        ("data=0", r"'data=0'"),
        ("data=2,data=2", r"data twice"),
        ("data=2,fsdp=4", r"8 devices; expected at most the 4 that are here"),
    ],
)
def test_a_line_that_is_no_mesh_is_refused(line, message):
    with pytest.raises(ValueError, match=message):
        make_mesh(line)


NO_MESH = {
    "a line": (
        lambda: shard_batch(ones(4), "data=2"),
        r"mesh: got 'data=2'; expected a Mesh; pass make_mesh\('data=2'\)",
    ),
    "a line for a state": (
        lambda: init_on("data=2", dict),
        r"mesh: got 'data=2'; expected a Mesh; pass make_mesh\('data=2'\)",
    ),
    "sizes": (
        lambda: shardings({}, {"data": 2}),
        r"mesh: got {'data': 2}; expected a Mesh; pass make_mesh\(\"data=2\"\)",
    ),
    "a line for a table": (
        lambda: layout({}, "data=2"),
        "mesh: got 'data=2'; expected devices along each axis; pass mesh.shape",
    ),
    "no line": (lambda: make_mesh({"data": 2}), "mesh: got {'data': 2}; expected axes"),
    "other axes": (
        lambda: shard_batch(ones(4), jax.make_mesh((2,), ("rows",))),
        "mesh: got axes rows; expected those of make_mesh, data, fsdp, tensor, seq",
    ),
}


@pytest.mark.parametrize("case", NO_MESH)
def test_what_is_no_mesh_is_named(case, plain_errors):
    call, message = NO_MESH[case]
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_what_a_mesh_does_not_divide_names_axis_and_numbers():
    plain, config = (DecoderConfig(num_kv_heads=n, **SIZES) for n in (None, 1))
    for each, line, field in (
        (config, "tensor=3", "num_heads = 4"),
        # Nobody has set the number of key/value heads.
        (plain, "tensor=3", "num_heads = 4"),
        (DecoderConfig(num_kv_heads=2, **SIZES), "tensor=4", "num_kv_heads = 2"),
    ):
        message = rf"mesh: got {line} for {field} \(.*\)"
        with pytest.raises(ValueError, match=message):
            layout(shapes_of(Decoder, each), parse_mesh(line))
    message = r"batch/tokens: got shape \(6, 6\) .*data=2, fsdp=2; .* data x fsdp = 4"
    with pytest.raises(ValueError, match=message):
        shard_batch(ones(6), make_mesh("data=2,fsdp=2"))
    mesh = make_mesh("data=4")
    step = make_train_step(lambda *_: (1.0, 1.0), adamw(1e-3), accumulation=2)
    message = r"micro-batches of 2 rows; expected rows that data x fsdp = 4 devices"
    with jax.set_mesh(mesh), pytest.raises(ValueError, match=message):
        jax.eval_shape(step, jax.eval_shape(state_of(config)), ones(4))
    with pytest.raises(ValueError, match=r"batch/tokens: got 5 tokens .*sequence=2"):
        shard_batch(ones(4, 5), make_mesh("sequence=2"))
