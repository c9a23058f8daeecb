"""Log-probabilities of tokens by a Decoder, many texts at once, batched by length."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from attn_jax.data import bucket_lengths
from attn_jax.ops import masks

T = TypeVar("T")


class Span(NamedTuple):
    """Tokens of which the last ones are scored, given those before them."""

    tokens: list[int]
    scored: int


class Score(NamedTuple):
    """log p of the scored tokens, and whether each of them is the most probable."""

    log_p: float
    greedy: bool


class Chunk(NamedTuple):
    """Items of about one length, fewer than rows or as many.

    length: to pad them to.
    rows: of the batch; the rest is empty.
    indices: of the items among all that were passed.
    """

    length: int
    rows: int
    indices: list[int]


def score(model: Any, spans: Sequence[Span], *, batch_size: int) -> list[Score]:
    """The score of each span, in their order.

        log p = Σ_i log softmax(logits_{i−1})_{token i}   over the last `scored` tokens

    Args:
      model: a Decoder.
      spans: of at most max_length + 1 tokens, of which the last isn't read.
      batch_size: rows of max_length that are read at once; of shorter ones, more.

    Raises:
      FloatingPointError: a score is no number.
    """
    found: list[Score] = [Score(0.0, True)] * len(spans)
    graph, state = nnx.split(model)
    lengths = [len(span.tokens) - 1 for span in spans]
    limit = model.config.max_length
    for length, rows, indices in by_length(lengths, limit, batch_size):
        tokens = np.zeros((rows, length + 1), np.int32)
        ends, scored = np.zeros((2, rows), np.int32)
        for row, i in enumerate(indices):
            ends[row], scored[row] = lengths[i], spans[i].scored
            tokens[row, : ends[row] + 1] = spans[i].tokens
        results = jax.device_get(_scores(graph, state, tokens, ends, scored))
        for row, i in enumerate(indices):
            found[i] = Score(float(results[0][row]), bool(results[1][row]))
    for i, each in enumerate(found):
        if np.isnan(each.log_p):
            raise FloatingPointError(
                f"logits: the model gave NaN for text {i}; expected numbers; look for "
                "NaN in the parameters"
            )
    return found


@functools.partial(jax.jit, static_argnames="graph")
def _scores(
    graph: Any,
    state: Any,
    tokens: Int[Array, "b n"],
    ends: Int[Array, "b"],
    scored: Int[Array, "b"],
) -> tuple[Float[Array, "b"], Bool[Array, "b"]]:
    """Scores of rows whose token at ends is the last of those that count."""
    place = jnp.arange(tokens.shape[1] - 1)[None]
    real = place < ends[:, None]
    counted = real & (place >= (ends - scored)[:, None])
    logits = nnx.merge(graph, state)(tokens[:, :-1], mask=masks.padding(real, real))
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    targets = tokens[:, 1:]
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    log_p = picked - jax.nn.logsumexp(logits, axis=-1)
    best = jnp.argmax(logits, axis=-1) == targets
    return jnp.sum(jnp.where(counted, log_p, 0), axis=1), jnp.all(best | ~counted, 1)


def by_length(lengths: Sequence[int], limit: int, batch_size: int) -> Iterator[Chunk]:
    """Items in chunks of about one length, the longest first.

    A chunk has at most batch_size · limit tokens, padding included. There are as many
    lengths as buckets, and one number of rows for each: so few shapes are compiled.

    Args:
      lengths: of the items, at most limit.
      limit: the greatest length.
      batch_size: items of that length in a chunk.
    """
    if lengths and max(lengths) > limit:
        raise ValueError(
            f"lengths: got {max(lengths)}; expected at most {limit}, what the decoder "
            "reads; cut the texts first"
        )
    bounds = bucket_lengths(limit)
    bucket = np.searchsorted(bounds, lengths)
    for number in reversed(range(len(bounds))):
        members = np.flatnonzero(bucket == number).tolist()
        if members:
            most = batch_size * limit // bounds[number]
            rows = min(most, 1 << (len(members) - 1).bit_length())
            for indices in _cut(members, rows):
                yield Chunk(bounds[number], rows, indices)


def windows(tokens: list[int], prefix: int, limit: int) -> Iterable[Span]:
    """A text of any length as spans that score each of its tokens once.

    The first reads the prefix and the first limit - 1 tokens. Each other scores the
    next tokens, limit of them at most, after as many as fit before the last of these.
    """
    first = tokens[:limit]
    yield Span([prefix, *first], len(first))
    for begin in range(limit, len(tokens), limit):
        end = min(begin + limit, len(tokens))
        yield Span(tokens[end - limit - 1 : end], end - begin)


def _cut(items: list[T], size: int) -> Iterator[list[T]]:
    return (items[i : i + size] for i in range(0, len(items), size))
