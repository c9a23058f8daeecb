"""Which layers are exclusive, and the sizes of the paper's models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from attn_jax import models
from attn_jax.analysis import flops
from attn_jax.ops._mesh import in_rows
from tests.models.cases import F32, SIZES, H, T, config, decoder, ids
from tests.nn.errors import assert_raises
from tests.ops.oracles import assert_close, assert_same_bits

GATED = {"exclusive": True, "exclusive_gate": "tanh", "num_layers": 5}


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        (None, [0, 1, 2, 3, 4]),
        (range(-3, 0), [2, 3, 4]),
        (range(2), [0, 1]),
        ([3, 0], [0, 3]),
        ((-1, 1), [1, 4]),
        ((), []),
    ],
    ids=str,
)
def test_layers_that_are_chosen_are_exclusive_and_no_others(given, chosen):
    """A gate a head in each of them, and nothing else that a plain model has not."""
    made = config(**GATED, exclusive_layers=given)
    assert hash(made) == hash(config(**GATED, exclusive_layers=given))
    layers = [made.at(i).attention() for i in range(5)]
    assert [i for i, layer in enumerate(layers) if layer.exclusive] == chosen
    assert [i for i, layer in enumerate(layers) if layer.exclusive_gate] == chosen
    found, plain = (
        flops.model_flops(each, T).total.parameters
        for each in (made, config(num_layers=5))
    )
    assert found - plain == H * len(chosen)


def test_a_model_has_exclusive_layers_where_its_config_says():
    made = config(exclusive=True, exclusive_gate="tanh", exclusive_layers=[-1])
    model = nnx.eval_shape(lambda: models.Decoder(made, rngs=nnx.Rngs(0)))
    first, last = (block.attention for block in model.stack.unstacked())
    assert (first.config.exclusive, last.config.exclusive) == (False, True)
    assert first.exclusive_strength() is None
    assert last.exclusive_gate.shape == (H,)
    assert flops.model_flops(made, T).total.parameters == models.count_parameters(made)


def test_layers_are_counted_from_the_end_of_either_stack():
    options = {"exclusive": True, "exclusive_layers": range(-1, 0)}
    made = models.EncoderDecoderConfig(**SIZES, **options, num_encoder_layers=3)
    stacks = made.encoder(), made
    found = [[s.at(i).exclusive for i in range(s.num_layers)] for s in stacks]
    assert found == [[False, False, True], [False, True]]
    assert not made.at(1).cross_attention().exclusive


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"exclusive_layers": [2]}, ("got (2,) for num_layers = 2", "0 to 1", "-2 to")),
        ({"exclusive_layers": range(-3, 0)}, ("got (-3, -2, -1) for num_layers = 2",)),
        ({"exclusive_layers": [0.5]}, ("got (0.5,)", "whole numbers")),
        ({"exclusive_layers": [1, -1]}, ("got (1, -1)", "expected each once")),
        ({"exclusive_layers": [True, False]}, ("got (True, False)", "whole numbers")),
        ({"exclusive_layers": 2}, ("got 2, one number", "range(-2, 0)")),
        (
            {"exclusive_layers": [0], "exclusive": False},
            ("got (0,) with exclusive = False", "set exclusive=True"),
        ),
    ],
    ids=["above", "below", "half", "twice", "switches", "count", "not exclusive"],
)
def test_layers_that_are_not_there_raise(options, parts, plain_errors):
    options = {"exclusive": True, **options}
    assert_raises(ValueError, lambda: config(**options), "exclusive_layers: ", *parts)


def test_the_switch_off_is_the_baseline_to_the_bit():
    """No layer chosen, or a gate that is 0: the same numbers in every operation."""
    plain = decoder(scan_layers=False)
    none = decoder(exclusive=True, exclusive_layers=())
    shut = decoder(exclusive=True, exclusive_gate="tanh", scan_layers=False)
    last = decoder(exclusive=True, exclusive_layers=[-1])
    for model in (none, shut, last):
        nnx.update(model, nnx.state(plain))
    for block in shut.stack.blocks:
        block.attention.exclusive_gate[...] = np.zeros(H, np.float32)
    tokens = jnp.asarray(ids(0, 1, T))
    want = plain(tokens)
    assert_same_bits(none(tokens), want)
    assert_same_bits(shut(tokens), want)
    assert np.linalg.norm(last(tokens) - want) > 1e-2


# Table 1 of the paper, and the sizes of its shape that are ours.
MATRICES = {
    "0.7b": 679_477_248,
    "1.4b": 1_409_286_144,
    "2.7b": 2_684_354_560,
    "1m": 4 * (4 * 128 * 192 + 8 * 128**2),
    "10m": 7 * (4 * 320 * 480 + 8 * 320**2),
    "30m": 8 * (4 * 512 * 768 + 8 * 512**2),
}


@pytest.mark.parametrize("size", MATRICES)
def test_matrices_of_the_presets_are_those_of_the_paper(size):
    """Norms have scales alone, one more than two a layer; exclusion has no numbers."""
    names = f"xsa-{size}", f"xsa-{size}-baseline"
    for name, exclusive in zip(names, (True, False), strict=True):
        made = models.presets[name]
        norms = (2 * made.num_layers + 1) * made.d_model
        behind_embeddings = made.d_model
        counted = models.count_parameters(made, embeddings=False)
        assert counted - norms - behind_embeddings == MATRICES[size]
        everything = models.count_parameters(made)
        assert everything - counted == 50304 * made.d_model
        assert made.exclusive == exclusive
        assert (made.max_length, made.embedding_norm) == (2048, True)


def test_rows_stay_on_their_devices_under_a_mesh():
    """Parameters are cut over the devices that share the rows; nobody gathers those."""
    model = decoder(d_ff=16)
    graph, params = nnx.split(model)
    axes = "data", "fsdp"
    mesh = jax.make_mesh((2, 2), axes, axis_types=(AxisType.Auto,) * 2)
    rows = NamedSharding(mesh, PartitionSpec(axes))

    def place(x):
        even = [axis for axis, n in enumerate(x.shape) if n % 4 == 0]
        cut = [axes if axis in even[-1:] else None for axis in range(x.ndim)]
        return jax.device_put(x, NamedSharding(mesh, PartitionSpec(*cut)))

    run = jax.jit(lambda params, tokens: nnx.merge(graph, params)(tokens))
    tokens = ids(0, 8, T)
    pieces, batch = jax.tree.map(place, params), jax.device_put(tokens, rows)
    with jax.set_mesh(mesh):
        compiled = run.lower(pieces, batch).compile()
    got = compiled(pieces, batch)
    assert got.sharding.is_equivalent_to(rows, 3)
    assert_close(got, run(params, tokens), F32)
    assert f"[8,{T}," not in compiled.as_text(), "rows were gathered"


def test_rows_that_do_not_divide_are_left_where_they_are():
    """Three on four devices, and none at all, as without a mesh."""
    x = jnp.ones((3, T, 2))
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
    with jax.set_mesh(mesh):
        assert in_rows(x) is x
        assert len(in_rows(jnp.ones((4, T, 2))).sharding.device_set) == 4
    assert in_rows(x) is x
