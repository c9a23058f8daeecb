"""What layers and models ask of their arguments, before anything is computed."""

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from attn_jax.nn.core import Mechanism
from attn_jax.ops._mask_rules import Dense, Segments
from attn_jax.ops._shapes import check_array, check_sizes, is_traced
from attn_jax.ops.masks import Mask, UnsupportedMaskError


def check_optional_sizes(**sizes: int | None) -> None:
    """Ints from 1 on, or None, a default that needs no check."""
    check_sizes(**{name: size for name, size in sizes.items() if size is not None})


def check_mechanism(mechanism: Any, name: str = "mechanism") -> None:
    """A config, not its name and not its class."""
    if isinstance(mechanism, Mechanism):
        return
    named = f"MECHANISMS[{mechanism!r}]()" if isinstance(mechanism, str) else None
    raise TypeError(
        f"{name}: got {mechanism!r}; expected a mechanism's config, such as "
        f"Softmax(); write {named or 'MECHANISMS[name]()'} for one of the table"
    )


def check_exclusive_gate(exclusive: bool, gate: str | None) -> None:
    """A gate of an exclusive layer, by its name."""
    if gate not in (None, "tanh", "sigmoid"):
        raise ValueError(
            f"exclusive_gate: got {gate!r}; expected 'tanh', 0 at first, 'sigmoid', a "
            "half at first, or None, which takes all of the own value's direction out"
        )
    if gate is not None and not exclusive:
        raise ValueError(
            f"exclusive_gate: got {gate!r} with exclusive = False; expected None, "
            "since there is nothing to gate; set exclusive=True"
        )


def check_init_std(std: float | None) -> None:
    """A standard deviation, or None."""
    if std is not None and not std > 0:
        raise ValueError(
            f"init_std: got {std}; expected a number > 0, such as GPT-2's 0.02, or "
            "None for 1 / sqrt(features read)"
        )


def check_tokens(name: str, x: Array, width: int) -> None:
    """Float[*b t width]."""
    check_array(name, x)
    if x.ndim < 2 or x.shape[-1] != width:
        raise ValueError(
            f"{name}: got shape {x.shape}; expected (*b, t, {width}), tokens of "
            f"d_model = {width} features; one token is an axis t of size 1"
        )
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"{name}: got dtype {x.dtype}; expected a floating dtype; embed token ids "
            f"first, or cast with {name}.astype(jnp.float32)"
        )


def check_rows(name: str, rows: int, cached: int) -> None:
    """As many rows as the cache has."""
    if rows != cached:
        raise ValueError(
            f"{name}: got {rows} rows for a cache of {cached}; expected one row of "
            f"tokens a row of the cache; make it with init_cache({rows}, length)"
        )


def check_valid(valid: Array | None, shape: tuple[int, ...]) -> None:
    """Bool of the tokens' shape."""
    if valid is None:
        return
    check_array("valid", valid)
    if valid.dtype != bool:
        raise TypeError(
            f"valid: got dtype {valid.dtype}; expected Bool[b n], True = real token; "
            "compare first, e.g. jnp.arange(n) < lengths[:, None]"
        )
    if valid.shape != shape:
        raise ValueError(
            f"valid: got shape {valid.shape} for tokens of shape {shape}; expected "
            "the same, one flag a token"
        )


def clean_positions(
    positions: Int[Array, "..."],
    shape: tuple[int, ...],
    real: Bool[Array, "..."] | None,
    limit: int | None,
    mask: Mask,
) -> Int[Array, "..."]:
    """Explicit positions, 0 at padding; concrete ones lie in 0 .. limit - 1."""
    check_array("positions", positions)
    if not jnp.issubdtype(positions.dtype, jnp.integer):
        raise TypeError(
            f"positions: got dtype {positions.dtype}; expected integers, Int[*b t]"
        )
    if positions.shape != shape:
        raise ValueError(
            f"positions: got shape {positions.shape} for tokens of shape {shape}; "
            f"expected one a token; the same for every row is "
            f"jnp.broadcast_to(positions, {shape})"
        )
    if not (is_traced(positions, real) or mask.find(Segments) or mask.find(Dense)):
        _warn_of_restarts(np.asarray(positions), real)
    if real is not None:
        positions = jnp.where(real, positions, 0)
    if limit is None or is_traced(positions) or not positions.size:
        return positions
    low, high = extremes(positions)
    if low < 0 or high >= limit:
        raise ValueError(
            f"positions: got numbers from {low} to {high}; expected 0 to {limit - 1} "
            "(max_length - 1); build for a greater max_length, or mark padding with "
            "mask=masks.padding(...), where they may be anything"
        )
    return positions


