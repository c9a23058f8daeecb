"""Checks of selected keys and of maps from their scores."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from attn_jax.ops._shapes import check_array, check_floating, is_traced


def check_selected(selected: Any, t: int, s: int | None) -> None:
    """Int[t r] or Int[r]; concrete ones are numbers of keys, below s where given."""
    check_array("selected", selected)
    if not jnp.issubdtype(selected.dtype, jnp.integer):
        raise TypeError(
            f"selected: got dtype {selected.dtype}; expected integers, the numbers of "
            "the selected keys"
        )
    if selected.ndim not in (1, 2) or (selected.ndim == 2 and len(selected) != t):
        raise ValueError(
            f"selected: got shape {selected.shape} for t = {t} queries; expected "
            f"Int[t r], a row for each of them, or Int[r], the same keys for all"
        )
    if is_traced(selected) or not selected.size:
        return
    values = np.asarray(selected)
    low, high = int(values.min()), int(values.max())
    if low < 0 or (s is not None and high >= s):
        most = "" if s is None else f" to {s - 1}"
        raise ValueError(
            f"selected: got numbers from {low} to {high}; expected keys from 0{most}; "
            "take the rows of these queries, with numbers of these keys"
        )


def check_map(sizes: tuple[int, ...], reconstruction: Array, offset: Array) -> None:
    """reconstruction: #h t s r and offset: #h t s for sizes h, t, r."""
    h, t, r = sizes
    s = check_axes("reconstruction", reconstruction, (h, t, None, r), "h t s r")[2]
    check_axes("offset", offset, (h, t, s), "h t s")


def check_axes(
    name: str, x: Array, sizes: tuple[int | None, ...], layout: str
) -> tuple[int, ...]:
    """The shape of x, an axis a size; None is any, and one head may do for all."""
    check_array(name, x)
    fits = x.ndim == len(sizes) and all(
        want in (None, got) or (axis == 0 and got == 1)
        for axis, (got, want) in enumerate(zip(x.shape, sizes, strict=True))
    )
    if not fits:
        wanted = ", ".join("any" if n is None else str(n) for n in sizes)
        raise ValueError(
            f"{name}: got shape {x.shape}, read as {layout}; expected ({wanted}), "
            "where 1 head serves all; take the rows of these queries, and add an axis "
            "for heads where there is none"
        )
    check_floating(name, x)
    return x.shape
