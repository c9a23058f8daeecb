"""Beam search with a length penalty (Wu et al. 2016, section 7)."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Int32

from attn_jax.decoding._checks import check_request, length_penalties
from attn_jax.decoding._start import (
    check_written,
    choose,
    has_choice,
    optional_id,
    repeat,
    start,
    widen,
)
from attn_jax.nn._checks import check_sizes


def beam_search(
    model: Any,
    prompt: Int[Array | np.ndarray, "b t"],
    *,
    beam_size: int,
    alpha: float,
    max_length: int,
    eos_id: int,
    bos_id: int | None = None,
    valid: Bool[Array | np.ndarray, "b t"] | None = None,
) -> tuple[Int32[Array, "b beam n"], Float[Array, "b beam"]]:
    """The most probable texts among those that a beam of hypotheses meets.

        score(y) = log p(y | prompt) / ((5 + n) / 6)^alpha,   n = |y|, eos_id included

    At every step each hypothesis is extended by every token. Of the beam_size best
    extensions, those that end are kept apart, with their score; the best that don't
    end, taken from twice as many so that beam_size of them remain, go on. A row stops
    when none of them can any more get among its finished ones: log p only falls, so a
    hypothesis can't reach more than its log p now over the greatest penalty to come,
    that of max_length for alpha >= 0 and that of the next length for alpha < 0.

    Reduces to exhaustive search with beam_size = vocab^max_length. With beam_size=1 it
    is `greedy`: it ends with its first eos_id, whatever alpha.

    Cost: beam_size decoding steps a token, a gather of their caches (not of what they
    know of a source), and the best 2 beam_size of beam_size * vocab numbers.

    Args:
      model, prompt, bos_id, valid: as in `greedy`.
      beam_size: hypotheses that go on, and that are returned.
      alpha: exponent of the penalty, of either sign; 0 is none, 0.6 that of Vaswani et
        al. 2017. Greater prefers longer texts.
      max_length: tokens of a hypothesis at most, eos_id included, the prompt not.
      eos_id: ends a hypothesis.

    Returns:
      tokens: without the prompt, the best first; 0 after eos_id. Hypotheses that don't
        end are returned only in rows where none does.
      scores: -inf where there are fewer hypotheses than beam_size, with tokens 0.

    Raises:
      ValueError, TypeError: an argument that can't be honoured, before anything is
        computed.
      FloatingPointError: logits without a finite greatest one. Under jit, where
        nothing can raise, the row's scores are NaN and its tokens -1.
    """
    check_sizes(beam_size=beam_size)
    if eos_id is None:
        raise ValueError(
            "eos_id: got None; expected the id that ends a text, since hypotheses "
            "that have ended are compared; greedy(...) and sample(...) need none"
        )
    check_request(model, prompt, valid, max_length, eos_id, bos_id)
    penalty = length_penalties(alpha, max_length)
    graph, state = nnx.split(model)
    bos, eos = optional_id(bos_id), optional_id(eos_id)
    sizes = {"beam_size": beam_size, "max_length": max_length}
    found = _search(graph, state, prompt, valid, bos, eos, penalty, **sizes)
    check_written(jnp.any(jnp.isnan(found.scores), axis=1), "during the search")
    return found.tokens, found.scores


class Beams(NamedTuple):
    """Hypotheses, best first. A score of -inf is none."""

    tokens: Int[Array, "b k n"]
    scores: Float[Array, "b k"]


class Search(NamedTuple):
    """What goes from token to token.

    live: hypotheses that go on; their score is log p.
    finished: those that have ended, with their penalised score.
    cache: one row a live hypothesis.
    done: rows that can't get better; their live hypotheses have score -inf.
    bad: rows that met logits without a finite greatest one.
    """

    step: Int[Array, ""]
    token: Int[Array, "b k"]  # the one to read
    cache: Any
    live: Beams
    finished: Beams
    done: Bool[Array, "b"]
    bad: Bool[Array, "b"]


@partial(jax.jit, static_argnames=("graph", "beam_size", "max_length"))
def _search(
    graph: Any,
    state: Any,
    prompt: Int[Array, "b t"],
    valid: Bool[Array, "b t"] | None,
    bos_id: Int[Array, ""] | None,
    eos_id: Int[Array, ""],
    penalty: Float[Array, "n"],
    *,
    beam_size: int,
    max_length: int,
) -> Beams:
    model, b, k = nnx.merge(graph, state), prompt.shape[0], beam_size
    begin = start(model, prompt, valid, bos_id, max_length)
    cache = repeat(model, begin.cache, b, k)
    token = jnp.repeat(begin.token[:, None], k, axis=1)
    dtype = jax.eval_shape(lambda: _logits(model, token, cache)[0]).dtype
    penalty = penalty.astype(dtype)
    none = Beams(
        jnp.zeros((b, k, max_length), jnp.int32), jnp.full((b, k), -jnp.inf, dtype)
    )
    # One hypothesis a row, the empty one: k alike would stay alike.
    live = Beams(none.tokens, none.scores.at[:, 0].set(0.0))
    first = Search(
        jnp.int32(0), token, cache, live, none, jnp.zeros((b,), bool), begin.empty
    )

    def unfinished(now: Search) -> Array:
        return (now.step < max_length) & ~jnp.all(now.done | now.bad)

    def extend(now: Search) -> Search:
        return _extend(model, now, eos_id, penalty)

    return _result(jax.lax.while_loop(unfinished, extend, first), penalty)


def _logits(model: Any, token: Array, cache: Any) -> tuple[Array, Any]:
    """Logits b k vocab after one more token of every hypothesis."""
    logits, cache = model.decode(token.reshape(-1, 1), cache)
    return widen(logits).reshape(*token.shape, logits.shape[-1]), cache


def _extend(
    model: Any, now: Search, eos_id: Int[Array, ""], penalty: Float[Array, "n"]
) -> Search:
    """Every hypothesis by every token; the best go on, or end."""
    (b, k), step = now.token.shape, now.step
    logits, cache = _logits(model, now.token, now.cache)
    alive = now.live.scores > -jnp.inf
    bad = now.bad | jnp.any(alive & ~has_choice(logits), axis=1)
    alive = alive & ~bad[:, None]
    total = now.live.scores[:, :, None] + jax.nn.log_softmax(logits, axis=-1)
    total = jnp.where(alive[:, :, None], total, -jnp.inf).reshape(b, -1)

    vocab = logits.shape[-1]
    # One hypothesis ranks its tokens by their logits, as `greedy` does: added to the
    # log p of a long text, near ones become equal.
    ranked = jnp.where(alive, logits[:, 0], -jnp.inf) if k == 1 else total
    _, index = jax.lax.top_k(ranked, min(2 * k, k * vocab))
    scores = jnp.take_along_axis(total, index, axis=1)
    parent, token = index // vocab, (index % vocab).astype(jnp.int32)
    tokens = jnp.take_along_axis(now.live.tokens, parent[:, :, None], axis=1)
    tokens = tokens.at[:, :, step].set(token)
    ends = token == eos_id

    ended = jnp.where(ends[:, :k], scores[:, :k] / penalty[step], -jnp.inf)
    finished = Beams(
        jnp.concatenate([now.finished.tokens, tokens[:, :k]], axis=1),
        jnp.concatenate([now.finished.scores, ended], axis=1),
    )
    finished, _ = _best(finished, k)
    live, order = _best(Beams(tokens, jnp.where(ends, -jnp.inf, scores)), k)

    # Only what is still to come counts: the lengths step + 2 .. max_length.
    greatest = jax.lax.cummax(penalty, reverse=True)
    bound = live.scores[:, 0] / greatest[jnp.minimum(step + 1, penalty.shape[0] - 1)]
    worst = finished.scores[:, -1]
    done = now.done | (bound <= worst)
    if k == 1:
        done = done | (worst > -jnp.inf)
    live = Beams(live.tokens, jnp.where(done[:, None], -jnp.inf, live.scores))

    rows = jnp.take_along_axis(parent, order, axis=1) + k * jnp.arange(b)[:, None]
    cache = choose(model, cache, rows.reshape(-1))
    token = jnp.take_along_axis(token, order, axis=1)
    return Search(step + 1, token, cache, live, finished, done, bad)


def _best(beams: Beams, k: int) -> tuple[Beams, Int[Array, "b k"]]:
    """The k best and where they stood; the earlier among equals."""
    scores, order = jax.lax.top_k(beams.scores, k)
    tokens = jnp.take_along_axis(beams.tokens, order[:, :, None], axis=1)
    return Beams(tokens, scores), order


def _result(end: Search, penalty: Float[Array, "n"]) -> Beams:
    """Finished hypotheses; unfinished ones in rows without."""
    none = end.finished.scores[:, :1] == -jnp.inf
    scores = jnp.where(none, end.live.scores / penalty[-1], end.finished.scores)
    tokens = jnp.where(none[:, :, None], end.live.tokens, end.finished.tokens)
    tokens = jnp.where((scores == -jnp.inf)[:, :, None], 0, tokens)
    bad = end.bad[:, None]
    return Beams(
        jnp.where(bad[:, :, None], -1, tokens), jnp.where(bad, jnp.nan, scores)
    )
