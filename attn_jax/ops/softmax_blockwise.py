"""Softmax attention a tile at a time: exact, in memory that grows with t, not t s.

The softmax of a row is built up over key blocks (Milakov & Gimelshein 2018, Rabe &
Staats 2021, Dao et al. 2022): a running maximum, a running sum and a running output are
enough. The backward pass keeps the output and the log-sum-exp, and computes each tile's
weights again. Exponentials are to base 2, with log2(e) folded into the queries. Tiles
are transposed, keys x rows, so that every product is a plain one.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from attn_jax.ops._block_step import LOG2_E, Inputs, Layout, Step, Visible
from attn_jax.ops._blocks import (
    Grid,
    flat_bias,
    lone_causal,
    looks_back,
    per_example,
)
from attn_jax.ops._shapes import compute_dtype
from attn_jax.ops.masks import Mask

LN_2 = 1 / LOG2_E
# Up to SHORT tokens the forward pass takes slabs of so many rows. Measured on CPU.
SHORT, SLAB = 1024, 256


def blockwise_attention(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b s g d"],
    v: Float[Array, "*b s g e"],
    *,
    mask: Mask,
    bias: Float[Array, "..."] | None,
    scale: Any,
    logit_cap: Any,
    block_size: int | None,
) -> Float[Array, "*b t h e"]:
    """`softmax_attention` in tiles; the caller has checked the arguments."""
    leading, (t, h, _) = q.shape[:-3], q.shape[-3:]
    s, g, e = v.shape[-3:]
    if 0 in (*leading, t, s, h, e):
        return jnp.zeros((*leading, t, h, e), v.dtype)
    dtype = compute_dtype(q, k, v)
    grid = Grid(t, s, *_block_sizes(t, s, block_size))
    factor, cap = jnp.asarray(scale, dtype) * LOG2_E, None
    if logit_cap is not None:
        cap = jnp.asarray(logit_cap, dtype) * LOG2_E
        factor = factor / cap
    q, k, v = (x.reshape(-1, *x.shape[-3:]) for x in (q, k, v))
    bias = None if bias is None else flat_bias(bias, leading, grid)
    layout = Layout(grid, g, h // g, 2 if g % 2 == 0 else 1, dtype)
    if block_size is None and max(t, s) <= SHORT:
        layout = layout._replace(slabs=_cut(t, s, t == s and looks_back(mask)))
    rules = per_example(mask, leading, grid)
    out = _attend(layout, Inputs(q, k, v, bias, factor, cap), rules)
    return out.reshape(*leading, t, h, e)


def _attend_primal(layout: Layout, x: Inputs, mask: Mask) -> Float[Array, "b t h e"]:
    return _forward(layout, x, mask)[0]


def _attend_fwd(layout: Layout, x: Inputs, mask: Mask) -> tuple[Array, Any]:
    out, lse = _forward(layout, x, mask)
    return out, (x, mask, out, lse)


def _attend_bwd(layout: Layout, saved: Any, d_out: Array) -> tuple[Inputs, None]:
    x, mask, out, lse = saved
    # Slabs are of the forward pass; this one goes by blocks.
    blocks = layout._replace(slabs=())
    return _backward(blocks, x, mask, out, lse, d_out), None


_attend: Any = jax.custom_vjp(_attend_primal, nondiff_argnums=(0,))
_attend.defvjp(_attend_fwd, _attend_bwd)


def _forward(layout: Layout, x: Inputs, mask: Mask) -> tuple[Array, Array]:
    """The output, and log2 of each row's sum of 2^logit."""

    def step(outs: tuple[Array, Array], n: Any) -> tuple[Any, None]:
        if layout.slabs:
            return _slabs(layout, x, mask, n, outs), None
        at = Step(layout, x, mask, n)
        q_t = _t(at.queries(x.q) * x.factor)
        k, v_t = at.keys(x.k), _t(at.keys(x.v))

        def query_block(i: Any) -> tuple[Array, Array]:
            def key_block(j: Any, rows: Rows) -> Rows:
                def visit(allowed: Any) -> Rows:
                    new = _tile(at, allowed, q_t[i], k[j], v_t[j], i, j, rows.m)
                    keep = jnp.exp2(rows.m - new.m)
                    total = rows.total * keep + new.total
                    return Rows(new.m, total, rows.acc * keep + new.acc)

                return at.by_state(i, j, visit, rows)

            m = jnp.full((layout.u, 1, layout.rows), layout.lowest, layout.dtype)
            acc = jnp.zeros((layout.u, v_t.shape[-2], layout.rows), layout.dtype)
            rows = Rows(m, jnp.zeros_like(m), acc)
            rows = jax.lax.fori_loop(*at.visible_keys(i), key_block, rows)
            return _finish(layout, rows)

        out, lse = jax.lax.map(query_block, jnp.arange(layout.grid.nq))
        return (at.put_queries(outs[0], out), at.put_queries(outs[1], lse)), None

    b, t, h, _ = x.q.shape
    out = jnp.zeros((b, t, h, x.v.shape[-1]), x.v.dtype)
    lse = jnp.zeros((b, t, h, 1), layout.dtype)
    if layout.slabs:
        layout = layout.as_one_tile()
    outs, _ = jax.lax.scan(step, (out, lse), layout.steps(b))
    return outs


