"""Writing without a cache, claims and tables of images."""

import copy
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax.decoding import sample
from attn_jax.models import Decoder
from attn_jax.nn import LSH
from attn_jax.ops import masks
from experiments.common.bigrams import bits_of_pairs
from experiments.linear_images import table, writing
from experiments.linear_images.claims import claims
from experiments.linear_images.config import PRESETS
from experiments.linear_images.heads import make_head
from experiments.linear_images.rows import packed, unpacked
from experiments.linear_images.training import decoder_config
from experiments.linear_images.writing import (
    WithoutCache,
    cache_bytes,
    prefix_lengths,
    ways,
)

SMOKE = PRESETS["smoke"]


def decoder(mechanism="softmax"):
    return Decoder(decoder_config(mechanism, SMOKE), rngs=nnx.Rngs(0))


@pytest.fixture
def lengths(monkeypatch, request):
    """Each length of a prefix is compiled, so there are few."""
    monkeypatch.setattr(writing, "PREFIXES", request.param)


@pytest.mark.parametrize("lengths", [4], indirect=True)
def test_without_a_cache_the_same_is_decoded(lengths):
    """A prompt and then token by token, over the edges between lengths of prefixes."""
    model, tokens = decoder(), np.random.default_rng(0).integers(17, size=(2, 64))

    @jax.jit
    def step(tokens, cache):
        return WithoutCache(model).decode(tokens, cache)

    cache = WithoutCache(model).init_cache(2, 64)
    found, cache = step(tokens[:, :5], cache)
    pieces = [found]
    for i in range(5, 20):
        found, cache = step(tokens[:, i : i + 1], cache)
        pieces.append(found)
    want = jax.jit(model)(tokens)[:, :20]
    np.testing.assert_allclose(
        jnp.concatenate(pieces, axis=1), want, rtol=1e-4, atol=1e-4
    )
    taken = WithoutCache(model).take(cache, jnp.array([1, 1]))
    np.testing.assert_array_equal(taken.tokens[0], taken.tokens[1])
    np.testing.assert_array_equal(taken.tokens[0, :20], tokens[1, :20])


@pytest.mark.parametrize("mechanism", ["softmax", "linear"])
@pytest.mark.parametrize("lengths", [2], indirect=True)
def test_with_a_cache_or_without_the_same_is_written(mechanism, lengths):
    """The keys are the same; only rounding may tell the ways apart."""
    model, head = decoder(mechanism), make_head(SMOKE)
    given = np.full((3, 32), 9)
    options = {"rng": jax.random.key(0), "max_length": 32, "bos_id": 0}
    options["sampler"] = head.sampler
    one, other = (
        np.asarray(sample(each, given, **options))
        for each in (model, WithoutCache(model))
    )
    assert (one == other).mean() > 0.95
    assert len(np.unique(one)) > 3


def test_prefixes_are_padded_to_an_eighth():
    lengths = prefix_lengths(784)
    assert lengths == [98 * i for i in range(1, 9)]
    assert prefix_lengths(3) == [1, 2, 3]


def test_rows_of_different_lengths_are_refused_without_a_cache():
    model = WithoutCache(decoder())
    with pytest.raises(ValueError, match="valid: got one"):
        model.decode(
            jnp.zeros((1, 2), jnp.int32),
            model.init_cache(1, 4),
            valid=jnp.ones((1, 2), bool),
        )


def test_more_steps_go_on_where_the_rate_does_not_fall():
    assert "steps" in SMOKE.shared()
    assert "steps" in replace(SMOKE, final_fraction=1.0).shared(), "warm-up"
    assert "steps" in replace(SMOKE, warmup_fraction=0.0).shared()
    paper = PRESETS["mnist-paper"]
    assert "steps" not in paper.shared()
    assert "steps" in paper.may_differ


def test_lsh_hashes_into_buckets_of_the_size_that_is_asked_for():
    config = replace(SMOKE, bucket_size=4)
    for name, num_rounds in (("lsh", 4), ("lsh-2", 2)):
        found = decoder_config(name, config).mechanism
        assert found == LSH(num_rounds=num_rounds, bucket_size=4)


