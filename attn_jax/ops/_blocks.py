"""Masks a tile at a time: which blocks hold anything, and what a tile lets through.

The t x s plane is cut into blocks of queries and blocks of keys. `block_states` says
of each block, from the rules' structure alone, whether nothing in it is visible,
everything or something; `tile` builds the array of one block that needs it.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from attn_jax.ops._mask_rules import (
    Causal,
    Dense,
    Padding,
    Positional,
    Prefix,
    Rule,
    Segments,
    Window,
)
from attn_jax.ops.masks import Mask

NOTHING, EVERYTHING, SOMETHING = 0, 1, 2


class Grid(NamedTuple):
    """t queries in blocks of bq, s keys in blocks of bk; the last may be filled.

    The blocks of queries begin at row `first`.
    """

    t: int
    s: int
    bq: int
    bk: int
    first: int = 0

    @property
    def nq(self) -> int:
        return -(-self.t // self.bq)

    def row(self, i: Any) -> Any:
        """The first row of block i."""
        return self.first + i * self.bq

    @property
    def nk(self) -> int:
        return -(-self.s // self.bk)


def per_example(mask: Mask, leading: tuple[int, ...], grid: Grid) -> Mask:
    """The mask's arrays with one flat batch axis, filled up to whole blocks.

    Batch axes that are 1 everywhere stay 1. Filled queries and keys count as padding.
    """
    t, s = grid.nq * grid.bq, grid.nk * grid.bk

    def flat(x: Any, inner: int) -> Array:
        x = jnp.asarray(x)
        outer = x.shape[: x.ndim - inner]
        if all(n == 1 for n in outer):
            return x.reshape((1, *x.shape[x.ndim - inner :]))
        outer = (1,) * (len(leading) - len(outer)) + outer
        x = x.reshape((*outer, *x.shape[x.ndim - inner :]))
        x = jnp.broadcast_to(x, (*leading, *x.shape[len(leading) :]))
        return x.reshape((-1, *x.shape[len(leading) :]))

    def convert(rule: Rule) -> Rule:
        if isinstance(rule, Positional):
            rule = replace(rule, start=flat(0 if rule.start is None else rule.start, 0))
            if isinstance(rule, Prefix):
                rule = replace(rule, length=flat(rule.length, 0))
            return rule
        if isinstance(rule, Padding):
            keys = fill(flat(rule.keys, 1), -1, s)
            queries = rule.queries
            if queries is not None:
                queries = fill(flat(queries, 1), -1, t)
            return Padding(keys, queries)
        if isinstance(rule, Segments):
            queries = fill(flat(rule.queries, 1), -1, t, mode="edge")
            return Segments(queries, fill(flat(rule.key_ids, 1), -1, s, mode="edge"))
        return Dense(_fill_plane(flat(rule.array, 3), grid))

    return Mask(tuple(convert(rule) for rule in mask.rules))


def lone_causal(mask: Mask) -> Causal | None:
    """The rule, where causality is the only one."""
    only = mask.rules[0] if len(mask.rules) == 1 else None
    return only if isinstance(only, Causal) else None


def looks_back(mask: Mask) -> bool:
    """Whether some rule hides, as its structure tells, all keys after the query."""
    return any(
        (isinstance(rule, Causal) or (isinstance(rule, Window) and rule.right <= 0))
        and rule.start is None
        for rule in mask.rules
    )


def fill(x: Array, axis: int, size: int, **options: Any) -> Array:
    """x with an axis filled at its end up to a size; options as in `jnp.pad`."""
    axis %= x.ndim
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, size - x.shape[axis])
    return x if widths[axis] == (0, 0) else jnp.pad(x, widths, **options)


def example(mask: Mask, b: Any) -> Mask:
    """One example's rules, without a batch axis."""
    return jax.tree.map(lambda x: x[b % x.shape[0]], mask)


def block_states(mask: Mask, grid: Grid) -> Int[Array, "nq nk"]:
    """NOTHING, EVERYTHING or SOMETHING for each block of one example."""
    some = jnp.ones((grid.nq, grid.nk), bool)
    every = some & ((jnp.arange(grid.nk) + 1) * grid.bk <= grid.s)[None, :]
    for rule in mask.rules:
        rule_some, rule_every = _block_view(rule, grid)
        some, every = some & rule_some, every & rule_every
    return jnp.where(some, jnp.where(every, EVERYTHING, SOMETHING), NOTHING)