def _slabs(
    layout: Layout, x: Inputs, mask: Mask, n: Any, outs: tuple[Array, Array]
) -> tuple[Array, Array]:
    """A step for short sequences: a few rows with all the keys that they may see."""
    at = Step(layout, x, mask, n)
    q, k, v_t = at.queries(x.q)[0] * x.factor, at.keys(x.k)[0], _t(at.keys(x.v)[0])
    q = q.reshape(layout.u, layout.r, layout.grid.t, q.shape[-1])
    # Below the diagonal each row sees a key, and the last one sees them all.
    edges = layout.slabs[0][2] == layout.grid.s or lone_causal(mask) is None
    slabs = []
    for start, rows, keys in layout.slabs:
        q_t = _t(q[:, :, start : start + rows].reshape(layout.u, -1, q.shape[-1]))
        part = at.part(start, rows, keys)
        allowed = part.visible(0, 0, edges=edges) if part.hides else None
        new = _tile(part, allowed, q_t, k[:, :keys], v_t[..., :keys], 0, 0, None)
        slab = (a.reshape(*q.shape[:2], rows, -1) for a in _finish(layout, new))
        slabs.append(tuple(slab))
    joined = (jnp.concatenate(parts, axis=2) for parts in zip(*slabs, strict=True))
    out, lse = (a.reshape(1, layout.u, layout.rows, -1) for a in joined)
    return at.put_queries(outs[0], out), at.put_queries(outs[1], lse)


class Rows(NamedTuple):
    """Of rows so far: the greatest logit m, the sum of 2^(logit - m), that times v."""

    m: Float[Array, "u 1 rows"]
    total: Float[Array, "u 1 rows"]
    acc: Float[Array, "u e rows"]


def _tile(
    at: Step, allowed: Any, q_t: Any, k: Any, v_t: Any, i: Any, j: Any, m: Any
) -> Rows:
    """What one tile adds to its rows, whose greatest logit so far was m."""
    dots = _dot(_seen(allowed, k), _seeing(allowed, q_t))
    logits, _ = at.logits(dots, allowed, i, j)
    logits = _hide(allowed, logits, at.layout.lowest)
    greatest = logits.max(-2, keepdims=True)
    m = greatest if m is None else jnp.maximum(m, greatest)
    # Where a row has seen nothing, m is the lowest number, and 2^(lowest - m) were 1.
    p = jnp.exp2(logits - jnp.where(m > at.layout.lowest, m, 0))
    return Rows(m, p.sum(-2, keepdims=True), _dot(_seen(allowed, v_t, axis=-1), p))


def _finish(layout: Layout, rows: Rows) -> tuple[Array, Array]:
    """Output and log-sum-exp; 0 and "blind" for a row that saw nothing."""
    some = rows.total > 0
    total = jnp.where(some, rows.total, 1)
    lse = jnp.where(some, rows.m + jnp.log2(total), layout.blind)
    return _t(rows.acc / total), _t(lse)


