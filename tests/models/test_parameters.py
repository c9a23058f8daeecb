"""Counting parameters, and the named configs."""

import time

import jax
import pytest
from flax import nnx

from attn_jax import models, nn
from tests.models.cases import LONGEST, VOCAB, M, config, decoder
from tests.nn.cases import light_jit


def sizes(model):
    """Numbers in each part of a model."""
    state = nnx.to_pure_dict(nnx.state(model))
    return {
        part: sum(x.size for x in jax.tree.leaves(value))
        for part, value in state.items()
    }


def real(**options):
    """A model with its initial values, drawn in one compiled function."""
    made = config(**options)
    graph = nnx.graphdef(nnx.eval_shape(lambda: models.Decoder(made, rngs=nnx.Rngs(0))))
    state = light_jit(lambda: nnx.state(models.Decoder(made, rngs=nnx.Rngs(0))))()
    return nnx.merge(graph, state)


OPTIONS = {
    "untied, learned positions": {"tie_embeddings": False, "positions": "learned"},
    "unrolled, post-norm, biases": {
        "scan_layers": False,
        "norm_placement": "post",
        "use_bias": True,
    },
    "fixed parameters": {"mechanism": nn.RandomSynthesizer(trainable=False)},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_count_is_that_of_the_real_model(options):
    options = OPTIONS[options]
    parts = sizes(real(**options))
    made = config(**options)
    assert set(parts) == {"embedding", "stack"}
    assert models.count_parameters(made) == sum(parts.values())
    assert models.count_parameters(made, embeddings=False) == parts["stack"]
    embedding = VOCAB * M * (1 if made.tie_embeddings else 2)
    embedding += LONGEST * M if made.positions == "learned" else 0
    assert parts["embedding"] == embedding


@pytest.mark.parametrize("name", nn.MECHANISMS)
def test_count_of_every_mechanism(name):
    assert models.count_parameters(config(name)) == sum(sizes(decoder(name)).values())


def test_count_of_a_preset_in_closed_form():
    """GPT-2 small with a padded vocabulary, no biases."""
    start = time.process_time()
    made = models.presets["gpt2-small"]
    layer = 4 * 768**2 + 2 * 768 * 3072 + 2 * 768
    embedding = (50304 + 1024) * 768
    assert models.count_parameters(made, embeddings=False) == 12 * layer + 768
    assert models.count_parameters(made) == 12 * layer + 768 + embedding
    assert time.process_time() - start < 5


@pytest.mark.parametrize("scan_layers", [True, False])
def test_counting_allocates_nothing(scan_layers):
    """No machine has room for it: half a petabyte."""
    made = models.DecoderConfig(
        vocab_size=2**20,
        max_length=2**20,
        num_layers=100 if scan_layers else 2,
        d_model=2**19,
        num_heads=2**10,
        positions="learned",
        scan_layers=scan_layers,
    )
    layers = made.num_layers * (12 * 2**38 + 2 * 2**19) + 2**19
    assert models.count_parameters(made) == layers + 2 * 2**39


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(KeyError, match=r"preset: got 'gpt2-smal'; did you mean 'gpt2-"):
        models.presets["gpt2-smal"]
    with pytest.raises(ValueError, match="expected one of bytes-tiny, bytes-small"):
        models.presets["large"]


@pytest.mark.parametrize("name", models.presets)
def test_presets_are_configs_of_models(name):
    made = models.presets[name]
    assert isinstance(made, models.StackConfig)
    assert models.count_parameters(made) > 0
