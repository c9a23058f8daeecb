"""Alphas of real models: by stack, layer, head and member."""

import numpy as np
import pytest

from attn_jax import nn
from attn_jax.analysis import mixtures
from tests.models.cases import LAYERS, H, decoder, encoder_decoder
from tests.nn.cases import attention

MEMBERS = (nn.Softmax(), nn.DenseSynthesizer(), nn.Softmax(logit_cap=0.5))
THREE = nn.MixtureSynthesizer(members=MEMBERS)
PAIR = nn.MixtureSynthesizer(members=MEMBERS[:2], normalize="sigmoid")
SUM = nn.MixtureSynthesizer(members=MEMBERS[:2], normalize="sum")


def softmax(x):
    raised = np.exp(np.asarray(x, np.float64))
    return raised / raised.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(("scan", "layers"), [(True, LAYERS), (False, 11)], ids=str)
def test_weights_of_every_layer(scan, layers):
    """Stacked, or one after the other: eleven, which are not in order as words."""
    model = decoder(mechanism=THREE, num_layers=layers, scan_layers=scan)
    if scan:
        alpha = model.stack.blocks.attention.mechanism.alpha[...]
    else:
        cores = [block.attention.mechanism for block in model.stack.blocks]
        alpha = np.stack([core.alpha[...] for core in cores])
    found = mixtures.mixture_weights(model)
    assert list(found) == ["stack"]
    members, alphas = found["stack"]
    assert members == ("softmax", "dense", "softmax_2")
    assert alphas.shape == (layers, H, 3)
    np.testing.assert_allclose(alphas, softmax(alpha), rtol=1e-5)
    means = np.mean(np.asarray(alphas), axis=(0, 1)).tolist()
    names = [f"alpha/stack/{member}" for member in members]
    metrics = mixtures.mixture_metrics(model)
    assert metrics == pytest.approx(dict(zip(names, means, strict=True)))
    assert sum(metrics.values()) == pytest.approx(1)


def test_weights_of_two_stacks():
    model = encoder_decoder(encoder_mechanism=THREE, mechanism=PAIR)
    found = mixtures.mixture_weights(model)
    assert {name: each.alphas.shape for name, each in found.items()} == {
        "encoder": (LAYERS, H, 3),
        "decoder": (LAYERS, H, 2),
    }
    np.testing.assert_allclose(found["decoder"].alphas.sum(-1), 1, rtol=1e-6)
    assert set(mixtures.mixture_metrics(model)) == {
        *("alpha/encoder/softmax", "alpha/encoder/dense", "alpha/encoder/softmax_2"),
        *("alpha/decoder/softmax", "alpha/decoder/dense"),
    }


def test_a_layer_and_a_mixture_inside_one():
    inside = nn.MixtureSynthesizer(members=(PAIR, nn.RandomSynthesizer()))
    found = mixtures.mixture_weights(attention(mechanism=inside.for_length(11)))
    assert {name: each.members for name, each in found.items()} == {
        "": ("mixture", "random"),
        "members/0": ("softmax", "dense"),
    }


def test_nothing_is_said_where_nothing_is_learnt():
    for model in (decoder(), decoder(mechanism=SUM)):
        assert mixtures.mixture_weights(model) == {}
        assert mixtures.mixture_metrics(model) == {}