def _backward(
    layout: Layout, x: Inputs, mask: Mask, out: Array, lse: Array, d_out: Array
) -> Inputs:
    """Gradients by tiles, key blocks outside.

    p = 2^(l - lse),  ds = p (v do^T - do.out),  dv = p do,  dk = ds q,  dq^T = k^T ds
    """

    def step(grads: Inputs, n: Any) -> tuple[Inputs, None]:
        at = Step(layout, x, mask, n)
        q, k, v = at.queries(x.q), at.keys(x.k), at.keys(x.v)
        lse = at.queries(lse_all, layout.blind)
        do = jnp.where(lse < layout.blind, at.queries(d_out), 0)
        delta_t = _t(jnp.sum(do * at.queries(out), -1, keepdims=True))
        q_t, do_t, lse_t = _t(q * x.factor), _t(do), _t(lse)

        def key_block(carry: Any, j: Any) -> Any:
            dq_t, bias_and_cap = carry
            k_j, v_j = k[j], v[j]

            def query_block(i: Any, carry: Any) -> Any:
                def visit(allowed: Any) -> Any:
                    q_i, k_s = _seeing(allowed, q_t[i]), _seen(allowed, k_j)
                    logits, tanh = at.logits(_dot(k_s, q_i), allowed, i, j)
                    p = _hide(allowed, jnp.exp2(logits - lse_t[i]), 0)
                    ds = p * (_dot(_seen(allowed, v_j), do_t[i]) - delta_t[i])
                    ds = _hide(allowed, ds, 0)
                    extra = at.bias_and_cap_gradient(ds, tanh)
                    ds = ds if tanh is None else ds * (1 - tanh**2) * x.cap * LN_2
                    return (_dot(_t(k_s), ds), _dot(ds, _t(q_i)), _dot(p, do[i]), extra)

                dq_t, dk, dv, bias_and_cap = carry
                dq_i, dk_i, dv_i, extra = at.by_state(i, j, visit, None)
                dq_t = dq_t.at[i].add(dq_i)
                bias_and_cap = at.add_bias_and_cap(bias_and_cap, extra, i, j)
                return dq_t, dk + dk_i, dv + dv_i, bias_and_cap

            carry = (dq_t, jnp.zeros_like(k_j), jnp.zeros_like(v_j), bias_and_cap)
            dq_t, dk, dv, bias_and_cap = jax.lax.fori_loop(
                *at.visible_queries(j), query_block, carry
            )
            return (dq_t, bias_and_cap), (dk, dv)

        carry = (jnp.zeros_like(q_t), (grads.bias, grads.cap))
        (dq_t, (d_bias, d_cap)), (dk, dv) = jax.lax.scan(
            key_block, carry, jnp.arange(layout.grid.nk)
        )
        dq = _t(dq_t)
        # With a cap, logits = cap tanh(factor q.k); without, 2^(factor q.k) = e^(...).
        unit = 1 if x.cap is not None else LN_2
        return Inputs(
            at.put_queries(grads.q, dq * (x.factor * unit)),
            at.put_keys(grads.k, dk * unit),
            at.put_keys(grads.v, dv),
            d_bias,
            grads.factor + unit * jnp.sum(q * dq),
            d_cap,
        ), None

    lse_all = lse
    zeros = jax.tree.map(jnp.zeros_like, x)
    if x.bias is not None:
        zeros = zeros._replace(bias=zeros.bias.astype(layout.dtype))
    grads, _ = jax.lax.scan(step, zeros, layout.steps(x.q.shape[0]))
    return jax.tree.map(lambda grad, a: grad.astype(a.dtype), grads, x)


def _block_sizes(t: int, s: int, block_size: int | None) -> tuple[int, int]:
    """Queries and keys a tile: measured on CPU."""
    size = block_size or (512 if max(t, s) > 512 else 128)
    return min(size, t), min(size, s)


def _cut(t: int, s: int, triangle: bool) -> tuple[tuple[int, int, int], ...]:
    """Slabs: first row, rows, and how many keys from the first on they may see."""
    sizes = [(start, min(SLAB, t - start)) for start in range(0, t, SLAB)]
    return tuple((i, n, i + n if triangle else s) for i, n in sizes)


def _dot(a: Float[Array, "u m k"], b: Float[Array, "u k n"]) -> Float[Array, "u m n"]:
    return jax.lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,))))


def _t(x: Array) -> Array:
    return jnp.swapaxes(x, -1, -2)


def _hide(allowed: Visible | None, tile: Array, value: Any) -> Array:
    return tile if allowed is None else allowed.hide(tile, value)


def _seen(allowed: Visible | None, keys: Array, axis: int = -2) -> Array:
    """Keys with 0 where no row of the tile sees them: they may hold NaN."""
    if allowed is None or allowed.keys is None:
        return keys
    return jnp.where(allowed.keys if axis == -2 else _t(allowed.keys), keys, 0)


def _seeing(allowed: Visible | None, q_t: Float[Array, "u d rows"]) -> Array:
    """Rows with 0 where they see no key of the tile."""
    if allowed is None or allowed.rows is None:
        return q_t
    return jnp.where(allowed.rows, q_t, 0)
