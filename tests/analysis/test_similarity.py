"""Similarity of values, outputs and own values against looking at every pair."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.analysis import similarity
from attn_jax.analysis.similarity import attention_similarity, layer_similarity
from attn_jax.ops import masks
from tests.models.cases import LAYERS, decoder, encoder, ids
from tests.nn.cases import small
from tests.ops.oracles import assert_close

B, T, H, G, D, E = 2, 7, 4, 2, 3, 5
# Two documents and a tail of padding; one document behind padding.
IDS = np.array([[0, 0, 0, 1, 1, 1, 9], [9, 2, 2, 2, 2, 2, 2]])
REAL = IDS != 9
MASK = masks.causal() & masks.padding(jnp.asarray(REAL), jnp.asarray(REAL))
MASK = MASK & masks.segments(jnp.asarray(IDS))


def arrays(dtype=np.float64):
    """Values with a common direction, as trained ones have."""
    rng = np.random.default_rng(0)
    shapes = (B, T, H, D), (B, T, G, D), (B, T, G, E)
    q, k, v = (rng.normal(size=shape) for shape in shapes)
    return tuple(x.astype(dtype) for x in (q, k, v + 1))


def cosine(a, b):
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    return a @ b / lengths if lengths else 0.0


def looked_at(weights, v, ids, real, center):
    """Means over heads and tokens; weights b h t t, values b t h e."""
    y = np.einsum("bhts,bshe->bthe", weights, v)
    pairs, diagonal, outputs = [], [], []
    for row, head in np.ndindex(len(v), v.shape[2]):
        for document in np.unique(ids[row][real[row]]):
            at = np.flatnonzero(real[row] & (ids[row] == document))
            values, results = v[row, at, head], y[row, at, head]
            diagonal += [weights[row, head, i, i] for i in at]
            if center:
                values = values - values.mean(axis=0)
                results = results - results.mean(axis=0)
            outputs += list(map(cosine, results, values))
            pairs += [
                cosine(values[i], values[j])
                for i, j in np.ndindex(len(at), len(at))
                if i != j
            ]
    return np.mean(pairs), np.mean(diagonal), np.mean(outputs)


def weights_of(q, k, allowed):
    """softmax(q k / sqrt(d)) of allowed pairs, 0 elsewhere: b h t t."""
    k = np.repeat(k, H // G, axis=2)
    logits = np.einsum("bthd,bshd->bhts", q, k) / np.sqrt(D)
    raised = np.where(allowed, np.exp(logits), 0.0)
    return raised / np.maximum(raised.sum(axis=-1, keepdims=True), 1e-300)


@pytest.mark.parametrize("center", [False, True], ids=["plain", "centred"])
def test_equals_looking_at_every_pair(center, x64, monkeypatch):
    """Packed and padded rows, grouped heads; three columns of the weights at a time."""
    q, k, v = arrays()
    monkeypatch.setattr(similarity, "COLUMNS", 3)
    similarity._of_softmax.clear_cache()
    hidden = np.where(REAL[..., None, None], v, np.nan)
    arrays_ = map(jnp.asarray, (q, k, hidden))
    got = attention_similarity(*arrays_, mask=MASK, center=center)
    similarity._of_softmax.clear_cache()
    weights = weights_of(q, k, np.asarray(MASK.allowed(T, T)))
    values = np.repeat(v, H // G, axis=2)
    want = looked_at(weights, values, IDS, REAL, center)
    np.testing.assert_allclose(got, want, rtol=1e-10)
    assert min(map(abs, want)) > 0.02


def test_what_has_no_direction_or_no_partner_counts_as_0():
    """A value of zeros; one token, which is no pair; none at all."""
    q, k, v = map(jnp.asarray, arrays(np.float32))
    one = attention_similarity(q[:, :1], k[:, :1], 0 * v[:, :1], mask=masks.causal())
    np.testing.assert_array_equal(one, [0, 1, 0])
    none = attention_similarity(q[:, :0], k[:, :0], v[:, :0])
    np.testing.assert_array_equal(none, [0, 0, 0])


def test_keys_of_another_sequence_are_refused(plain_errors):
    q, k, v = map(jnp.asarray, arrays(np.float32))
    with pytest.raises(ValueError, match=r"k: got 5 tokens for q's 7; .*same ones"):
        attention_similarity(q, k[:, :5], v[:, :5])


def test_of_a_decoder_reduces_to_that_of_each_layers_arrays():
    """Before exclusion; values mixed with the first layer's; layers scanned."""
    options = {"exclusive": True, "value_residual": True}
    model, tokens = decoder(**options), jnp.asarray(ids(0, B, T))
    mask = masks.padding(jnp.asarray(REAL), jnp.asarray(REAL))
    got = layer_similarity(model, tokens, mask=mask, center=True)

    def by_hand(tokens):
        found = []
        for block, x, around in model.layers(tokens, mask=mask):
            x, pair = block.attention_norm(x), block.attention.mechanism.query_key
            v = block.attention.values(x, around["first"])
            q, k = (f(x, around["positions"]) for f in (pair.queries, pair.keys))
            rules = masks.causal() & mask
            found.append(attention_similarity(q, k, v, mask=rules, center=True))
        return jax.tree.map(lambda *each: jnp.stack(each), *found)

    assert got.value_cosine.shape == (LAYERS,)
    for name, value in jax.jit(by_hand)(tokens)._asdict().items():
        assert_close(getattr(got, name), value, 1e-5, name)


def test_of_an_encoder_without_logits_goes_by_its_weights():
    """Linear attention both ways, from the weights that a layer gives for figures."""
    model = encoder(mechanism=small("linear"), pooling="mean")
    tokens = jnp.asarray(ids(0, B, T))
    mask = masks.padding(jnp.asarray(REAL), jnp.asarray(REAL))
    got = layer_similarity(model, tokens, mask=mask)

    def layers(tokens):
        found = []
        for block, x, _ in model.layers(tokens, mask=mask):
            x, attention = block.attention_input(x), block.attention
            found.append((attention.weights(x, mask=mask), attention.value(x)))
        return found

    one_document = np.zeros((B, T))
    for i, (weights, v) in enumerate(jax.jit(layers)(tokens)):
        weights, v = (np.asarray(x, np.float64) for x in (weights, v))
        v = np.repeat(v, weights.shape[1] // v.shape[2], axis=2)
        want = looked_at(weights, v, one_document, REAL, False)
        np.testing.assert_allclose([x[i] for x in got], want, rtol=1e-4, atol=1e-6)


def test_weights_are_never_there_at_once():
    """2,048 tokens of 8 heads, whose weights would take 134 MB."""
    t, h, d = 2048, 8, 8
    x = jax.ShapeDtypeStruct((1, t, h, d), jnp.float32)
    run = jax.jit(lambda q, k, v: attention_similarity(q, k, v, mask=masks.causal()))
    memory = run.lower(x, x, x).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 4 * h * t * t