def _warn_of_restarts(positions: np.ndarray, real: Array | None) -> None:
    """Warns where a row starts anew, though nothing keeps its documents apart."""
    counted = np.broadcast_to(True if real is None else real, positions.shape)
    before = np.maximum.accumulate(np.where(counted, positions, 0), axis=-1)[..., :-1]
    restarts = (positions[..., 1:] == 0) & (before > 0) & counted[..., 1:]
    if not restarts.any():
        return
    *row, token = np.argwhere(restarts)[0]
    warnings.warn(
        f"positions: got 0 again in row {', '.join(map(str, row))} at token "
        f"{token + 1}; positions alone keep no documents apart: the tokens see those "
        "before them; join mask=masks.segments(ids) for packed rows",
        stacklevel=4,
    )


def extremes(x: Array) -> tuple[int, int]:
    """Least and greatest entry of a concrete array, also while jit traces others."""
    values = np.asarray(x)
    return int(values.min()), int(values.max())


def check_mask(mask: Mask, mechanism: Mechanism) -> None:
    """Every rule is one that the mechanism honours, with values it can."""
    for rule in mask.rules:
        kind = type(rule).__name__.lower()
        if kind not in mechanism.masks:
            raise UnsupportedMaskError(
                f"mask: got {kind}(...), which {type(mechanism).__name__} cannot "
                f"honour; expected {', '.join(sorted(mechanism.masks))}; use Softmax() "
                "for this mask"
            )
    mechanism.check(mask)


def check_decodes(mechanism: Mechanism) -> None:
    """A mechanism that decodes token by token."""
    if mechanism.cannot_decode:
        raise ValueError(
            f"mechanism: got {type(mechanism).__name__}, which cannot decode with a "
            f"cache: {mechanism.cannot_decode}; write with full passes, that is "
            "model(tokens) for every new token, or use Softmax() or Linear()"
        )


def check_context(
    context: Array, x: Array, mechanism: Mechanism, exclusive: bool
) -> None:
    """A context beside x, for a mechanism that attends to one."""
    if exclusive:
        raise ValueError(
            "context: got one in an exclusive layer; expected None: exclusive "
            "attention takes out each token's own value, which cross-attention does "
            "not have; set exclusive=False for this layer"
        )
    if not mechanism.cross:
        raise ValueError(
            f"context: got one for {type(mechanism).__name__}; expected None: it is "
            "made for one sequence, with logits from positions or the query alone or "
            "with queries that are the keys; use Softmax() or Linear() for "
            "cross-attention"
        )
    check_tokens("context", context, x.shape[-1])
    if context.shape[:-2] != x.shape[:-2]:
        raise ValueError(
            f"context: got leading axes {context.shape[:-2]} for x's {x.shape[:-2]}; "
            "expected the same; broadcast them first"
        )


def check_room(name: str, room: Int[Array, ""], after: Int[Array, "b"]) -> None:
    """Raises where a concrete cache would overflow."""
    if not is_traced(room, after) and after.size and extremes(after)[1] > int(room):
        row = int(np.asarray(after).argmax())
        raise ValueError(
            f"{name}: row {row} would hold {int(after[row])} tokens; the cache has "
            f"room for {int(room)}; expected fewer tokens, or a cache from "
            "init_cache(batch, length) with a greater length"
        )


def check_memory(mask: Mask) -> None:
    """A mask of a context that all queries will see alike."""
    if mask.find(Segments):
        raise UnsupportedMaskError(
            "mask: got segments(...) for a context that is decoded from; expected "
            "padding alone; give each segment a row of its own"
        )


def check_taken(rows: Array, cached: int) -> None:
    """Int[k], numbers of rows that a cache has."""
    check_array("rows", rows)
    if rows.ndim != 1 or not jnp.issubdtype(rows.dtype, jnp.integer):
        raise TypeError(
            f"rows: got {rows.dtype}{list(rows.shape)}; expected Int[k], the numbers "
            "of the rows to take; one row is jnp.array([i])"
        )
    if is_traced(rows) or not rows.size:
        return
    low, high = extremes(rows)
    if low < 0 or high >= cached:
        raise ValueError(
            f"rows: got numbers from {low} to {high}; expected 0 to {cached - 1}, "
            f"since the cache has {cached} rows"
        )
