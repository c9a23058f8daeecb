"""One step of blockwise attention: a few heads of one example, cut into blocks."""

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from attn_jax.ops._blocks import (
    Grid,
    block_states,
    causal_edges,
    corner,
    example,
    fill,
    piece,
    tile,
)
from attn_jax.ops.masks import Mask

LOG2_E = 1.4426950408889634


class Layout(NamedTuple):
    """Static sizes. A step takes u key/value heads, each read by r query heads.

    slabs: of the forward pass of a short sequence, (first row, rows, keys) of each.
    """

    grid: Grid
    g: int
    r: int
    u: int
    dtype: Any
    slabs: tuple[tuple[int, int, int], ...] = ()

    @property
    def blind(self) -> float:
        """The log-sum-exp of a row that sees nothing: 2 to minus it is 0."""
        return float(jnp.finfo(self.dtype).max) / 2

    @property
    def lowest(self) -> float:
        return float(jnp.finfo(self.dtype).min)

    def as_one_tile(self) -> "Layout":
        """For slabs: one block, and as many heads a step as fill a tile well."""
        t, s = self.grid.t, self.grid.s
        entries = max(self.r * rows * keys for _, rows, keys in self.slabs)
        fits = (u for u in (4, 2) if self.g % u == 0 and u * entries <= 2**19)
        return self._replace(grid=Grid(t, s, t, s), u=next(fits, self.u))

    @property
    def rows(self) -> int:
        """Rows of a tile: the block's queries, for every query head of a group."""
        return self.r * self.grid.bq

    def steps(self, b: int) -> Array:
        return jnp.arange(b * (self.g // self.u))


class Inputs(NamedTuple):
    """Arrays with one flat batch axis."""

    q: Float[Array, "b t h d"]
    k: Float[Array, "b s g d"]
    v: Float[Array, "b s g e"]
    bias: Float[Array, "#b #h #t #s"] | None
    factor: Float[Array, ""]  # of the dot products
    cap: Any  # Float[Array, ""], to base 2, or None


class Visible(NamedTuple):
    """A tile that some of is visible: which keys to some row, which rows see some.

    None where each key is visible to some row and each row sees some key.
    """

    tile: Bool[Array, "#u bk rows"]
    keys: Bool[Array, "#u bk 1"] | None
    rows: Bool[Array, "#u 1 rows"] | None

    def hide(self, x: Array, value: Any) -> Array:
        return jnp.where(self.tile, x, value)


class Step:
    """The slices that step n works on. Tiles are transposed: keys x rows."""

    def __init__(self, layout: Layout, x: Inputs, mask: Mask, n: Any):
        groups = layout.g // layout.u
        self.layout, self.grid, self.x = layout, layout.grid, x
        self.b, self.g0 = n // groups, (n % groups) * layout.u
        self.h0 = self.g0 * layout.r
        self.rules = example(mask, self.b)
        self.hides = bool(mask.rules) or self.grid.s % self.grid.bk > 0
        # A slab is computed whatever it holds; its rules are filled for other blocks.
        by_blocks = self.hides and not layout.slabs
        self.states = block_states(self.rules, self.grid) if by_blocks else None

    def part(self, first: int, rows: int, keys: int) -> "Step":
        """The same for some rows from `first` on, and for the first keys: one block."""
        part = copy(self)
        part.grid = self.grid._replace(bq=rows, bk=keys, first=first)
        part.layout = self.layout._replace(grid=part.grid)
        return part

    def queries(
        self, a: Float[Array, "b t h f"], filled: float = 0.0
    ) -> Float[Array, "nq u rows f"]:
        """The step's queries in blocks; the last block is filled with a number."""
        u, r, grid = self.layout.u, self.layout.r, self.grid
        a = self._take(a, self.h0, u * r, grid.nq * grid.bq, filled)
        a = a.reshape(grid.nq, grid.bq, u, r, a.shape[-1])
        return jnp.moveaxis(a, 1, 3).reshape(grid.nq, u, r * grid.bq, a.shape[-1])

    def keys(self, a: Float[Array, "b s g f"]) -> Float[Array, "nk u bk f"]:
        a = self._take(a, self.g0, self.layout.u, self.grid.nk * self.grid.bk)
        a = a.reshape(self.grid.nk, self.grid.bk, *a.shape[1:])
        return jnp.swapaxes(a, 1, 2)

    def put_queries(self, a: Array, blocks: Float[Array, "nq u rows f"]) -> Array:
        """Writes what `queries` would read."""
        u, r, grid = self.layout.u, self.layout.r, self.grid
        blocks = blocks.reshape(grid.nq, u, r, grid.bq, blocks.shape[-1])
        blocks = jnp.moveaxis(blocks, 3, 1)
        return self._put(a, blocks.reshape(-1, u * r, blocks.shape[-1]), self.h0)

    def put_keys(self, a: Array, blocks: Float[Array, "nk u bk f"]) -> Array:
        """Writes what `keys` would read."""
        blocks = jnp.swapaxes(blocks, 1, 2)
        blocks = blocks.reshape(-1, self.layout.u, blocks.shape[-1])
        return self._put(a, blocks, self.g0)

    def by_state(
        self, i: Any, j: Any, visit: Callable[[Any], Any], nothing: Any
    ) -> Any:
        """visit(None) where all of block (i, j) is visible, visit(Visible) where some.

        nothing: what stands for a block without anything; None is zeros.
        """
        if self.states is None:
            return visit(None)
        if nothing is None:
            shapes = jax.eval_shape(lambda: visit(None))
            nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
        return jax.lax.switch(
            self.states[i, j],
            (
                lambda: nothing,
                lambda: visit(None),
                lambda: visit(self.visible(i, j)),
            ),
        )

    def visible_keys(self, i: Any) -> tuple[Any, Any]:
        """First and one past the last key block that block i of queries may see."""
        if self.states is None:
            return 0, self.grid.nk
        return _span(self.states[i] > 0)

    def visible_queries(self, j: Any) -> tuple[Any, Any]:
        if self.states is None:
            return 0, self.grid.nq
        return _span(self.states[:, j] > 0)

    def logits(
        self, dots: Float[Array, "u bk rows"], allowed: Any, i: Any, j: Any
    ) -> tuple[Float[Array, "u bk rows"], Float[Array, "u bk rows"] | None]:
        """Logits to base 2, and the tanh of the cap where there is one."""
        tanh = None
        if self.x.cap is not None:
            # A hidden one may have overflowed to NaN, which the slope would keep.
            dots = dots if allowed is None else allowed.hide(dots, 0)
            tanh = jnp.tanh(dots)
            dots = self.x.cap * tanh
        if self.x.bias is not None:
            dots = dots + LOG2_E * self._bias(self.x.bias, i, j)
        return dots, tanh

    def bias_and_cap_gradient(
        self, ds: Float[Array, "u bk rows"], tanh: Any
    ) -> tuple[Any, Any]:
        """A tile's share of the gradients of bias and cap, None where there is none."""
        d_bias = d_cap = None
        if self.x.bias is not None:
            u, r, grid = self.layout.u, self.layout.r, self.grid
            d_bias = ds.reshape(u, grid.bk, r, grid.bq).transpose(0, 2, 3, 1)
            d_bias = d_bias.reshape(1, u * r, grid.bq, grid.bk)
            axes = tuple(a for a in range(1, 4) if self.x.bias.shape[a] == 1)
            d_bias = jnp.sum(d_bias, axes, keepdims=True)
        if tanh is not None:
            d_cap = jnp.sum(ds * tanh) / LOG2_E
        return d_bias, d_cap

    def add_bias_and_cap(
        self, total: tuple[Any, Any], share: tuple[Any, Any], i: Any, j: Any
    ) -> tuple[Any, Any]:
        """Adds a tile's share where it belongs."""
        d_bias, d_cap = total
        if d_bias is not None:
            start = self._corner(d_bias, i, j)
            old = jax.lax.dynamic_slice(d_bias, start, share[0].shape)
            d_bias = jax.lax.dynamic_update_slice(d_bias, old + share[0], start)
        return d_bias, None if d_cap is None else d_cap + share[1]

    def _bias(self, bias: Array, i: Any, j: Any) -> Float[Array, "u bk rows"]:
        u, r, grid = self.layout.u, self.layout.r, self.grid
        sizes = piece(bias, (1, u * r, grid.bq, grid.bk))
        part = jax.lax.dynamic_slice(bias, self._corner(bias, i, j), sizes)[0]
        part = jnp.broadcast_to(part, (u * r, grid.bq, grid.bk))
        return _to_tile(part.reshape(u, r, grid.bq, grid.bk)).astype(self.layout.dtype)

    def _corner(self, bias: Array, i: Any, j: Any) -> tuple[Any, ...]:
        at = (self.b, self.h0, self.grid.row(i), j * self.grid.bk)
        return corner(bias, at)

    def visible(self, i: Any, j: Any, *, edges: bool = True) -> Visible:
        u, r = self.layout.u, self.layout.r
        allowed = tile(self.rules, self.grid, i, j, self.h0, u * r)
        if allowed.shape[0] == 1:
            allowed = jnp.broadcast_to(allowed[None], (1, r, *allowed.shape[1:]))
        else:
            allowed = allowed.reshape(u, r, *allowed.shape[1:])
        allowed = _to_tile(allowed)
        if not edges:
            return Visible(allowed, None, None)
        known = causal_edges(self.rules, self.grid, i, j)
        if known is None:
            keys, rows = (jnp.any(allowed, axis, keepdims=True) for axis in (-1, -2))
        else:
            keys, rows = known[0][None, :, None], jnp.tile(known[1], r)[None, None, :]
        return Visible(allowed, keys, rows)

    def _take(
        self, a: Array, head: Any, heads: int, length: int, filled: float = 0.0
    ) -> Array:
        sizes = (1, a.shape[1], heads, a.shape[3])
        a = jax.lax.dynamic_slice(a, (self.b, 0, head, 0), sizes)[0]
        a = a.astype(self.layout.dtype)
        return fill(a, 0, length, constant_values=filled)

    def _put(self, a: Array, rows: Array, head: Any) -> Array:
        rows = rows[: a.shape[1]].astype(a.dtype)[None]
        return jax.lax.dynamic_update_slice(a, rows, (self.b, 0, head, 0))


def _to_tile(x: Array) -> Array:
    """u r bq bk -> u bk (r bq)."""
    u, r, bq, bk = x.shape
    return x.transpose(0, 3, 1, 2).reshape(u, bk, r * bq)


def _span(some: Bool[Array, "n"]) -> tuple[Any, Any]:
    n = some.shape[0]
    first = jnp.argmax(some)
    last = n - jnp.argmax(some[::-1])
    return first, jnp.where(jnp.any(some), last, first)
