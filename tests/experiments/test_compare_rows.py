"""The models of the comparison are alike in everything but their attention."""

import dataclasses

import jax
import numpy as np
import pytest
from flax import nnx

from attn_jax.models import Decoder, count_parameters
from attn_jax.train.names import leaf_names
from experiments.compare.config import PRESETS, ROWS, CompareConfig
from experiments.compare.cost import forward_flops_per_token
from experiments.compare.rows import make_rows


@pytest.fixture(scope="module")
def rows():
    return {row.name: row for row in make_rows(CompareConfig())}


@pytest.mark.parametrize("preset", PRESETS)
def test_parameters_agree_within_two_percent(preset):
    config = PRESETS[preset]
    counts = [row.parameters for row in make_rows(config)]
    assert len(counts) == len(config.mechanisms)
    assert max(counts) <= 1.02 * min(counts)


def test_parameters_are_those_of_the_models(rows):
    for row in rows.values():
        assert row.parameters == count_parameters(row.decoder)


def test_the_default_has_nine_rows_and_each_does_what_its_name_says(rows):
    assert tuple(rows) == ROWS
    for name, row in rows.items():
        assert row.decoder.exclusive == name.endswith("+exclusive")
        assert row.decoder.positions == "learned"


def test_shared_parts_begin_with_the_same_values(rows):
    def parameters(name):
        model = Decoder(rows[name].decoder, rngs=nnx.Rngs(3))
        state = nnx.state(model, nnx.Param)
        return dict(zip(leaf_names(state), jax.tree.leaves(state), strict=True))

    softmax = parameters("softmax")
    for name in ("softmax+exclusive", "linear", "random", "mixture"):
        other = parameters(name)
        alike = [
            path
            for path in softmax.keys() & other.keys()
            if softmax[path].shape == other[path].shape
        ]
        assert any("value" in path for path in alike)
        for path in alike:
            np.testing.assert_array_equal(softmax[path], other[path])


def test_flops_equal_a_count_by_hand_but_for_element_wise_work(rows):
    decoder = rows["softmax"].decoder
    m, f, t = decoder.d_model, decoder.d_ff, decoder.max_length
    a_layer = 2 * (4 * m * m + 2 * m * f) + 4 * t * m
    by_hand = decoder.num_layers * a_layer + 2 * m * decoder.vocab_size
    counted = forward_flops_per_token(decoder, batch_size=2)
    assert by_hand < counted < 1.2 * by_hand


def test_flops_count_every_layer_of_a_scanned_stack(rows):
    decoder = rows["softmax"].decoder
    scanned = dataclasses.replace(decoder, scan_layers=True)
    assert forward_flops_per_token(scanned, 1) == forward_flops_per_token(decoder, 1)


@pytest.mark.parametrize("length", [160, 512])
def test_flops_of_a_length_with_tiles_are_those_of_the_definition(rows, length):
    """By hand: dense softmax has t times 4 m of attention a token and layer."""
    decoder = rows["softmax"].decoder
    short = dataclasses.replace(decoder, max_length=128)
    long = dataclasses.replace(decoder, max_length=length)
    more = forward_flops_per_token(long, 1) - forward_flops_per_token(short, 1)
    by_hand = decoder.num_layers * 4 * (length - 128) * decoder.d_model
    assert by_hand < more < 1.2 * by_hand
