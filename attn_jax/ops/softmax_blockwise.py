"""Softmax attention a tile at a time: exact, in memory that grows with t, not t s.

The softmax of a row is built up over key blocks (Milakov & Gimelshein 2018, Rabe &
Staats 2021, Dao et al. 2022): a running maximum, a running sum and a running output are
enough. The backward pass keeps the output and the log-sum-exp, and computes each tile's
weights again. Exponentials are to base 2, with log2(e) folded into the queries. Tiles
are transposed, keys x rows, so that every product is a plain one.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from attn_jax.ops._block_step import LOG2_E, Inputs, Layout, Step, Visible
from attn_jax.ops._blocks import Grid, flat_bias, per_example
from attn_jax.ops._shapes import compute_dtype
from attn_jax.ops.masks import Mask

LN_2 = 1 / LOG2_E


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
    return _backward(layout, x, mask, out, lse, d_out), None


_attend: Any = jax.custom_vjp(_attend_primal, nondiff_argnums=(0,))
_attend.defvjp(_attend_fwd, _attend_bwd)


def _forward(layout: Layout, x: Inputs, mask: Mask) -> tuple[Array, Array]:
    """The output, and log2 of each row's sum of 2^logit."""
    lowest = jnp.finfo(layout.dtype).min

    def step(outs: tuple[Array, Array], n: Any) -> tuple[Any, None]:
        at = Step(layout, x, mask, n)
        q_t = _t(at.queries(x.q) * x.factor)
        k, v = at.keys(x.k), at.keys(x.v)

        def query_block(i: Any) -> tuple[Array, Array]:
            def key_block(j: Any, carry: Any) -> Any:
                def visit(allowed: Any) -> Any:
                    m, total, acc = carry
                    dots = _dot(_seen(allowed, k[j]), _seeing(allowed, q_t[i]))
                    logits, _ = at.logits(dots, allowed, i, j)
                    logits = _hide(allowed, logits, lowest)
                    m_new = jnp.maximum(m, logits.max(-2, keepdims=True))
                    p = _hide(allowed, jnp.exp2(logits - m_new), 0)
                    keep = jnp.exp2(m - m_new)
                    total = total * keep + p.sum(-2, keepdims=True)
                    return m_new, total, acc * keep + _dot(_t(_seen(allowed, v[j])), p)

                return at.by_state(i, j, visit, carry)

            m = jnp.full((layout.u, 1, layout.rows), lowest, layout.dtype)
            acc = jnp.zeros((layout.u, v.shape[-1], layout.rows), layout.dtype)
            carry = (m, jnp.zeros_like(m), acc)
            m, total, acc = jax.lax.fori_loop(*at.visible_keys(i), key_block, carry)
            some = total > 0
            total = jnp.where(some, total, 1)
            lse = jnp.where(some, m + jnp.log2(total), layout.blind)
            return _t(acc / total), _t(lse)

        out, lse = jax.lax.map(query_block, jnp.arange(layout.grid.nq))
        return (at.put_queries(outs[0], out), at.put_queries(outs[1], lse)), None

    b, t, h, _ = x.q.shape
    out = jnp.zeros((b, t, h, x.v.shape[-1]), x.v.dtype)
    lse = jnp.zeros((b, t, h, 1), layout.dtype)
    outs, _ = jax.lax.scan(step, (out, lse), layout.steps(b))
    return outs


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


def _dot(a: Float[Array, "u m k"], b: Float[Array, "u k n"]) -> Float[Array, "u m n"]:
    return jax.lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,))))


def _t(x: Array) -> Array:
    return jnp.swapaxes(x, -1, -2)


def _hide(allowed: Visible | None, tile: Array, value: Any) -> Array:
    return tile if allowed is None else allowed.hide(tile, value)


def _seen(allowed: Visible | None, keys: Float[Array, "u bk f"]) -> Array:
    """Keys with 0 where no row of the tile sees them: they may hold NaN."""
    return keys if allowed is None else jnp.where(allowed.keys, keys, 0)


def _seeing(allowed: Visible | None, q_t: Float[Array, "u d rows"]) -> Array:
    """Rows with 0 where they see no key of the tile."""
    return q_t if allowed is None else jnp.where(allowed.rows, q_t, 0)
