"""Attention from a part of its scores (Bhojanapalli et al. 2021, 2106.08823).

Scores of query-key pairs lie near a space of few dimensions, so that a few of a row say
what the others are: r are computed, the rest is a linear map of them. Selected keys and
map belong to positions; `attn_jax.analysis.eigen` finds them in a model's scores.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from attn_jax.ops._entry import check_options, op
from attn_jax.ops._masking import allowed_for, hide_keys, hide_queries
from attn_jax.ops._partial_checks import check_axes, check_map, check_selected
from attn_jax.ops._rows import attend_rows
from attn_jax.ops._shapes import (
    check_array,
    check_floating,
    check_qkv,
    compute_dtype,
    lift,
)
from attn_jax.ops.masks import Mask
from attn_jax.ops.softmax import dot_product_logits


def partial_logits(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b s g d"],
    selected: Int[Array | np.ndarray, "..."],
    *,
    scale: float | Float[Array, ""] | None = None,
) -> Float[Array, "*b h t r"]:
    """Scores of the selected keys alone.

        p_ia = scale q_i . k_{S_ia}

    Reduces to all scores when every query selects the keys 0 .. s - 1.

    Cost: O(h t r d) time and O(h t r) memory per example where all queries select the
    same keys. Keys of their own would each have to be fetched, r d numbers a query:
    where that is more than the s numbers of its whole row, the row is computed and r of
    it are kept, which was up to eight times as fast on two cores.

    Reference: Bhojanapalli et al. 2021, 2106.08823.

    Args:
      q: queries.
      k: keys; g divides h.
      selected: S, which keys each query is compared with: Int[t r], or Int[r], the
        same for all. Concrete ones are checked; under jit a number outside 0 .. s - 1
        gives NaN.
      scale: multiplies the dot products; None is d**-0.5.

    Returns:
      Scores in at least float32.

    Raises:
      ValueError, TypeError: shapes or dtypes that do not fit; a key that is not there.
    """
    check_options({"scale": scale})
    check_qkv(q, k)
    t, s = q.shape[-3], k.shape[-3]
    check_selected(selected, t, s)
    return _partial_logits(q, k, jnp.asarray(selected), scale)


@jax.jit
def _partial_logits(q, k, selected, scale):
    there = (selected >= 0) & (selected < k.shape[-3])
    logits = scores_at(q, k, jnp.where(there, selected, 0), scale)
    return jnp.where(lift(there, logits.ndim), logits, jnp.nan)


@op()
def reconstruct_logits(
    partial: Float[Array, "*b h t r"],
    reconstruction: Float[Array, "#h t s r"],
    offset: Float[Array, "#h t s"],
) -> Float[Array, "*b h t s"]:
    """Every score of a row from the few that were computed.

        l_ij = sum_a R_ija p_ia + c_ij

    Reduces to p when R_i is the identity and c = 0. There is no mask here: what a
    masked key has to do with p is settled before, and what is made of it after.

    Cost: O(h t s r) time and O(h t s) memory per example.

    Reference: Bhojanapalli et al. 2021, 2106.08823: R is fitted by least squares, or
    learnt.

    Args:
      partial: p, the scores of r selected keys.
      reconstruction: R, one s x r matrix a query position; one head serves all.
      offset: c.

    Returns:
      Logits in at least float32.

    Raises:
      ValueError, TypeError: shapes or dtypes that do not fit.
    """
    if partial.ndim < 3:
        raise ValueError(
            f"partial: got shape {partial.shape}; expected at least 3 axes, *b h t r"
        )
    check_floating("partial", partial)
    check_map(partial.shape[-3:], reconstruction, offset)
    dtype = compute_dtype(partial, reconstruction, offset)
    partial, matrix = partial.astype(dtype), reconstruction.astype(dtype)
    if matrix.shape[0] == 1:
        logits = jnp.einsum("...htr,tsr->...hts", partial, matrix[0])
    else:
        logits = jnp.einsum("...htr,htsr->...hts", partial, matrix)
    return logits + lift(offset.astype(dtype), logits.ndim)


def partial_attention(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b s g d"],
    v: Float[Array, "*b s g e"],
    *,
    selected: Int[Array | np.ndarray, "..."],
    reconstruction: Float[Array, "#h t s r"],
    offset: Float[Array, "#h t s"],
    mean: Float[Array, "#h t r"] | None = None,
    mask: Mask | None = None,
    scale: float | Float[Array, ""] | None = None,
) -> Float[Array, "*b t h e"]:
    """Attention whose logits are reconstructed from the scores of selected keys.

        y_i = sum_j w_ij v_j,   w_i = softmax_j(sum_a R_ija p_ia + c_ij)
        p_ia = scale q_i . k_{S_ia} where i may see S_ia, else mean_ia

    A masked key has no say in the reconstruction, and the mask rules out masked logits
    after it. Reduces to `softmax_attention` when every query selects all keys, R_i is
    the identity, c = 0 and nothing is masked. A query that may attend to nothing gives
    exactly 0.

    Cost: O(h t (r d + s r + s e)) time and O(h t s) memory per example; of the first
    term see `partial_logits`.

    Reference: Bhojanapalli et al. 2021, 2106.08823, whose treatment of masks is not
    known; this one is ours.

    Args:
      q: queries.
      k: keys; g divides h.
      v: values.
      selected: S, Int[t r], or Int[r], the same keys for all queries. A number past
        the last key is one that nobody may see.
      reconstruction: R, one s x r matrix a query position; one head serves all.
      offset: c, likewise.
      mean: what takes the place of a score whose key is masked, the mean that such a
        score has; one head serves all, None is 0.
      mask: what each query may attend to; None is everything.
      scale: multiplies the dot products; None is d**-0.5.

    Returns:
      One vector a query and head, in the dtype of v; logits and softmax are computed in
      at least float32.

    Raises:
      ValueError, TypeError: shapes, dtypes or a mask that do not fit.
    """
    check_options({"mask": mask, "scale": scale})
    check_array("v", v)
    check_qkv(q, k, v)
    check_selected(selected, q.shape[-3], None)
    selected = jnp.asarray(selected)
    return _partial_attention(
        q, k, v, selected, reconstruction, offset, mean, mask, scale
    )


@jax.jit
def _partial_attention(q, k, v, selected, reconstruction, offset, mean, mask, scale):
    *leading, t, h, _ = q.shape
    s, r = k.shape[-3], selected.shape[-1]
    check_map((h, t, r), reconstruction, offset)
    if reconstruction.shape[-2] != s:
        raise ValueError(
            f"reconstruction: got s = {reconstruction.shape[-2]} (shape "
            f"{reconstruction.shape}, read as h t s r) for k's {s} keys; expected one "
            "row a key; take the first s rows of one that was made for more"
        )
    if mean is not None:
        check_axes("mean", mean, (h, t, r), "h t r")
    allowed = allowed_for(mask, tuple(leading), h, t, s)
    partial = known_scores(q, k, selected, selected < s, allowed, mean, scale)
    logits = reconstruct_logits(partial, reconstruction, offset)
    logits = logits.astype(compute_dtype(logits, v))
    return attend_rows(logits, hide_keys(v, allowed), allowed).astype(v.dtype)


def known_scores(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b s g d"],
    slots: Int[Array, "..."],
    there: Bool[Array, "..."],
    allowed: Bool[Array, "*#b #h t s"] | None,
    mean: Float[Array, "*#b #h t r"] | None,
    scale: float | Float[Array, ""] | None = None,
) -> Float[Array, "*b h t r"]:
    """p_ia of the keys in the slots, `mean` where a key is absent or may not be seen.

    slots, there: r, t r or *#b #h t r; a slot that is not `there` may be any number.
    """
    *leading, t, h, _ = q.shape
    shape = (*leading, h, t, slots.shape[-1])
    dtype = compute_dtype(q, k)
    fill = jnp.zeros((), dtype) if mean is None else mean.astype(dtype)
    fill = jnp.broadcast_to(lift(fill, len(shape)), shape)
    if k.shape[-3] == 0:
        return fill
    slots = jnp.where(there, slots, 0)
    visible = lift(there, len(shape))
    if allowed is not None:
        visible = visible & _at(allowed, slots)
    q, k = hide_queries(q, allowed), hide_keys(k, allowed)
    return jnp.where(visible, scores_at(q, k, slots, scale), fill)


def scores_at(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b s g d"],
    slots: Int[Array, "..."],
    scale: float | Float[Array, ""] | None,
) -> Float[Array, "*b h t r"]:
    """scale q_i . k_j at j = slots: r, t r or *#b #h t r, each in 0 .. s - 1."""
    r, s, d = slots.shape[-1], k.shape[-3], q.shape[-1]
    if slots.ndim == 1:
        return dot_product_logits(q, jnp.take(k, slots, axis=-3), scale=scale)
    if slots.ndim > 2 or r * d > s:
        return _at(dot_product_logits(q, k, scale=scale), slots)
    # One query a batch: its keys are its own.
    keys = jnp.take(k, slots, axis=-3)
    logits = dot_product_logits(q[..., None, :, :], keys, scale=scale)
    return jnp.moveaxis(logits[..., 0, :], -2, -3)


def _at(
    rows: Shaped[Array, "*#b #h #t s"], slots: Int[Array, "..."]
) -> Shaped[Array, "*b h t r"]:
    """rows[..., slots]; the axes before the last one broadcast."""
    ndim = max(rows.ndim, slots.ndim)
    rows, slots = lift(rows, ndim), lift(slots, ndim)
    shape = jnp.broadcast_shapes(rows.shape[:-1], slots.shape[:-1])
    return jnp.take_along_axis(
        jnp.broadcast_to(rows, (*shape, rows.shape[-1])),
        jnp.broadcast_to(slots, (*shape, slots.shape[-1])),
        axis=-1,
    )
