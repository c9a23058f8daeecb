"""From a model's scores to a layer that computes few of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import nn, ops
from attn_jax.analysis import eigen, partial_flops
from attn_jax.ops import masks
from tests.models.cases import LAYERS, B, H, T, encoder, ids
from tests.nn.cases import F32, M, attention, normal
from tests.ops.oracles import assert_close

REAL = np.arange(T) < np.array([[T], [3], [5]])
SCORES = np.random.default_rng(0).normal(size=(LAYERS, B, H, T, T)) + 3


def kept(layer, head, valid):
    """Rows of one head, or of all, with the entries that a mask leaves."""
    heads = range(H) if head is None else [head]
    for b in range(B):
        for h in heads:
            for i in range(T):
                yield b, i, SCORES[layer, b, h, i], valid[b, i]


def batches(mask=None):
    """The sequences one by one, or in twos."""
    for part in (slice(0, 1), slice(1, 3)):
        rule = jax.tree.map(lambda x, part=part: x[part], mask)
        yield eigen.Batch(jnp.asarray(SCORES[:, part]), rule)


def covariance(rows):
    """By the definition, of rows with entries that may be missing."""
    rows = [(x, there) for x, there in rows if there.any()]
    x, there = (np.array(part) for part in zip(*rows, strict=True))
    mean = np.where(there, x, 0).sum(0) / np.maximum(there.sum(0), 1)
    centred = np.where(there, x - mean, 0)
    return mean, centred.T @ centred / len(x)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("heads", ["pooled", "apart"])
def test_statistics_of_rows(heads, padded):
    valid = np.ones((B, T, T), bool)
    mask = None
    if padded:
        valid = REAL[:, :, None] & REAL[:, None, :]
        mask = masks.padding(jnp.asarray(REAL), jnp.asarray(REAL))
    found = eigen.score_statistics(batches(mask), length=T, heads=heads)
    assert [len(layer) for layer in found] == [1 if heads == "pooled" else H] * LAYERS
    for layer, groups in enumerate(found):
        for head, statistics in enumerate(groups):
            rows = kept(layer, None if heads == "pooled" else head, valid)
            mean, matrix = covariance([(x, there) for _, _, x, there in rows])
            np.testing.assert_allclose(statistics.mean, mean, rtol=1e-5)
            np.testing.assert_allclose(statistics.matrix, matrix, atol=1e-5)


def test_statistics_go_on_from_what_was_found_so_far():
    first, second = batches()
    for collect, options in (
        (eigen.score_statistics, {"heads": "apart", "centred": True}),
        (eigen.score_sketches, {"rank": 3}),
    ):
        whole = collect([first, second], length=T, **options)
        half = collect([first], length=T, **options)
        rest = collect([second], length=T, start=half, **options)
        assert half[0][0].count < rest[0][0].count == whole[0][0].count
        for one, other in zip(rest[1], whole[1], strict=True):
            np.testing.assert_allclose(one.mean, other.mean)


def test_statistics_of_positions_are_those_of_their_rows():
    ((statistics,), _) = eigen.score_statistics(batches(), length=T, of="positions")
    assert statistics.count == B * H
    whole = np.ones((B, T, T), bool)
    for i in range(T):
        rows = [(x, there) for _, at, x, there in kept(0, None, whole) if at == i]
        mean, matrix = covariance(rows)
        np.testing.assert_allclose(statistics.mean[i], mean, rtol=1e-5)
        np.testing.assert_allclose(statistics.matrix[i], matrix, atol=1e-5)


def test_statistics_of_whole_matrices():
    ((statistics,), _) = eigen.score_statistics(batches(), length=T, of="matrices")
    flat = SCORES[0].reshape(-1, T * T)
    np.testing.assert_allclose(statistics.matrix, np.cov(flat.T, bias=True), atol=1e-5)
    values = np.linalg.eigvalsh(np.cov(flat.T, bias=True))[::-1]
    np.testing.assert_allclose(eigen.spectrum(statistics), values, atol=1e-5)
    ((sketch,), _) = eigen.score_sketches(batches(), length=T, rank=4)
    assert sketch.count == B * H
    overlap = eigen.subspace_overlap(sketch.components(), statistics, 4)
    assert overlap == pytest.approx(1.0, abs=1e-6)


def test_a_matrix_with_padding_enters_no_sketch():
    mask = masks.padding(jnp.asarray(REAL), jnp.asarray(REAL))
    ((sketch,), _) = eigen.score_sketches(batches(mask), length=T, rank=2)
    assert sketch.count == H
    np.testing.assert_allclose(sketch.mean, SCORES[0, 0].reshape(H, -1).mean(0))


@pytest.mark.parametrize("padded", [False, True])
def test_centred_rows_have_lost_what_the_softmax_does_not_see(padded):
    """Adding a number to a row changes nothing then."""
    mask = masks.padding(jnp.asarray(REAL), jnp.asarray(REAL)) if padded else None
    rng = np.random.default_rng(1)
    moved = SCORES + 5 * rng.normal(size=(LAYERS, B, H, T, 1))
    options = {"length": T, "of": "positions", "centred": True}
    one, other = (
        eigen.score_statistics([eigen.Batch(x, mask)], **options)[1][0]
        for x in (SCORES, moved)
    )
    np.testing.assert_allclose(other.matrix, one.matrix, atol=1e-12)
    ((raw,), _) = eigen.score_statistics([eigen.Batch(moved, mask)], length=T)
    assert np.trace(raw.matrix) > 20


def test_hidden_scores_may_hold_anything():
    mask = masks.padding(jnp.asarray(REAL), jnp.asarray(REAL))
    seen = REAL[:, None, :, None] & REAL[:, None, None, :]
    hidden = np.where(seen, SCORES, np.nan)
    for options in ({}, {"of": "positions", "centred": True}):
        one, other = (
            eigen.score_statistics([eigen.Batch(x, mask)], length=T, **options)
            for x in (SCORES, hidden)
        )
        np.testing.assert_array_equal(one[0][0].matrix, other[0][0].matrix)
    eigen.score_sketches([eigen.Batch(hidden, mask)], length=T, rank=2)


BAD = SCORES.copy()
BAD[1, 2, 3, 4, 5] = np.nan
ERRORS = {
    "sequences of another length": (
        lambda: eigen.score_statistics([eigen.Batch(SCORES)], length=T + 1),
        r"scores: got shape \(2, 3, 4, 7, 7\).*analysed length 8; cut longer ones",
    ),
    "scores that are not finite": (
        lambda: eigen.score_statistics([eigen.Batch(BAD)], length=T),
        r"scores: got nan in layer 1, head 3 \(example 2, query 4, key 5\)",
    ),
    "sketched scores that are not finite": (
        lambda: eigen.score_sketches([eigen.Batch(BAD)], length=T, rank=2),
        r"scores: got nan in layer 1, head 3",
    ),
    "no scores": (
        lambda: eigen.score_statistics(iter([]), length=T),
        "batches: got none; expected a batch of scores at least; an iterator that was",
    ),
    "no scores to sketch": (
        lambda: eigen.score_sketches([], length=T, rank=2),
        "batches: got none; expected a batch of scores at least",
    ),
    "an unknown kind of sample": (
        lambda: eigen.score_statistics([], length=T, of="columns"),
        r"of: got 'columns'; expected one of 'rows', 'positions', 'matrices'",
    ),
    "an unknown treatment of heads": (
        lambda: eigen.score_statistics([eigen.Batch(SCORES)], length=T, heads="all"),
        r"heads: got 'all'; expected one of 'pooled', 'apart'",
    ),
    "fewer matrices than a rank needs": (
        lambda: eigen.explained_variance(
            eigen.score_statistics(batches(), length=T, of="matrices")[0][0], 12
        ),
        r"samples: got 12 for rank 12; expected at least 13",
    ),
    "a mechanism without logits": (
        lambda: attention(mechanism=nn.Linear()).logits(jnp.zeros((T, M))),
        r"mechanism: got Linear, which makes no logits",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_does_not_fit_raises(case, plain_errors):
    call, message = ERRORS[case]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("placement", "scan_layers"), [("pre", True), ("post", False)])
def test_logits_of_every_layer_are_what_its_weights_are_the_softmax_of(
    placement, scan_layers
):
    model = encoder(norm_placement=placement, scan_layers=scan_layers, num_types=2)
    tokens, types = jnp.asarray(ids(0, B, T)), jnp.asarray(ids(1, B, T) % 2)
    real = jnp.asarray(REAL)

    def both(tokens, real):
        mask = masks.padding(real, real)
        x, around = model._read(tokens, mask, None, types)
        weights, _ = model.stack.weights(x, **around)
        return model.attention_logits(tokens, mask=mask, types=types), weights

    logits, weights = jax.jit(both)(tokens, real)
    assert logits.shape == (LAYERS, B, H, T, T)
    seen = REAL[:, None, :, None] & REAL[:, None, None, :]
    raised = np.where(seen, np.exp(np.asarray(logits, np.float64)), 0)
    total = raised.sum(-1, keepdims=True)
    assert_close(weights, raised / np.where(total > 0, total, 1), F32)


def test_all_keys_of_each_row_rebuild_softmax_attention():
    """Statistics, selection and maps of a layer's own scores, all keys selected."""
    q, k = (jnp.asarray(normal(s, 40, T, H, 5)) for s in (0, 1))
    v = jnp.asarray(normal(2, 40, T, H, 3))
    scores = ops.partial_logits(q, k, jnp.arange(T))
    ((statistics,),) = eigen.score_statistics(
        [eigen.Batch(scores[None])], length=T, of="positions"
    )
    chosen = eigen.row_selection(statistics.matrix, T)
    maps = eigen.fit_rows(statistics, chosen)
    assert maps.mean.shape == (T, T)
    got = ops.partial_attention(
        q,
        k,
        v,
        selected=jnp.asarray(chosen),
        reconstruction=jnp.asarray(maps.reconstruction, jnp.float32)[None],
        offset=jnp.asarray(maps.offset, jnp.float32)[None],
    )
    assert_close(got, ops.softmax_attention(q, k, v), 1e-5)


