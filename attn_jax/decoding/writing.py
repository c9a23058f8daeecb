"""One token after the other: the most probable, or one drawn at random."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Int32, Key

from attn_jax.decoding._checks import check_choice, check_request, check_rng
from attn_jax.decoding._start import (
    NO_CHOICE,
    check_drawn,
    check_written,
    has_choice,
    optional_id,
    start,
    widen,
)

# What a model gives after the last token of a row, and a key -> the next token.
Sampler = Callable[[Float[Array, "w"], Key[Array, ""]], Int[Array, ""]]


def greedy(
    model: Any,
    prompt: Int[Array | np.ndarray, "b t"],
    *,
    max_length: int,
    eos_id: int | None = None,
    bos_id: int | None = None,
    valid: Bool[Array | np.ndarray, "b t"] | None = None,
) -> Int32[Array, "b n"]:
    """The most probable token at every step.

        y_i = argmax_y p(y | prompt, y_1 .. y_{i-1});   the lowest id among equals

    Reduces to `beam_search` with beam_size=1, and to `sample` with top_k=1. Cost: one
    pass over the prompt, then one decoding step a token; stops when every row has.

    Args:
      model: a Decoder, an EncoderDecoder, or a module with their `init_cache`,
        `decode` and `take`.
      prompt: tokens to go on from; for an EncoderDecoder the source. At least one row,
        with at least one token each.
      max_length: tokens to write at most, eos_id included, the prompt not.
      eos_id: ends a row; None never does.
      bos_id: what an EncoderDecoder begins with; a Decoder reads it before the prompt,
        which then may be empty.
      valid: real tokens of a ragged prompt, padded left or right; None is all.

    Returns:
      What was written, without the prompt; 0 after eos_id.

    Raises:
      ValueError, TypeError: an argument that can't be honoured, before anything is
        computed.
      FloatingPointError: logits without a finite greatest one. Under jit, where
        nothing can raise, the row is -1 from that token on.
    """
    check_request(model, prompt, valid, max_length, eos_id, bos_id)
    return _run(model, prompt, valid, bos_id, eos_id, None, max_length)


def sample(
    model: Any,
    prompt: Int[Array | np.ndarray, "b t"],
    *,
    rng: Key[Array, ""],
    max_length: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    sampler: Sampler | None = None,
    eos_id: int | None = None,
    bos_id: int | None = None,
    valid: Bool[Array | np.ndarray, "b t"] | None = None,
) -> Int32[Array, "b n"]:
    """A token drawn at every step.

        y_i ~ softmax(logits_i / temperature), among the tokens that are kept

    top_k keeps the k most probable tokens; of these, with their probabilities summing
    to 1 again, top_p keeps the fewest, most probable first, that have probability p
    together. The lower id comes first among equals. A row's draws depend on rng, on
    its number and on the step, not on how many rows there are.

    Reduces to `greedy` with top_k=1, as the temperature or top_p goes to 0. Cost: as
    `greedy`, and with top_k or top_p a sort of the vocabulary a token.

    References: top_k, Fan et al. 2018; top_p, Holtzman et al. 2020, section 3.1.

    Args:
      model, prompt, max_length, eos_id, bos_id, valid: as in `greedy`.
      rng: a typed key.
      temperature: below 1 sharpens, above 1 flattens.
      top_k: tokens kept; None, or more than there are, keeps all.
      top_p: probability kept, in (0, 1]; None and 1 keep all.
      sampler: (outputs, rng) -> token of a row, in place of all these, for a model
        whose outputs aren't logits (`DecoderConfig.output_size`), such as
        `attn_jax.train.sample_mixture_of_logistics`. It is compiled once for each
        function: pass the same one.

    Returns:
      What was written, without the prompt; 0 after eos_id.

    Raises:
      ValueError, TypeError: as in `greedy`.
    """
    check_rng(rng)
    check_choice(temperature, top_k, top_p, sampler)
    check_request(model, prompt, valid, max_length, eos_id, bos_id, sampler)
    kept = None if top_p is None else jnp.asarray(top_p, jnp.float32)
    draw = Draw(rng, jnp.asarray(temperature, jnp.float32), kept)
    if top_k is not None:
        top_k = min(top_k, model.config.vocab_size)
    how = {"top_k": top_k, "sampler": sampler}
    tokens = _run(model, prompt, valid, bos_id, eos_id, draw, max_length, **how)
    if sampler is not None:
        check_drawn(tokens, model.config.vocab_size)
    return tokens


class Draw(NamedTuple):
    """How tokens are drawn."""

    rng: Key[Array, ""]
    temperature: Float[Array, ""]
    top_p: Float[Array, ""] | None


class Progress(NamedTuple):
    """What goes from token to token."""

    step: Int[Array, ""]
    token: Int[Array, "b"]  # the one to read
    cache: Any
    tokens: Int[Array, "b n"]
    done: Bool[Array, "b"]


def _run(
    model, prompt, valid, bos_id, eos_id, draw, max_length, *, top_k=None, sampler=None
) -> Array:
    graph, state = nnx.split(model)
    # No token is -1, so that it ends no row.
    eos = optional_id(-1 if eos_id is None else eos_id)
    static = {"max_length": max_length, "top_k": top_k, "sampler": sampler}
    bos = optional_id(bos_id)
    tokens = _write(graph, state, prompt, valid, bos, eos, draw, **static)
    check_written(jnp.any(tokens == NO_CHOICE, axis=1), "while it wrote")
    return tokens


@partial(jax.jit, static_argnames=("graph", "max_length", "top_k", "sampler"))
def _write(
    graph: Any,
    state: Any,
    prompt: Int[Array, "b t"],
    valid: Bool[Array, "b t"] | None,
    bos_id: Int[Array, ""] | None,
    eos_id: Int[Array, ""],
    draw: Draw | None,
    *,
    max_length: int,
    top_k: int | None,
    sampler: Sampler | None,
) -> Int32[Array, "b n"]:
    model = nnx.merge(graph, state)
    begin = start(model, prompt, valid, bos_id, max_length)
    tokens = jnp.zeros((prompt.shape[0], max_length), jnp.int32)
    tokens = tokens.at[:, 0].set(jnp.where(begin.empty, NO_CHOICE, 0))
    first = Progress(jnp.int32(0), begin.token, begin.cache, tokens, begin.empty)

    def unfinished(now: Progress) -> Array:
        return (now.step < max_length) & ~jnp.all(now.done)

    def write(now: Progress) -> Progress:
        logits, cache = model.decode(now.token[:, None], now.cache)
        logits = widen(logits[:, 0])
        token = _choose(logits, now.step, draw, top_k, sampler)
        token = jnp.where(has_choice(logits), token, NO_CHOICE)
        old = now.tokens[:, now.step]
        tokens = now.tokens.at[:, now.step].set(jnp.where(now.done, old, token))
        done = now.done | (token == eos_id) | (token < 0)
        return Progress(now.step + 1, jnp.maximum(token, 0), cache, tokens, done)

    return jax.lax.while_loop(unfinished, write, first).tokens


def _choose(
    logits: Float[Array, "b vocab"],
    step: Int[Array, ""],
    draw: Draw | None,
    top_k: int | None,
    sampler: Sampler | None,
) -> Int32[Array, "b"]:
    """A token a row."""
    if draw is None:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    rows, vocab = logits.shape
    now = jax.random.fold_in(draw.rng, step)
    keys = jax.vmap(lambda row: jax.random.fold_in(now, row))(jnp.arange(rows))
    if sampler is not None:
        drawn = jax.vmap(sampler)(logits, keys).astype(jnp.int32)
        return drawn - (drawn < 0)
    if top_k is None and draw.top_p is None:
        scores = _tempered(logits, draw.temperature)
        return jax.vmap(jax.random.categorical)(keys, scores).astype(jnp.int32)
    logits, ids = jax.lax.top_k(logits, vocab if top_k is None else top_k)
    scores = _tempered(logits, draw.temperature)
    if draw.top_p is not None:
        scores = _nucleus(scores, draw.top_p)
    place = jax.vmap(jax.random.categorical)(keys, scores)
    return jnp.take_along_axis(ids, place[:, None], axis=1)[:, 0]


def _tempered(
    logits: Float[Array, "b k"], temperature: Float[Array, ""]
) -> Float[Array, "b k"]:
    """Logits over the temperature, the greatest of them 0 however low that is."""
    # A subnormal temperature counts as 0 on many devices, and 0 / 0 is no number.
    least = jnp.finfo(logits.dtype).tiny
    temperature = jnp.maximum(temperature.astype(logits.dtype), least)
    return (logits - jnp.max(logits, axis=-1, keepdims=True)) / temperature


def _nucleus(
    scores: Float[Array, "b k"], top_p: Float[Array, ""]
) -> Float[Array, "b k"]:
    """Descending scores, -inf where those before have probability p already."""
    weights = jax.nn.softmax(scores, axis=-1)
    before = jnp.cumsum(weights, axis=-1) - weights
    # The first is kept whatever p is; p = 1 keeps all, rounding of the sum aside.
    kept = (before < top_p) | (top_p >= 1)
    kept = kept.at[:, 0].set(True)
    return jnp.where(kept, scores, -jnp.inf)
