"""Weights of every layer of an encoder-decoder: the output follows from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.ops import masks
from tests.models.cases import F32, GARBAGE, LAYERS, B, H, T, encoder_decoder
from tests.models.test_encoder_decoder import PAPER, REAL, SOURCE, TARGET, S, roles
from tests.nn.test_weights import check_rows
from tests.ops.oracles import assert_close

SEEN = np.arange(T) != np.array([[0], [3], [6]])
MODELS = {
    "as in 2017": roles(PAPER),
    "linear, pre-norm, unrolled": {
        "norm_placement": "pre",
        "scan_layers": False,
        "num_encoder_layers": 3,
        **roles(("linear", "dense", "linear")),
    },
}


def mixed(layer, weights, x):
    v = layer.value(x)
    v = jnp.repeat(v, H // layer.config.kv_heads, axis=-2)
    return layer.output(jnp.einsum("bhts,bshe->bthe", weights, v))


def through(stack, x, own, memory=None, cross=None):
    """A stack whose layers attend as they are told."""
    for i, block in enumerate(stack.unstacked()):
        norms = iter((block.attention_norm, getattr(block, "cross_norm", None)))
        x = block._residual(
            x, next(norms), lambda y, i=i, b=block: mixed(b.attention, own[i], y)
        )
        if memory is not None:
            x = block._residual(
                x, next(norms), lambda _, i=i, b=block: mixed(b.cross, cross[i], memory)
            )
        x = block._feed_forward(x, None)
    return x if stack.norm is None else stack.norm(x)


@pytest.mark.parametrize("name", MODELS)
def test_weights_of_every_layer_give_the_logits(name):
    """Under padding of both sides, whose ids are garbage."""
    model = encoder_decoder(**MODELS[name])
    rules = (masks.padding(x, x) for x in map(jnp.asarray, (REAL, SEEN)))
    padding = dict(zip(("source_mask", "target_mask"), rules, strict=True))

    def both(source, target):
        weights = model.attention_weights(source, target, **padding)
        x, _ = model._read_source(source, padding["source_mask"])
        memory = through(model.encoder, x, weights.encoder)
        x, _ = model._read(source, target, *padding.values())
        x = through(model.decoder, x, weights.decoder, memory, weights.cross)
        want = model(source, target, **padding)
        return weights, model.embedding.logits(x), want

    source = np.where(REAL, SOURCE, np.resize(GARBAGE, SOURCE.shape))
    target = np.where(SEEN, TARGET, np.resize(GARBAGE, TARGET.shape))
    weights, got, want = jax.jit(both)(source, target)
    layers = model.config.num_encoder_layers or LAYERS
    assert weights.encoder.shape == (layers, B, H, S, S)
    assert weights.decoder.shape == (LAYERS, B, H, T, T)
    assert weights.cross.shape == (LAYERS, B, H, T, S)
    assert_close(np.asarray(got)[SEEN], np.asarray(want)[SEEN], F32, name)

    keys, queries = REAL[:, None, None, :], SEEN[:, None, :, None]
    within = keys & REAL[:, None, :, None]
    causal = np.tril(np.ones((T, T), bool)) & SEEN[:, None, None, :] & queries
    for part, allowed in zip(weights, (within, causal, keys & queries), strict=True):
        for layer in np.asarray(part):
            check_rows(layer, allowed)
