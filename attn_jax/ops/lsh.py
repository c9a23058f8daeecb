"""LSH attention (Reformer, Kitaev et al. 2020): queries see keys that hash alike."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from attn_jax.ops._blocks import Grid, fill, per_example
from attn_jax.ops._entry import op
from attn_jax.ops._linear_inputs import keep
from attn_jax.ops._linear_masks import per_token, real_tokens
from attn_jax.ops._lsh_buckets import (
    Runs,
    Sorted,
    draw_rotations,
    find_runs,
    hash_tokens,
    meet,
    sort_tokens,
)
from attn_jax.ops._mask_rules import Dense, Positional, Segments
from attn_jax.ops._masking import check_fits
from attn_jax.ops._shapes import check_heads, compute_dtype
from attn_jax.ops._vectors import unit
from attn_jax.ops.debugging import report_blind
from attn_jax.ops.masks import Mask, UnsupportedMaskError, as_mask

NOWHERE = -9  # the chunk of a place that no token fills: none is near it


@op("num_rounds", "bucket_size")
def lsh_attention(
    qk: Float[Array, "*b t h d"],
    v: Float[Array, "*b t g e"],
    *,
    rng: Key[Array, ""],
    num_rounds: int,
    bucket_size: int,
    mask: Mask | None = None,
) -> Float[Array, "*b t h e"]:
    """Attention of tokens to those that fall into the same or the next lower chunk.

        y_i = sum_{j in S_i} w_ij v_j,   w_ij = exp(l_ij) / sum_{j' in S_i} exp(l_ij')
        l_ij = q_i . k_j / sqrt(d),   q_i = qk_i,   k_j = qk_j / |qk_j|
        S_i = union over rounds r of {j != i allowed : c_r(j) is c_r(i) or c_r(i) - 1}

    and S_i = {i} where that is empty and the mask lets i see itself. In round r the n
    real tokens of a row (of a segment) are sorted by their bucket b_r, inside one by
    position, and cut into chunks c_r of bucket_size tokens:

        b_r(i) = argmax [k_i R_r; -k_i R_r],   R_r: d x m standard normal numbers,
        2 m buckets, m = ceil(n / (2 bucket_size))

    Each round is a softmax; they are added with the weights of their normalisers, and
    a pair that meets in several rounds counts once.

    Reduces to `softmax_attention` of qk and k that leaves out the diagonal, when
    n <= bucket_size: one chunk holds everything.

    All tokens take part in the sorting. Under a causal mask no later value or key
    contributes to an output or its gradient, but a later qk can move an earlier token
    into another chunk: the output is causal, though not to the bit, and token by token
    it can't be computed. Padding takes part in nothing. The hash has no gradient, and
    where rounding moves a token into another bucket, outputs jump.

    Cost: O(num_rounds t (bucket_size (d + e + num_rounds) + t d / bucket_size)) time a
    head, O(num_rounds t (bucket_size + d + e + num_rounds)) memory. num_rounds^2 is of
    counting the rounds in which a pair meets. t^2 is of hashing: the buckets are as
    many as t / bucket_size, so that only a bucket_size that grows with the square root
    of t keeps it near t^1.5. Segments cost twice the chunks.

    Reference: Kitaev et al. 2020, section 2. As in its equations, not in its code, the
    first chunk has none before it. A chunk is as large as a bucket is on average.

    Args:
      qk: queries that are the keys, too, but for their length.
      v: values; g divides h.
      rng: typed key of the rotations; rows share them, heads and rounds don't.
      num_rounds: hashes, each with a rotation of its own.
      bucket_size: tokens a chunk.
      mask: any but dense. A token that padding(keys) hides is no query either, its
        output is 0; segments have the same ids for queries and keys.

    Returns:
      One vector a query and head, in the dtype of v, computed in at least float32.

    Raises:
      UnsupportedMaskError: a dense mask, or segments with ids of their own for keys.
      ValueError, TypeError: sizes, shapes, dtypes or a mask that do not fit.
    """
    _check_tokens(qk, v)
    mask, leading, (t, h, d) = as_mask(mask), qk.shape[:-3], qk.shape[-3:]
    refuse(mask)
    check_fits(mask, leading, h, t, t)
    report_blind(mask, leading, h, t, t)
    g, e = v.shape[-2:]
    if 0 in (*leading, t, h, e):
        return jnp.zeros((*leading, t, h, e), v.dtype)
    real, queries = real_tokens(mask, leading, t, t)
    segments = mask.find(Segments)
    ids = [per_token(rule.queries, leading, t, "segments") for rule in segments]
    rotations = None
    if t > bucket_size:  # else every round is the same, whatever the hash
        columns = -(-t // (2 * bucket_size))
        width = min(columns, bucket_size)
        rotations = draw_rotations(rng, columns, width, num_rounds, h, d)

    dtype = compute_dtype(qk, v)
    values = jnp.repeat(keep(v, real).astype(dtype), h // g, axis=-2)
    rows = keep(qk, real).astype(dtype), values, find_runs(real, ids, leading, t)
    qk, values, runs = jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[len(leading) :]), rows
    )
    rules = _positional(mask, leading, t)
    one = partial(_attend, size=min(bucket_size, t), packed=bool(ids))
    heads = jax.vmap(one, in_axes=(1, 1, None, None, 3), out_axes=1)
    examples = jax.vmap(heads, in_axes=(0, 0, 0, 0, None))
    out = examples(qk, values, runs, rules, rotations)
    return keep(out.reshape(*leading, t, h, e), queries).astype(v.dtype)


def _attend(
    qk: Float[Array, "t d"],
    v: Float[Array, "t e"],
    runs: Runs,
    rules: tuple[Positional, ...],
    rotations: Float[Array, "blocks c r d"] | None,
    *,
    size: int,
    packed: bool,
) -> Float[Array, "t e"]:
    """One head of one row; without rotations, one round without a hash."""
    k = jax.vmap(unit)(qk)
    if rotations is None:
        buckets = jnp.zeros((1, len(qk)), jnp.int32)
    else:
        half = -(-runs.size // (2 * size))
        buckets = hash_tokens(jax.lax.stop_gradient(k), rotations, half)
    rounds = jax.vmap(partial(sort_tokens, runs=runs, size=size))(buckets)
    q = qk * max(qk.shape[-1], 1) ** -0.5
    # A chunk of a run lies in two of the whole order where that does not begin the run.
    back = (2, 1, 0, -1) if packed else (1, 0)
    attend = partial(_one_round, q, k, v, rules, rounds.chunk, size=size, back=back)
    peak, total, acc = jax.vmap(attend)(rounds)

    greatest = jnp.max(peak, axis=0)
    weight = jnp.exp(peak - greatest[None])
    total = jnp.sum(weight * total, axis=0)[:, None]
    y = jnp.sum(weight[..., None] * acc, axis=0) / jnp.where(total > 0, total, 1)
    here = jnp.arange(len(qk), dtype=jnp.int32)
    alone = jnp.where(_allowed(rules, here, here)[:, None], v, 0)
    return jnp.where(total > 0, y, alone)


def _one_round(
    q: Float[Array, "t d"],
    k: Float[Array, "t d"],
    v: Float[Array, "t e"],
    rules: tuple[Positional, ...],
    chunks: Int[Array, "r t"],
    this: Sorted,
    *,
    size: int,
    back: tuple[int, ...],
) -> tuple[Float[Array, "t"], Float[Array, "t"], Float[Array, "t e"]]:
    """Each token's greatest logit m in a round, sum of e^(l - m), and that times v.

    Each term is divided by the number of rounds in which its pair meets.
    """
    t = len(q)

    def cut(x: Array, filled: int = 0) -> Shaped[Array, "n c ..."]:
        """Sorted, in chunks, the last one filled."""
        x = fill(x[this.order], 0, -(-t // size) * size, constant_values=filled)
        return x.reshape(-1, size, *x.shape[1:])

    def beside(x: Array, filled: int = 0) -> Shaped[Array, "n w ..."]:
        return _beside(cut(x, filled), back, filled)

    i, j = (f(jnp.arange(t, dtype=jnp.int32), t) for f in (cut, beside))
    i, j = i[:, :, None], j[:, None, :]
    own, others = (f(this.chunk, NOWHERE) for f in (cut, beside))
    seen = meet(own[:, :, None], others[:, None, :]) & (i != j) & _allowed(rules, i, j)
    own, others = (f(chunks.T, NOWHERE) for f in (cut, beside))
    times = jnp.sum(meet(own[:, :, None], others[:, None, :]), axis=-1)

    lowest = jnp.finfo(q.dtype).min
    logits = jnp.einsum("ncd,nwd->ncw", cut(q), beside(k))
    logits = jnp.where(seen, logits, lowest)
    peak = jax.lax.stop_gradient(jnp.max(logits, axis=-1))
    terms = jnp.exp(logits - peak[..., None]) / jnp.maximum(times, 1)
    terms = jnp.where(seen, terms, 0)
    sums = peak, jnp.sum(terms, -1), jnp.einsum("ncw,nwe->nce", terms, beside(v))
    peak, total, acc = (x.reshape(-1, *x.shape[2:])[this.place] for x in sums)
    return peak, total, acc


def _beside(
    x: Shaped[Array, "n c ..."], back: tuple[int, ...], filled: int
) -> Shaped[Array, "n w ..."]:
    """Each chunk with those so many before it; `filled` where there is none."""
    n = len(x)
    back = tuple(steps for steps in back if abs(steps) < n)
    before, after = max(back), -min(back)
    widths = [(before, after)] + [(0, 0)] * (x.ndim - 1)
    x = jnp.pad(x, widths, constant_values=filled)
    return jnp.concatenate([x[before - steps :][:n] for steps in back], axis=1)


def _positional(mask: Mask, leading: tuple[int, ...], t: int) -> Any:
    """The rules on positions, with one number an example on a flat axis."""
    rules = tuple(rule for rule in mask.rules if isinstance(rule, Positional))
    flat = per_example(Mask(rules), leading, Grid(t, t, t, t))
    rows = math.prod(leading)
    spread = jax.tree.map(lambda x: jnp.broadcast_to(x, (rows, *x.shape[1:])), flat)
    return spread.rules


def _allowed(rules: tuple[Positional, ...], i: Any, j: Any) -> Bool[Array, "..."]:
    """Whether the rules on positions of one example let token i see token j."""
    allowed = jnp.ones(jnp.broadcast_shapes(i.shape, j.shape), bool)
    for rule in rules:
        allowed &= rule.allows(rule.start + i, j)
    return allowed


def refuse(mask: Mask) -> None:
    """Raises for rules that chunks of a sorted order can't honour."""
    if mask.find(Dense):
        raise UnsupportedMaskError(
            "mask: LSH attention cannot honour dense(...): it keeps no array of t x s; "
            "expected full, causal, window, prefix, padding or segments; use "
            "softmax_attention for this mask"
        )
    if any(rule.keys is not None for rule in mask.find(Segments)):
        raise UnsupportedMaskError(
            "mask: got segments(queries, keys) for LSH attention, whose queries are "
            "the keys; expected the same ids for both, segments(ids)"
        )


def _check_tokens(qk: Array, v: Array) -> None:
    check_heads("v", v, "qk", qk)
    if v.shape[-3] != qk.shape[-3]:
        raise ValueError(
            f"v: got {v.shape[-3]} tokens (shape {v.shape}) for qk's {qk.shape[-3]} "
            f"(shape {qk.shape}); expected the values of the same tokens in the layout "
            "*b t g e: queries are keys, so there is no cross-attention"
        )
