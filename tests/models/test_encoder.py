"""The encoder: against its oracle, its heads, and what padding may hold."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import models, nn
from attn_jax.ops import masks
from tests.models import oracle
from tests.models.cases import F32, GARBAGE, VOCAB, B, M, T, encoder, ids
from tests.nn.cases import numbers, small
from tests.nn.errors import assert_raises
from tests.ops.oracles import assert_close, assert_same_bits

BERT = {
    "positions": "learned",
    "num_types": 2,
    "embedding_norm": True,
    "pooling": "first",
    "num_classes": 3,
    "masked_lm": True,
    "use_bias": True,
    "norm_placement": "post",
    "norm_epsilon": 1e-12,
    "activation": "gelu_exact",
}
TOKENS, TYPES = ids(0, B, T), ids(1, B, T) % 2
REAL = np.arange(T) < np.array([[T], [3], [5]])


def outputs(model):
    """(tokens, types, real) -> vectors, logits of tokens, logits of classes."""

    def run(tokens, types, real):
        mask = masks.padding(real, real)
        x = model(tokens, mask=mask, types=types)
        return x, model.token_logits(x), model.class_logits(x, mask=mask)

    return jax.jit(run)


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_encoder_and_heads_equal_their_oracle_in_float64(pooling, x64):
    """Devlin et al. 2019: post-norm, a norm on the embeddings, two types."""
    wide = {"dtype": jnp.float64, "param_dtype": jnp.float64}
    model = encoder(**BERT | wide | {"pooling": pooling})
    params, made = numbers(model), model.config
    x, words, classes = outputs(model)(TOKENS, TYPES, REAL)
    want = oracle.encoder(params, TOKENS, TYPES, made, REAL)
    assert_close(x[REAL], want[REAL], 1e-11, "vectors")

    def linear(part, x):
        return x @ params[part]["kernel"] + params[part]["bias"]

    hidden = oracle.activated(linear("words", want), "gelu_exact")
    hidden = oracle.norm(hidden, params["words_norm"], made)
    logits = hidden @ params["embedding"]["embedding"].T + params["words_bias"]
    assert_close(words[REAL], logits[REAL], 1e-11, "token logits")

    picked = want[:, 0]
    if pooling == "mean":
        rows = zip(want, REAL, strict=True)
        picked = np.stack([row[real].mean(axis=0) for row, real in rows])
    pooled = np.tanh(linear("pooler", picked))
    assert_close(classes, linear("classes", pooled), 1e-11, "class logits")


def test_a_pre_norm_encoder_without_types_equals_its_oracle(x64):
    wide = {"dtype": jnp.float64, "param_dtype": jnp.float64}
    model = encoder(**wide)
    real = masks.padding(jnp.asarray(REAL), jnp.asarray(REAL))
    got = jax.jit(lambda tokens: model(tokens, mask=real))(TOKENS)
    want = oracle.encoder(numbers(model), TOKENS, None, model.config, REAL)
    assert_close(got[REAL], want[REAL], 1e-11)


@pytest.mark.parametrize("name", nn.MECHANISMS)
def test_padding_has_no_influence(name):
    """What it holds, to the bit; where it stands, to rounding."""
    model = encoder(mechanism=small(name), **BERT)
    run = outputs(model)
    want = run(np.where(REAL, TOKENS, 2), TYPES, REAL)
    got = run(
        np.where(REAL, TOKENS, np.resize(GARBAGE, (B, T))),
        np.where(REAL, TYPES, -7),
        REAL,
    )
    for a, b in zip(got, want, strict=True):
        assert_same_bits(a, b)
    shift = T - REAL.sum(axis=1)
    left = [
        np.stack([np.roll(row, n) for row, n in zip(x, shift, strict=True)])
        for x in (TOKENS, TYPES, REAL)
    ]
    moved = run(*left)
    assert_close(moved[0][left[2]], want[0][REAL], F32, "vectors")
    assert_close(moved[2], want[2], F32, "class logits")


def test_every_token_sees_every_real_token():
    model = encoder()
    mask = masks.padding(jnp.asarray(REAL), jnp.asarray(REAL))
    run = jax.jit(lambda tokens: model(tokens, mask=mask))
    changed = TOKENS.copy()
    changed[:, 2] = (changed[:, 2] + 1) % VOCAB
    moved = np.any(np.asarray(run(changed)) != np.asarray(run(TOKENS)), axis=-1)
    assert moved[REAL].all()


def test_types_default_to_the_first_and_dropout_to_none():
    model = encoder(**BERT | {"dropout_rate": 0.3})
    run = jax.jit(lambda tokens, types, rng: model(tokens, types=types, rng=rng))
    want = run(TOKENS, jnp.zeros_like(TOKENS), None)
    assert_same_bits(jax.jit(model)(TOKENS), want)
    assert np.any(np.asarray(run(TOKENS, jnp.asarray(TYPES), None)) != want)
    assert np.any(np.asarray(run(TOKENS, None, jax.random.key(0))) != want)
    x, rng = jnp.asarray(want), jax.random.key(1)
    drop = jax.jit(lambda x, rng: model.class_logits(x, rng=rng))
    assert np.any(np.asarray(drop(x, rng)) != np.asarray(drop(x, None)))


def test_a_row_of_padding_is_finite():
    real = REAL & (np.arange(B) != 1)[:, None]
    for each in outputs(encoder(**BERT))(TOKENS, TYPES, real):
        assert np.isfinite(each).all()


def test_heads_exist_where_they_are_asked_for():
    names = {"words", "words_norm", "words_bias", "pooler", "classes", "norm"}
    every = set(nnx.to_pure_dict(nnx.state(encoder(**BERT))))
    assert every == names | {"embedding", "stack"}
    assert set(nnx.to_pure_dict(nnx.state(encoder()))) == {"embedding", "stack"}
    head = models.count_parameters(encoder(**BERT).config)
    none = models.count_parameters(encoder(**BERT | {"masked_lm": False}).config)
    assert head - none == M * M + M + 2 * M + VOCAB


def call(**options):
    model = encoder(**options)
    return lambda *a, **k: model(jnp.asarray(TOKENS), *a, **k)


ERRORS = {
    "types out of range": (
        lambda: call(**BERT)(types=jnp.full((B, T), 2)),
        "types: got numbers from 2 to 2; expected 0 to 1 (num_types - 1)",
    ),
    "types of another shape": (
        lambda: call(**BERT)(types=jnp.zeros((B, 1), jnp.int32)),
        "types: got shape (3, 1) of dtype int32 for tokens of shape (3, 7)",
    ),
    "types for an encoder without": (
        lambda: call()(types=jnp.zeros((B, T), jnp.int32)),
        "types: got some for an encoder without; expected None",
        "num_types",
    ),
    "more tokens than max_length": (
        lambda: encoder()(jnp.zeros((1, 12), jnp.int32)),
        "tokens: got 12 tokens a row; expected at most max_length = 11",
    ),
    "no head for tokens": (
        lambda: encoder().token_logits(jnp.zeros((1, T, M))),
        "token_logits: the encoder has no head for tokens",
        "masked_lm=True",
    ),
    "no classifier": (
        lambda: encoder().class_logits(jnp.zeros((1, T, M))),
        "class_logits: the encoder has no classifier",
        "num_classes",
    ),
    "no pooler": (
        lambda: encoder().pool(jnp.zeros((1, T, M))),
        "pool: the encoder has no pooler",
        "pooling='first'",
    ),
    "classes of nothing": (
        lambda: encoder(num_classes=3),
        "num_classes: got 3 with pooling = 'none'; expected a vector to classify",
    ),
    "an unknown pooling": (
        lambda: encoder(pooling="max"),
        "pooling: got 'max'; expected one of 'none', 'first', 'mean'",
    ),
    "a negative number of types": (
        lambda: encoder(num_types=-1),
        "num_types: got -1; expected an int >= 0",
    ),
}


@pytest.mark.usefixtures("plain_errors")
@pytest.mark.parametrize("case", ERRORS)
def test_what_does_not_fit_raises(case):
    call, *parts = ERRORS[case]
    assert_raises(ValueError, call, *parts)


def test_gelu_exact_is_the_integral():
    from attn_jax.nn.feed_forward import ACTIVATIONS

    x = np.linspace(-4, 4, 17)
    want = [a * (1 + math.erf(a / math.sqrt(2))) / 2 for a in x]
    np.testing.assert_allclose(ACTIVATIONS["gelu_exact"](x), want, atol=1e-6)
