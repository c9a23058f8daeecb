"""Shape checks and axes shared by the Synthesizer ops."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from attn_jax.ops._shapes import (
    check_array,
    check_floating,
    check_groups,
    is_traced,
)


def check_layouts(**arrays: tuple[Array | None, str]) -> None:
    """Each array has the axes of its layout, and a letter is one size in all of them.

    Batch axes `*b` broadcast: they may be missing or 1.
    """
    sizes: dict[str, tuple[int, str]] = {}
    batch: tuple[int, ...] = ()
    for name, (x, layout) in arrays.items():
        if x is None:
            continue
        _check_axes(name, x, layout)
        letters = layout.removeprefix("*b ").split()
        lead = x.ndim - len(letters)
        try:
            batch = jnp.broadcast_shapes(batch, x.shape[:lead])
        except ValueError:
            raise ValueError(
                f"{name}: got batch axes {x.shape[:lead]} (shape {x.shape}, read as "
                f"{layout}) for {batch} before it; expected each of these axes to be "
                "the same or 1"
            ) from None
        for letter, size in zip(letters, x.shape[lead:], strict=True):
            expected, other = sizes.setdefault(letter, (size, f"{name} ({layout})"))
            if size != expected:
                raise ValueError(
                    f"{name}: got {letter} = {size} (shape {x.shape}, read as "
                    f"{layout}) for {letter} = {expected} in {other}; expected the "
                    f"same {letter} in both"
                )


def _check_axes(name: str, x: Array, layout: str) -> None:
    check_array(name, x)
    least = len(layout.removeprefix("*b ").split())
    batched = layout.startswith("*b ")
    if x.ndim < least or (x.ndim > least and not batched):
        raise ValueError(
            f"{name}: got shape {x.shape} with {x.ndim} axes; expected "
            f"{'at least ' if batched else ''}{least}, in the layout {layout}; one "
            "head is an axis of size 1"
        )
    check_floating(name, x)


def check_leading(name: str, x: Array, v: Array) -> None:
    """The batch axes of x: *#b h t n are those of v: *b s g e, missing or 1."""
    got, expected = x.shape[:-3], v.shape[:-3]
    fits = len(got) <= len(expected) and all(
        m in (1, n) for m, n in zip(got[::-1], expected[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"{name}: got batch axes {got} (shape {x.shape}) for v's {expected} (shape "
            f"{v.shape}); expected them to broadcast to v's; broadcast v first if one "
            "array of values serves them all"
        )


def check_length(name: str, n: int, h: int, v: Array) -> None:
    """n logits a row suffice for the keys of v: *b s g e, and g divides h."""
    s, g = v.shape[-3:-1]
    if n < s:
        raise ValueError(
            f"{name}: got n = {n} positions for v's s = {s} keys (shape {v.shape}, "
            "read as *b s g e); expected n >= s; build the Synthesizer for a longest "
            f"length of at least {s}, or shorten the sequence"
        )
    check_groups("v", g, name, h)


def check_queries(queries: Array, n: int) -> None:
    """Int[t]; concrete positions lie in 0 .. n - 1."""
    check_array("queries", queries)
    if not jnp.issubdtype(jnp.result_type(queries), jnp.integer):
        raise TypeError(
            f"queries: got dtype {jnp.result_type(queries)}; expected integer "
            "positions, Int[t]"
        )
    if jnp.ndim(queries) != 1:
        raise ValueError(
            f"queries: got shape {jnp.shape(queries)}; expected one axis, Int[t], the "
            "same positions for every example; a single one is queries[None]"
        )
    if is_traced(queries) or len(queries) == 0:
        return
    values = np.asarray(queries)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= n:
        raise ValueError(
            f"queries: got positions from {low} to {high}; expected 0 to {n - 1}, the "
            f"rows of r1 (n = {n}); build the Synthesizer for a longer length, or "
            "leave out positions of padding"
        )
