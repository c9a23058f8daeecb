"""Attention by blocks of query rows: t x s logits are never there all at once."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from attn_jax.ops._blocks import looks_back
from attn_jax.ops._masking import hide_keys, masked_softmax, weighted_sum
from attn_jax.ops._shapes import compute_dtype, lift
from attn_jax.ops.masks import Mask

BLOCK = 256  # query rows whose logits exist at the same time
UNROLLED = 8  # blocks that are compiled one by one, with the keys that they may see


def attend_by_rows(
    logits: Callable[[int, Any], Array],
    rows: Any,
    v: Float[Array, "*b s g e"],
    *,
    mask: Mask,
    allowed: Bool[Array, "*#b #h t s"] | None,
) -> Float[Array, "*b t h e"]:
    """softmax(logits) v, with the logits of BLOCK queries at a time.

    Where there are more, a block's logits are computed again in the backward pass.
    Below a diagonal a block has only as many keys as it may see, where there are few
    blocks, each of which is compiled.

    Args:
      logits: (s, rows) -> *#b h t s, the logits of some queries over the first s keys.
      rows: what logits are made from, arrays *#b #h t k that are cut along t.
      v: values, of any content where nobody sees them.
      mask: its structure tells whether it lies below a diagonal.
      allowed: the mask's array.
    """
    t, s = jax.tree.leaves(rows)[0].shape[-2], v.shape[-3]
    values = hide_keys(v, allowed)

    def attend(keys: int, allowed: Any, rows: Any) -> Array:
        part = logits(keys, rows)
        part = part.astype(compute_dtype(part, v))
        return attend_rows(part, values[..., :keys, :, :], allowed)

    if t <= BLOCK:
        y = attend(s, allowed, rows)
    elif t == s and looks_back(mask) and t <= BLOCK * UNROLLED:
        y = _in_slabs(attend, t, allowed, rows)
    else:
        y = _in_turn(partial(attend, s), t, allowed, rows)
    return y.astype(v.dtype)


def attend_rows(
    logits: Float[Array, "*#b h t n"],
    v: Float[Array, "*b s g e"],
    allowed: Bool[Array, "*#b #h t s"] | None,
) -> Float[Array, "*b t h e"]:
    """The softmax of the first s columns of logits, times values already hidden."""
    logits = lift(logits[..., : v.shape[-3]], v.ndim)
    if allowed is not None:
        shape = jnp.broadcast_shapes(logits.shape, allowed.shape)
        logits = jnp.broadcast_to(logits, shape)
    return weighted_sum(masked_softmax(logits, allowed), v)


def _in_slabs(
    attend: Callable[..., Array], t: int, allowed: Any, rows: Any
) -> Float[Array, "*b t h e"]:
    """Blocks below the diagonal, each with the keys up to its last query."""
    slabs = []
    for start in range(0, t, BLOCK):
        end = min(start + BLOCK, t)
        part = None if allowed is None else allowed[..., start:end, :end]
        some = jax.tree.map(lambda x, i=start, j=end: x[..., i:j, :], rows)
        slabs.append(jax.checkpoint(partial(attend, end))(part, some))
    return jnp.concatenate(slabs, axis=-3)


def _in_turn(
    attend: Callable[..., Array], t: int, allowed: Any, rows: Any
) -> Float[Array, "*b t h e"]:
    """Blocks one after the other, the last one filled up, each with every key."""
    blocks = -(-t // BLOCK)

    def cut(x: Array) -> Array:
        fill = [(0, 0)] * (x.ndim - 2) + [(0, blocks * BLOCK - t), (0, 0)]
        x = jnp.pad(x, fill).reshape(*x.shape[:-2], blocks, BLOCK, x.shape[-1])
        return jnp.moveaxis(x, -3, 0)

    block = jax.checkpoint(lambda xs: attend(*xs), prevent_cse=False)
    y = jnp.moveaxis(jax.lax.map(block, jax.tree.map(cut, (allowed, rows))), 0, -4)
    return y.reshape(*y.shape[:-4], blocks * BLOCK, *y.shape[-2:])[..., :t, :, :]