def test_a_state_is_what_does_not_grow():
    softmax, linear, dense = (
        decoder_config(name, SMOKE) for name in ("softmax", "linear", "dense")
    )
    assert ways(softmax, True) == ["recompute", "cache"]
    assert ways(softmax, False) == ["cache"]
    assert ways(linear, False) == ["state"]
    assert ways(dense, False) == ["cache"]
    # One layer: keys and values of 32 features of 64 pixels, and three counters.
    assert cache_bytes(softmax, 64) == 4 * (2 * 32 * 64) + 4 * 4
    # Two heads of 16: sums of 16 x 16 products and of 16 features.
    assert cache_bytes(linear, 64) == 4 * (2 * 16 * 17) + 4 * 4


@pytest.mark.parametrize("lengths", [1], indirect=True)
def test_what_cannot_decode_reads_all_again(lengths):
    """What stands behind a prefix has no part in how it is hashed."""
    config = decoder_config("lsh-2", replace(SMOKE, bucket_size=4))
    assert ways(config, False) == ["recompute"]
    model = Decoder(config, rngs=nnx.Rngs(0))
    tokens = np.random.default_rng(0).integers(17, size=(2, 11))
    cache = WithoutCache(model).init_cache(2, 16)
    found, _ = jax.jit(WithoutCache(model).decode)(tokens, cache)
    real = jnp.broadcast_to(jnp.arange(16) < 11, (2, 16))
    padded = np.pad(tokens, ((0, 0), (0, 5)), constant_values=16)
    want = jax.jit(model)(padded, mask=masks.padding(real, real))[:, :11]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_images_go_into_text_and_back():
    image = np.arange(12, dtype=np.uint8) * 21
    (text,) = packed(image[None])
    np.testing.assert_array_equal(unpacked(text, [2, 2, 3]).reshape(-1), image)
    (half,) = packed(image[None, :6])
    np.testing.assert_array_equal(unpacked(half, [2, 2, 3])[1], np.zeros((2, 3)))


def test_a_table_of_pairs_in_closed_form():
    """0 is followed by 0, 1, 1: p = [2, 3] / 5; by 1 nothing follows: p = 1 / 2."""
    before, after = np.array([0, 0, 0]), np.array([0, 1, 1])
    held_out = np.array([0, 0, 1], np.uint8), np.array([0, 1, 1], np.uint8)
    want = -(np.log2(2 / 5) + np.log2(3 / 5) + np.log2(1 / 2)) / 3
    assert bits_of_pairs((before, after), held_out, 2) == pytest.approx(want)


def timed(way, images, seconds):
    return {"way": way, "images": images, "median_seconds": seconds, "kept_bytes": 1}


RESULTS = {
    "config": {"generate": 16},
    "images": {"shape": [28, 28, 1]},
    "rows": [
        {
            "model": "softmax",
            "training": {"held_out_bits_per_dim": 3.0},
            "writing": [
                timed("recompute", 16, 320.0),
                timed("recompute", 1, 20.0),
                timed("cache", 16, 8.0),
                timed("cache", 1, 0.5),
            ],
        },
        {
            "model": "linear",
            "training": {"held_out_bits_per_dim": 3.09},
            "writing": [timed("state", 16, 4.0), timed("state", 1, 1.0)],
        },
    ],
}


def changed(**changes):
    results = copy.deepcopy(RESULTS)
    results["images"]["shape"] = changes.get("shape", [28, 28, 1])
    results["rows"][1]["training"]["held_out_bits_per_dim"] = changes.get("bits", 3.09)
    return results


def test_claims_hold_by_bits_and_by_time():
    found = claims(RESULTS)
    words = ["yes", "yes", "yes", "yes", "no"]
    assert [claim.held for claim in found] == [f"{word} (one seed)" for word in words]
    assert "4 images/s to 0.05 images/s (80.0x)" in found[1].ours
    assert "4 images/s to 2 images/s (2.0x)" in found[2].ours
    assert "1 images/s to 2 images/s (0.5x)" in found[4].ours
    assert claims(changed(bits=3.11))[0].held == "no (one seed)"


def test_short_sequences_tell_nothing_of_speed():
    found = claims(changed(shape=[8, 8, 1]))
    assert [claim.held for claim in found] == [
        "yes (one seed)",
        *["cannot be told at 64 pixels"] * 4,
    ]


def test_claims_need_both_models():
    assert claims({**RESULTS, "rows": RESULTS["rows"][:1]}) == []


def test_speeds_are_compared_with_the_first():
    rows = table.writing(RESULTS)
    assert rows[0][0] == "softmax, all pixels read again"
    assert [row[2] for row in rows] == ["1.0", "40.0", "80.0"]
    assert [row[4] for row in rows] == ["1.0", "40.0", "20.0"]
