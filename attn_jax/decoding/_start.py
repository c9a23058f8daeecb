"""The one place where kinds of models differ: how a prompt becomes a cache.

From here on a model is three functions, whatever it is: `decode`, `take` and the cache
that goes through them.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from attn_jax.models import EncoderDecoderCache
from attn_jax.ops import masks
from attn_jax.ops._shapes import is_traced

# In place of a token: its logits had no greatest. What a sampler draws is never this.
NO_CHOICE = -1


class Start(NamedTuple):
    """Where writing begins.

    token: the one to read next.
    cache: of everything before it.
    empty: rows without a token to begin with.
    """

    token: Int[Array, "b"]
    cache: Any
    empty: Bool[Array, "b"]


def reads_source(model: Any) -> bool:
    """Whether the prompt is a source to encode, as for an EncoderDecoder."""
    return hasattr(model, "encode")


def start(
    model: Any,
    prompt: Int[Array, "b t"],
    valid: Bool[Array, "b t"] | None,
    bos_id: Any,
    max_length: int,
) -> Start:
    """The prompt read up to its last token, for max_length tokens to come.

    bos_id is Int[] or, for a model without a source, None.

    The last token is left to the first step, so that logits are made of one token a
    row, not of the whole prompt.
    """
    b = prompt.shape[0]
    none = jnp.zeros((b,), bool)
    if reads_source(model):
        mask = None if valid is None else masks.padding(valid, valid)
        memory = model.encode(prompt, mask=mask)
        cache = model.init_cache(memory, max_length, memory_mask=mask)
        return Start(jnp.full((b,), bos_id, jnp.int32), cache, none)
    tokens = prompt.astype(jnp.int32)
    if bos_id is not None:
        tokens = jnp.pad(tokens, ((0, 0), (1, 0)), constant_values=bos_id)
        if valid is not None:
            valid = jnp.pad(valid, ((0, 0), (1, 0)), constant_values=True)
    if valid is not None:
        # Padding first, then the real tokens in their order: the last column is real.
        order = jnp.argsort(valid, axis=1, stable=True)
        tokens = jnp.take_along_axis(tokens, order, axis=1)
        valid = jnp.take_along_axis(valid, order, axis=1)
    # The last of the tokens to come is written but never read.
    length = min(tokens.shape[1] + max_length - 1, model.config.max_length)
    cache = model.init_cache(b, length)
    before = None if valid is None else valid[:, :-1]
    if tokens.shape[1] > 1:
        _, cache = model.decode(tokens[:, :-1], cache, valid=before)
    return Start(tokens[:, -1], cache, none if valid is None else ~valid[:, -1])


def widen(logits: Array) -> Array:
    """Logits in at least float32, whatever the model computes in."""
    return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))


def has_choice(logits: Array) -> Array:
    """Whether a greatest logit is there: no NaN, no +inf, and not all -inf."""
    return jnp.isfinite(jnp.max(logits, axis=-1))


def optional_id(token: Any) -> Any:
    """A token id as an array, so that another one compiles nothing."""
    return None if token is None else jnp.asarray(token, jnp.int32)


def repeat(model: Any, cache: Any, rows: int, times: int) -> Any:
    """The cache with every row as often, one after the other."""
    if times == 1:
        return cache
    return model.take(cache, jnp.repeat(jnp.arange(rows), times))


def choose(model: Any, cache: Any, rows: Array) -> Any:
    """The cache of beams chosen among those of the same row.

    These have one source, so that what is known of it stays where it is.
    """
    taken = model.take(cache, rows)
    if isinstance(cache, EncoderDecoderCache):
        taken = taken._replace(context=cache.context)
    return taken


def check_drawn(tokens: Array, vocab: int) -> None:
    """Raises where a sampler gave what is no token."""
    if is_traced(tokens):
        return
    wrong = tokens[(tokens < NO_CHOICE) | (tokens >= vocab)]
    if not wrong.size:
        return
    # A negative one is kept one lower.
    drawn = int(wrong[0]) + int(wrong[0] < 0)
    raise ValueError(
        f"sampler: gave token {drawn}; expected 0 to {vocab - 1} (vocab_size - "
        "1); clip what it draws, or build the model with the vocabulary it draws from"
    )


def check_written(bad: Array, what: str) -> None:
    """Raises where a row met logits among which none can be chosen."""
    if is_traced(bad) or not bad.any():
        return
    rows = ", ".join(str(row) for row in jnp.flatnonzero(bad))
    raise FloatingPointError(
        f"logits: the model gave row {rows} NaN, +inf, or -inf for all, {what}; "
        "expected a finite greatest logit; look for NaN in the parameters or the prompt"
    )
