"""Configs and calls of a decoder that do not fit raise, and say what to do."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import UnsupportedMaskError, models, nn
from attn_jax.ops import masks
from tests.models.cases import LONGEST, VOCAB, B, T, config, decoder, ids
from tests.nn.errors import assert_raises

pytestmark = pytest.mark.usefixtures("plain_errors")


def test_configs_are_frozen_keyword_only_values():
    made = config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.d_model = 3
    with pytest.raises(TypeError, match="positional"):
        models.DecoderConfig(13, 11, 2, 10, 4)
    assert made == config()
    assert hash(made) == hash(config())
    assert made != config("linear")
    assert dataclasses.replace(made, d_ff=3).feed_forward_width == 3
    assert dataclasses.replace(made, d_ff=None).feed_forward_width == 40


def test_a_synthesizer_takes_the_models_length():
    for name in nn.MECHANISMS:
        limit = config(name).attention().mechanism.limit
        assert limit in (None, LONGEST)
    own = nn.RandomSynthesizer(max_length=5)
    assert config(mechanism=own).attention().mechanism.max_length == 5


@pytest.mark.parametrize("name", ["vocab_size", "max_length", "num_layers", "d_ff"])
@pytest.mark.parametrize("value", [0, -3, 1.5])
def test_sizes_are_ints_from_one(name, value):
    parts = (f"{name}: got {value!r}; expected an int >= 1",)
    assert_raises(ValueError, lambda: config(**{name: value}), *parts)


@pytest.mark.parametrize(
    ("name", "value", "choices"),
    [
        ("positions", "rope", "'rotary', 'sinusoidal', 'learned', 'concatenated', 'al"),
        ("norm", "batch", "'layer', 'rms'"),
        ("norm_placement", "middle", "'pre', 'post'"),
        ("activation", "swish", "'gelu', 'gelu_exact', 'relu'"),
        ("position_layout", "mixed", "'interleaved', 'concatenated'"),
    ],
)
def test_choices(name, value, choices):
    parts = (f"{name}: got {value!r}; expected one of {choices}",)
    assert_raises(ValueError, lambda: config(**{name: value}), *parts)


@pytest.mark.parametrize("given", ["softmax", nn.Linear])
def test_a_mechanism_is_given_as_its_config(given):
    parts = (f"mechanism: got {given!r}; expected a mechanism's config",)
    assert_raises(TypeError, lambda: config(mechanism=given), *parts)


CONFIGS = {
    "outputs that embeddings don't give": (
        {"output_size": 6},
        "tie_embeddings: got True with output_size = 6; expected False",
        "set tie_embeddings=False",
    ),
    "no outputs": (
        {"output_size": 0, "tie_embeddings": False},
        "output_size: got 0; expected an int >= 1",
    ),
    "heads that do not divide d_model": (
        {"head_dim": None},
        "num_heads: got 4 for d_model = 10; expected a divisor of d_model",
        "set head_dim",
    ),
    "groups that do not divide the heads": (
        {"num_kv_heads": 3},
        "num_kv_heads: got 3 for num_heads = 4; expected a divisor of num_heads",
    ),
    "an odd head_dim with rotary": (
        {"head_dim": 5},
        "head_dim: got 5; expected an even number",
        "choose other positions",
    ),
    "an odd width for two halves": (
        {"positions": "concatenated", "d_model": 11},
        "d_model: got 11 with positions = 'concatenated'; expected an even number",
        "choose one, or other positions",
    ),
    "half an embedding for whole logits": (
        {"positions": "concatenated", "tie_embeddings": True},
        "tie_embeddings: got True with positions = 'concatenated'; expected False",
        "set tie_embeddings=False",
    ),
    "a rate of 1": (
        {"dropout_rate": 1.0},
        "dropout_rate: got 1.0; expected a number in [0, 1)",
    ),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_configs_that_do_not_fit(case):
    options, *parts = CONFIGS[case]
    assert_raises(ValueError, lambda: config(**options), *parts)


def test_an_odd_head_dim_without_rotary_is_fine():
    assert config(head_dim=5, positions="learned").head_dim == 5


def raw(dtype):
    return jnp.ones((B, T), dtype)


CALLS = {
    "more tokens than max_length": (
        ValueError,
        lambda d: d(jnp.asarray(ids(0, B, LONGEST + 1))),
        "tokens: got 12 tokens a row; expected at most max_length = 11",
        "shorten the rows, or build the model",
    ),
    "an id past the vocabulary": (
        ValueError,
        lambda d: d(jnp.full((B, T), VOCAB)),
        "tokens: got ids from 13 to 13; expected 0 to 12 (vocab_size - 1)",
        "mark padding with mask=masks.padding",
    ),
    "a negative id": (
        ValueError,
        lambda d: d(jnp.asarray(ids(0, B, T)).at[1, 2].set(-100)),
        "tokens: got ids from -100 to 12; expected 0 to 12",
    ),
    "a negative id that no mask covers": (
        ValueError,
        lambda d: d(
            jnp.asarray(ids(0, B, T)).at[1, 2].set(-1),
            mask=masks.padding(jnp.ones((B, T), bool).at[0, 2].set(False)),
        ),
        "tokens: got ids from -1 to 12; expected 0 to 12",
    ),
    "a negative id in decoding": (
        ValueError,
        lambda d: d.decode(jnp.full((B, 1), -1), d.init_cache(B, T)),
        "tokens: got ids from -1 to -1; expected 0 to 12",
    ),
    "float tokens": (
        TypeError,
        lambda d: d(jnp.ones((B, T))),
        "tokens: got dtype float32; expected integer ids",
        "astype(jnp.int32)",
    ),
    "a raw boolean mask": (
        TypeError,
        lambda d: d(raw(jnp.int32), mask=raw(bool)),
        "mask: got an array of dtype bool and shape (3, 7); expected None or a Mask",
        "padding(keys)",
    ),
    "a raw integer mask": (
        TypeError,
        lambda d: d(raw(jnp.int32), mask=raw(jnp.int32)),
        "mask: got an array of dtype int32 and shape (3, 7); expected None or a Mask",
    ),
    "an integer mask": (
        TypeError,
        lambda d: d(raw(jnp.int32), mask=masks.padding(raw(jnp.int32))),
        "padding(keys): got dtype int32; expected Bool",
    ),
    "a mask for other rows": (
        ValueError,
        lambda d: d(raw(jnp.int32), mask=masks.padding(jnp.ones((2, T), bool))),
        "mask: padding(keys) has shape (2, 7) for leading axes (3,) and 7 tokens",
    ),
    "positions of another shape": (
        ValueError,
        lambda d: d(raw(jnp.int32), positions=jnp.arange(T)),
        "positions: got shape (7,) for tokens of shape (3, 7); expected one a token",
    ),
    "positions past max_length": (
        ValueError,
        lambda d: d(raw(jnp.int32), positions=raw(jnp.int32) * LONGEST),
        "positions: got numbers from 11 to 11; expected 0 to 10 (max_length - 1)",
    ),
    "a cache past max_length": (
        ValueError,
        lambda d: d.init_cache(B, LONGEST + 1),
        "length: got 12; expected at most max_length = 11",
        "build the model with a greater max_length",
    ),
    "a negative cache": (
        ValueError,
        lambda d: d.init_cache(B, -1),
        "length: got -1; expected an int >= 0",
    ),
    "an integer valid": (
        TypeError,
        lambda d: d.decode(raw(jnp.int32), d.init_cache(B, T), valid=raw(jnp.int32)),
        "valid: got dtype int32; expected Bool[b n], True = real token",
    ),
    "a valid of another shape": (
        ValueError,
        lambda d: d.decode(
            raw(jnp.int32), d.init_cache(B, T), valid=jnp.ones((B, 1), bool)
        ),
        "valid: got shape (3, 1) for tokens of shape (3, 7); expected the same",
    ),
    "a cache of other rows": (
        ValueError,
        lambda d: d.decode(raw(jnp.int32), d.init_cache(2, T)),
        "tokens: got 3 rows for a cache of 2; expected",
        "init_cache(3, length)",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_calls_that_do_not_fit(case):
    kind, call, *parts = CALLS[case]
    model = decoder()
    assert_raises(kind, lambda: call(model), *parts)


@pytest.mark.parametrize("scan_layers", [True, False])
def test_masks_that_linear_attention_cannot_honour(scan_layers):
    """Concrete ids are checked, though a scan sees them as abstract ones."""
    model = decoder("linear", scan_layers=scan_layers)
    tokens = jnp.asarray(ids(0, B, T))
    scattered = jnp.array([4, 4, 1, 1, 4, 2, 2])
    assert_raises(
        ValueError,
        lambda: model(tokens, mask=masks.segments(scattered)),
        "mask: segments has id 4 in more than one run",
        "give every run an id of its own",
    )
    assert_raises(
        UnsupportedMaskError,
        lambda: model(tokens, mask=masks.window(2)),
        "mask: got window(...), which Linear cannot honour; expected causal",
        "use Softmax()",
    )


def test_too_many_tokens_raise_under_jit_as_well():
    """Shapes are known there."""
    tokens = ids(0, B, LONGEST + 1)
    parts = ("tokens: got 12 tokens a row; expected at most max_length = 11",)
    assert_raises(ValueError, lambda: jax.jit(decoder())(tokens), *parts)


def test_numpy_tokens_and_small_integers_are_tokens():
    model = decoder()
    want = jax.jit(model)(ids(1, B, T))
    for kind in (np.uint8, np.int64):
        got = jax.jit(model)(ids(1, B, T).astype(kind))
        np.testing.assert_array_equal(got, want)


def test_linear_attention_has_no_alibi():
    assert_raises(
        ValueError,
        lambda: decoder("linear", positions="alibi"),
        "alibi: ",
        "no logits to add a bias to; use rotary, sinusoidal or learned",
    )