def test_one_map_may_serve_all_rows():
    ((statistics,), _) = eigen.score_statistics(batches(), length=T)
    maps = eigen.fit_rows(statistics, np.array([4, 1]), ridge=0.1)
    assert maps.reconstruction.shape == (T, T, 2)
    np.testing.assert_array_equal(maps.reconstruction[0], maps.reconstruction[3])
    scale = 0.1 * np.trace(statistics.matrix) / T
    want = eigen.fit_reconstruction(
        statistics.matrix, statistics.mean, np.array([4, 1]), scale
    )
    np.testing.assert_allclose(maps.reconstruction[0], want.reconstruction)
    np.testing.assert_allclose(maps.mean, np.tile(statistics.mean[[4, 1]], (T, 1)))


def test_causal_statistics_make_causal_maps():
    """What is selected, and what it says of later keys."""
    ((statistics,), _) = eigen.score_statistics(
        [eigen.Batch(SCORES, masks.causal())], length=T, of="positions"
    )
    chosen = eigen.row_selection(statistics.matrix, 3, causal=True)
    maps = eigen.fit_rows(statistics, chosen)
    later = np.triu(np.ones((T, T), bool), 1)
    assert not maps.reconstruction[later].any()
    assert not maps.offset[later].any()
    nn.Partial(selected=chosen, max_length=T).chosen()
    module = attention(mechanism=nn.Partial(selected=chosen, max_length=T))
    assert module.mechanism.reconstruction.shape == (1, T, T, 3)


