"""Configs and calls of an encoder-decoder that do not fit raise and say what to do."""

import jax.numpy as jnp
import pytest

from attn_jax import UnsupportedMaskError, nn
from attn_jax.ops import masks
from tests.models.cases import LONGEST, VOCAB, B, M, T, encoder_decoder, ids
from tests.nn.errors import assert_raises

pytestmark = pytest.mark.usefixtures("plain_errors")

S = 9


def source(*shape):
    return jnp.asarray(ids(0, *(shape or (B, S))))


def target(*shape):
    return jnp.asarray(ids(1, *(shape or (B, T))))


CONFIGS = {
    "a mechanism that attends to itself alone": (
        ValueError,
        {"cross_mechanism": nn.RandomSynthesizer()},
        "cross_mechanism: got RandomSynthesizer; expected one that compares tokens",
        "use Softmax() or Linear()",
    ),
    "the name of a mechanism between": (
        TypeError,
        {"cross_mechanism": "linear"},
        "cross_mechanism: got 'linear'; expected a mechanism's config",
        "MECHANISMS['linear']()",
    ),
    "the name of a mechanism in the encoder": (
        TypeError,
        {"encoder_mechanism": "linear"},
        "encoder_mechanism: got 'linear'; expected a mechanism's config",
    ),
    "no encoder": (
        ValueError,
        {"num_encoder_layers": 0},
        "num_encoder_layers: got 0; expected an int >= 1",
    ),
    "an unknown scale": (
        ValueError,
        {"embedding_scale": "root"},
        "embedding_scale: got 'root'; expected a number, 'sqrt' for sqrt(d_model), or",
    ),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_configs_that_do_not_fit(case):
    kind, options, *parts = CONFIGS[case]
    assert_raises(kind, lambda: encoder_decoder(**options), *parts)


LINEAR = {"encoder_mechanism": nn.Linear()}

CALLS = {
    "a source longer than max_length": (
        ValueError,
        {"positions": "learned"},
        lambda m: m(source(B, LONGEST + 1), target()),
        "source: got 12 tokens a row; expected at most max_length = 11",
        "shorten the rows",
    ),
    "a target longer than max_length": (
        ValueError,
        {},
        lambda m: m(source(), target(B, LONGEST + 1)),
        "target: got 12 tokens a row; expected at most max_length = 11",
    ),
    "a source id past the vocabulary": (
        ValueError,
        {},
        lambda m: m(jnp.full((B, S), VOCAB), target()),
        "source: got ids from 13 to 13; expected 0 to 12 (vocab_size - 1)",
    ),
    "a negative target id": (
        ValueError,
        {},
        lambda m: m(source(), target().at[0, 1].set(-1)),
        "target: got ids from -1 to 12; expected 0 to 12",
    ),
    "a float source": (
        TypeError,
        {},
        lambda m: m.encode(jnp.ones((B, S))),
        "source: got dtype float32; expected integer ids",
        "source.astype(jnp.int32)",
    ),
    "a source of other rows": (
        ValueError,
        {},
        lambda m: m(source(2, S), target()),
        "target: got leading axes (3,) for a source of (2,); expected the same",
    ),
    "a raw mask": (
        TypeError,
        {},
        lambda m: m(source(), target(), source_mask=source() > 0),
        "mask: got an array of dtype bool and shape (3, 9); expected None or a Mask",
    ),
    "segments on one side": (
        ValueError,
        {},
        lambda m: m(source(), target(), target_mask=masks.segments(target() * 0)),
        "target_mask, source_mask: got segments 1 and 0 times; expected them in both",
    ),
    "a mask that the encoder's mechanism cannot honour": (
        UnsupportedMaskError,
        LINEAR,
        lambda m: m(source(), target(), source_mask=masks.window(1, 1)),
        "mask: got window(...), which Linear cannot honour",
    ),
    "segments of a memory": (
        UnsupportedMaskError,
        {},
        lambda m: m.init_cache(
            jnp.zeros((B, S, M)), T, memory_mask=masks.segments(source() * 0)
        ),
        "mask: got segments(...) for a context that is decoded from",
        "a row of its own",
    ),
    "a memory of another width": (
        ValueError,
        {},
        lambda m: m.init_cache(jnp.zeros((B, S, M + 1)), T),
        "context: got shape (3, 9, 11); expected (*b, t, 10)",
    ),
    "a cache longer than max_length": (
        ValueError,
        {},
        lambda m: m.init_cache(jnp.zeros((B, S, M)), LONGEST + 1),
        "length: got 12; expected at most max_length = 11",
    ),
    "more tokens than the cache has room for": (
        ValueError,
        {},
        lambda m: m.decode(target(), m.init_cache(jnp.zeros((B, S, M)), T - 1)),
        "tokens: row 0 would hold 7 tokens; the cache has room for 6",
    ),
    "a row that no cache has": (
        ValueError,
        {},
        lambda m: m.take(m.init_cache(jnp.zeros((B, S, M)), T), jnp.array([0, 3])),
        "rows: got numbers from 0 to 3; expected 0 to 2",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_calls_that_do_not_fit(case):
    kind, options, call, *parts = CALLS[case]
    model = encoder_decoder(**options)
    assert_raises(kind, lambda: call(model), *parts)
