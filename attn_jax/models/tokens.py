"""What every model asks of token ids, and how decoding counts them."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from attn_jax.models.stack_config import StackConfig
from attn_jax.nn import Mechanism, token_positions
from attn_jax.nn._checks import (
    check_mask,
    check_room,
    check_rows,
    check_valid,
    clean_positions,
    extremes,
)
from attn_jax.ops import masks
from attn_jax.ops._linear_masks import real_tokens
from attn_jax.ops._mask_rules import Prefix, Segments
from attn_jax.ops._shapes import check_array, is_traced
from attn_jax.ops.masks import Mask


class Reading(NamedTuple):
    """Tokens as a model takes them, and what its layers are told of them."""

    tokens: Int[Array, "*b t"]  # 0 at padding
    real: Bool[Array, "*b t"] | None
    around: dict[str, Any]  # mask and positions


def read(
    name: str,
    tokens: Int[Array, "*b t"],
    mask: Mask,
    config: StackConfig,
    mechanism: Mechanism,
    positions: Int[Array, "*b t"] | None = None,
) -> Reading:
    """Checks tokens, their mask and their positions before anything is computed.

    positions: None counts real tokens, each packed segment from 0.
    """
    t, leading = tokens.shape[-1], tokens.shape[:-1]
    check_length(name, t, config)
    real, _ = real_tokens(mask, leading, t, t)
    check_mask(mask, mechanism)
    tokens = clean_tokens(name, tokens, real, config)
    if positions is None:
        positions = token_positions(mask, leading, t)
    else:
        limit = config.max_length
        positions = clean_positions(positions, tokens.shape, real, limit, mask)
    return Reading(tokens, real, {"mask": mask, "positions": positions})


def with_causality(mask: Mask) -> Mask:
    """A decoder's mask; `prefix` already says what of the future is visible."""
    return mask if mask.find(Prefix) else mask & masks.causal()


def check_length(name: str, length: int, config: StackConfig) -> None:
    """At most max_length tokens a row."""
    if length > config.max_length:
        raise ValueError(
            f"{name}: got {length} tokens a row; expected at most max_length = "
            f"{config.max_length}; shorten the rows, or build the model with "
            "a greater max_length"
        )


def check_capacity(length: int, config: StackConfig) -> None:
    """A cache for at most max_length tokens."""
    if length > config.max_length:
        raise ValueError(
            f"length: got {length}; expected at most max_length = "
            f"{config.max_length}; build the model with a greater max_length"
        )


def clean_tokens(name: str, tokens: Array, real: Any, config: StackConfig) -> Array:
    """Token ids with 0 at padding; a concrete id out of range raises."""
    if not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise TypeError(
            f"{name}: got dtype {tokens.dtype}; expected integer ids, Int[*b t]; "
            f"cast whole numbers with {name}.astype(jnp.int32)"
        )
    tokens = tokens if real is None else jnp.where(real, tokens, 0)
    if is_traced(tokens) or not tokens.size:
        return tokens
    low, high = extremes(tokens)
    if low < 0 or high >= config.vocab_size:
        raise ValueError(
            f"{name}: got ids from {low} to {high}; expected 0 to "
            f"{config.vocab_size - 1} (vocab_size - 1); mark padding with "
            "mask=masks.padding(...), and it may hold anything"
        )
    return tokens


def next_tokens(
    tokens: Int[Array, "b n"],
    valid: Bool[Array, "b n"] | None,
    length: Int[Array, "b"],
    room: Int[Array, ""],
    config: StackConfig,
) -> tuple[Int[Array, "b n"], Int[Array, "b n"], Int[Array, "b"]]:
    """Tokens to decode and their positions after `length` others, and the new length.

    A row without room keeps its length; concrete ones raise.
    """
    check_array("tokens", tokens)
    check_valid(valid, tokens.shape)
    tokens = clean_tokens("tokens", tokens, valid, config)
    check_rows("tokens", tokens.shape[0], length.shape[0])
    if valid is None:
        counted = jnp.ones(tokens.shape, jnp.int32)
    else:
        counted = valid.astype(jnp.int32)
    after = length + jnp.sum(counted, axis=1, dtype=jnp.int32)
    check_room("tokens", room, after)
    before = jnp.cumsum(counted, axis=1, dtype=jnp.int32) - counted
    positions = length[:, None] + before
    if valid is not None:
        positions = jnp.where(valid, positions, 0)
    return tokens, positions, jnp.where(after <= room, after, length)


def cross_mask(
    source: Mask, target: Mask, leading: tuple[int, ...], t: int, s: int
) -> Mask:
    """What the target's tokens see of the source: real tokens of their own segment."""
    keys, _ = real_tokens(source, leading, s, s)
    _, queries = real_tokens(target, leading, t, t)
    mask = Mask()
    if keys is not None or queries is not None:
        keys = jnp.ones((*leading, s), bool) if keys is None else keys
        mask = masks.padding(keys, queries)
    ours, theirs = target.find(Segments), source.find(Segments)
    if len(ours) != len(theirs):
        raise ValueError(
            f"target_mask, source_mask: got segments {len(ours)} and {len(theirs)} "
            "times; expected them in both masks, since a packed target attends to the "
            "source of its own segment; give source and target ids that match"
        )
    for target_ids, source_ids in zip(ours, theirs, strict=True):
        mask = mask & masks.segments(target_ids.queries, source_ids.key_ids)
    return mask