# n, k -> shares saved, by convention: the table of the derivation.
SAVED = {
    (128, 16): (0.625, 0.65625, 0.4375, 0.3125),
    (128, 32): (0.25, 0.375, 0.375, 0.125),
    (128, 64): (-0.5, 0.0, 0.25, -0.25),
    (512, 32): (0.4375, 0.46875, 0.46875, 0.21875),
}


def test_savings_by_four_conventions():
    for (n, k), want in SAVED.items():
        assert partial_flops.savings(n, k, 64) == pytest.approx(want)
    even = partial_flops.break_even(128, 64)
    assert even == pytest.approx((128 * 64 / 192, 64, 128, 128 * 64 / 192))
    for n, d in ((128, 64), (512, 64), (16, 32)):
        even = partial_flops.break_even(n, d)
        k = even.scores
        assert 1 - k * (1 / n + 1 / d) == pytest.approx(0.0)
        if n >= d:
            found = partial_flops.savings(n, d, d)
            assert found.scores_of_others == pytest.approx(0.0)
    with pytest.raises(ValueError, match="k: got 129; expected at most n = 128"):
        partial_flops.savings(128, 129, 64)


def test_savings_are_those_of_the_layers_scores():
    """`flops` counts a reconstruction whole: the first convention."""
    from attn_jax.analysis import flops

    n, k, d, h = 24, 4, 16, 2
    counts = [
        flops.attention_flops(
            nn.AttentionConfig(d_model=h * d, num_heads=h, mechanism=row), n
        )
        for row in (nn.Softmax(), nn.Partial(rank=k, max_length=n))
    ]
    full, part = (count.scores.multiply_adds for count in counts)
    want = partial_flops.savings(n, k, d)
    assert 1 - part / full == pytest.approx(want.scores)
    full, part = (
        count.scores.multiply_adds + count.mixing.multiply_adds for count in counts
    )
    assert 1 - part / full == pytest.approx(want.with_reconstruction)