def tile(
    mask: Mask, grid: Grid, i: Any, j: Any, h0: Any, h: int
) -> Bool[Array, "#h bq bk"]:
    """What block (i, j) of one example lets through, for h heads from h0 on."""
    q0, k0 = grid.row(i), j * grid.bk
    keys = k0 + jnp.arange(grid.bk)[None, None, :]
    real = q0 + jnp.arange(grid.bq)[None, :, None] < grid.t
    allowed = real & (keys < grid.s)
    for rule in mask.rules:
        if isinstance(rule, Positional):
            at = rule.start + q0 + jnp.arange(grid.bq)[None, :, None]
            if isinstance(rule, Window):
                part = (keys >= at - rule.left) & (keys <= at + rule.right)
            elif isinstance(rule, Prefix):
                part = keys <= jnp.maximum(at, rule.length - 1)
            else:
                part = keys <= at
        elif isinstance(rule, Padding):
            part = _slice(rule.keys, k0, grid.bk)[None, None, :]
            if rule.queries is not None:
                part = part & _slice(rule.queries, q0, grid.bq)[None, :, None]
        elif isinstance(rule, Segments):
            ids = _slice(rule.queries, q0, grid.bq)[None, :, None]
            part = ids == _slice(rule.key_ids, k0, grid.bk)[None, None, :]
        else:
            at = corner(rule.array, (h0, q0, k0))
            sizes = piece(rule.array, (h, grid.bq, grid.bk))
            part = jax.lax.dynamic_slice(rule.array, at, sizes)
        allowed = allowed & part
    return allowed


def causal_edges(mask: Mask, grid: Grid, i: Any, j: Any) -> tuple[Array, Array] | None:
    """Of block (i, j): Bool[bk] keys that some query sees, Bool[bq] queries that see.

    Known without the tile where causality is the only rule; None elsewhere.
    """
    causal = lone_causal(mask)
    if causal is None:
        return None
    rows = grid.row(i) + jnp.arange(grid.bq)
    keys = j * grid.bk + jnp.arange(grid.bk)
    start = causal.start
    last = start + jnp.minimum(rows[-1], grid.t - 1)
    seen = (keys <= last) & (keys < grid.s)
    return seen, (start + rows >= keys[0]) & (rows < grid.t)


def corner(x: Array, at: tuple[Any, ...]) -> tuple[Any, ...]:
    """Where a piece of x begins: at 0 on an axis of size 1, since it broadcasts."""
    return tuple(0 if n == 1 else i for n, i in zip(x.shape, at, strict=True))


def piece(x: Array, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of a piece of x: 1 on an axis of size 1."""
    return tuple(1 if n == 1 else m for n, m in zip(x.shape, sizes, strict=True))


def flat_bias(
    bias: Array, leading: tuple[int, ...], grid: Grid
) -> Float[Array, "#b #h #t #s"]:
    """A bias with one flat batch axis, filled up to whole blocks."""
    outer = bias.shape[:-3]
    if any(n != 1 for n in outer):
        bias = jnp.broadcast_to(bias, (*leading, *bias.shape[-3:]))
    bias = bias.reshape(-1, *bias.shape[-3:])
    return _fill_plane(bias, grid)


def _fill_plane(x: Array, grid: Grid) -> Array:
    """Fills the last two axes, where they are t and s, up to whole blocks."""
    for axis, size, full in (
        (-2, grid.t, grid.nq * grid.bq),
        (-1, grid.s, grid.nk * grid.bk),
    ):
        if x.shape[axis] == size and size > 1:
            x = fill(x, axis, full)
    return x


def _slice(x: Array, start: Any, size: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(x, start, size)


def _block_view(rule: Rule, grid: Grid) -> tuple[Array, Array]:
    """Whether a block may hold something, and whether it holds everything."""
    first_k = (jnp.arange(grid.nk) * grid.bk)[None, :]
    last_k = first_k + grid.bk - 1
    if isinstance(rule, Positional):
        first_q = (rule.start + jnp.arange(grid.nq) * grid.bq)[:, None]
        last_q = first_q + grid.bq - 1
        if isinstance(rule, Window):
            low, high = first_k - last_q, last_k - first_q
            some = (high >= -rule.left) & (low <= rule.right)
            return some, (low >= -rule.left) & (high <= rule.right)
        if isinstance(rule, Prefix):
            first_q = jnp.maximum(first_q, rule.length - 1)
            last_q = jnp.maximum(last_q, rule.length - 1)
        return first_k <= last_q, last_k <= first_q
    if isinstance(rule, Padding):
        keys = rule.keys.reshape(grid.nk, grid.bk)
        some, every = keys.any(1)[None, :], keys.all(1)[None, :]
        if rule.queries is not None:
            queries = rule.queries.reshape(grid.nq, grid.bq)
            some = some & queries.any(1)[:, None]
            every = every & queries.all(1)[:, None]
        return some, every
    if isinstance(rule, Segments):
        q = rule.queries.reshape(grid.nq, grid.bq)
        k = rule.key_ids.reshape(grid.nk, grid.bk)
        low_q, high_q = q.min(1)[:, None], q.max(1)[:, None]
        low_k, high_k = k.min(1)[None, :], k.max(1)[None, :]
        some = (low_q <= high_k) & (low_k <= high_q)
        return some, (low_q == high_k) & (low_k == high_q) & (low_q == high_q)
    blocks = rule.array
    for axis, n, size in ((-2, grid.nq, grid.bq), (-1, grid.nk, grid.bk)):
        if blocks.shape[axis] == 1:
            blocks = jnp.repeat(blocks, n * size, axis=axis)
    blocks = blocks.reshape(-1, grid.nq, grid.bq, grid.nk, grid.bk)
    return blocks.any((0, 2, 4)), blocks.all((0, 2, 4))
