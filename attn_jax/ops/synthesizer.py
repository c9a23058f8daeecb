"""Synthesizer attention (Tay et al. 2021): logits without query-key products.

The dense forms make a row of logits from the query's token alone, the random forms
from its position alone. Neither is scaled by d**-0.5. Column j always means absolute
position j: logits built for n positions serve any s <= n by their first s columns.
"""

import operator
from collections.abc import Sequence
from functools import reduce

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from attn_jax.ops._entry import op
from attn_jax.ops._masking import allowed_for
from attn_jax.ops._rows import attend_by_rows
from attn_jax.ops._shapes import compute_dtype, lift
from attn_jax.ops._synthesizer_inputs import (
    check_layouts,
    check_leading,
    check_length,
)
from attn_jax.ops._synthesizer_layers import first_layer, second_layer
from attn_jax.ops.masks import Mask, as_mask


@op(optional=("b1", "b2"))
def dense_synthesizer_logits(
    x: Float[Array, "*b t m"],
    w1: Float[Array, "h m d"],
    b1: Float[Array, "h d"] | None,
    w2: Float[Array, "h d n"],
    b2: Float[Array, "h n"] | None,
) -> Float[Array, "*b h t n"]:
    """Each token writes its own row of logits with a two-layer network.

        l_i = relu(x_i W1 + b1) W2 + b2

    Reduces to b2, the same row for every token, when W2 = 0. There is no mask here:
    what a padded token holds has to be cleaned before it enters.

    Cost: O(h t d (m + n)) time and O(h t n) memory per example.

    Reference: Tay et al. 2021, Dense Synthesizer. The first version of the paper
    writes the biases, the published one leaves them out.

    Args:
      x: tokens.
      w1: first layer, one matrix a head; broadcast one that all heads share.
      b1: its bias, or None.
      w2: second layer, to one column a position.
      b2: its bias, or None.

    Returns:
      Logits in at least float32.

    Raises:
      ValueError, TypeError: shapes or dtypes that do not fit.
    """
    check_layouts(
        x=(x, "*b t m"),
        w1=(w1, "h m d"),
        b1=(b1, "h d"),
        w2=(w2, "h d n"),
        b2=(b2, "h n"),
    )
    return second_layer(jax.nn.relu(first_layer(x, w1, b1)), w2, b2)


@op()
def factorized_dense_logits(
    a: Float[Array, "*#b h t a"], b: Float[Array, "*#b h t b"]
) -> Float[Array, "*b h t a*b"]:
    """Each token writes two short rows whose products fill the long one.

        l_ij = a_{i, j // b} b_{i, j mod b},   j = 0 .. a b - 1

    One factor is repeated and the other tiled: tiling both would leave only
    lcm(a, b) distinct logits. Reduces to a when b is a single 1.

    Cost: O(h t a b) time and memory per example.

    Reference: Tay et al. 2021, Factorized Dense Synthesizer; the order of repeat and
    tile as in equation 13 of the authors' survey (2009.06732).

    Args:
      a: one number for each of the a blocks of b positions.
      b: one number for each place inside a block.

    Returns:
      Logits in at least float32.

    Raises:
      ValueError, TypeError: shapes or dtypes that do not fit.
    """
    check_layouts(a=(a, "*b h t a"), b=(b, "*b h t b"))
    dtype = compute_dtype(a, b)
    ndim = max(a.ndim, b.ndim)
    a, b = lift(a.astype(dtype), ndim), lift(b.astype(dtype), ndim)
    return jnp.repeat(a, b.shape[-1], axis=-1) * jnp.tile(b, a.shape[-1])


@op()
def factorized_random_logits(
    r1: Float[Array, "h t r"], r2: Float[Array, "h n r"]
) -> Float[Array, "h t n"]:
    """Logits that depend on positions alone, of rank r.

        L = R1 R2^T

    Reduces to 0, uniform attention, when R1 = 0. Random Synthesizer logits are an
    array h n n themselves and need no function.

    Cost: O(h n^2 r) time and O(h n^2) memory, whatever the batch.

    Reference: Tay et al. 2021, Factorized Random Synthesizer (rank 8 in the paper).

    Args:
      r1: one row a query position; all n of them, or those asked for.
      r2: one row a key position.

    Returns:
      Logits in at least float32.

    Raises:
      ValueError, TypeError: shapes or dtypes that do not fit.
    """
    check_layouts(r1=(r1, "h t r"), r2=(r2, "h n r"))
    dtype = compute_dtype(r1, r2)
    return jnp.einsum("hir,hjr->hij", r1.astype(dtype), r2.astype(dtype))


@op(others=("logits",))
def mix_logits(
    logits: Sequence[Float[Array, "*#b h t n"]], alphas: Float[Array, "h k"]
) -> Float[Array, "*b h t n"]:
    """Several synthesizers mixed before the softmax.

        l = sum_k alpha_k l^(k)

    Reduces to l^(k) when alpha_k = 1 and the others are 0. There is no mask here: a
    logit that is not finite reaches the gradient of alphas.

    Cost: O(k h t n) time and O(h t n) memory per example.

    Reference: Tay et al. 2021, Mixture of Synthesizers: alphas are positive and sum
    to 1, for each head and layer.

    Args:
      logits: k arrays; batch axes may be missing or 1. Query-key products come
        scaled by d**-0.5, and all have the same number of columns.
      alphas: mixing weights, positive and summing to 1 over k.

    Returns:
      Logits in at least float32.

    Raises:
      ValueError, TypeError: shapes or dtypes that do not fit.
    """
    if len(logits) == 0:
        raise ValueError("logits: got none; expected a sequence of at least one array")
    named = {f"logits[{k}]": (x, "*b h t n") for k, x in enumerate(logits)}
    check_layouts(**named, alphas=(alphas, "h k"))
    if len(logits) != alphas.shape[-1]:
        raise ValueError(
            f"alphas: got {alphas.shape[-1]} weights a head (shape {alphas.shape}) for "
            f"{len(logits)} arrays of logits; expected one weight an array, h k"
        )
    dtype = compute_dtype(alphas, *logits)
    ndim = max(x.ndim for x in logits)
    weights = alphas.astype(dtype)[..., None, None]
    terms = (
        lift(weights[:, k], ndim) * lift(x.astype(dtype), ndim)
        for k, x in enumerate(logits)
    )
    return reduce(operator.add, terms)


@op()
def synthesizer_attention(
    logits: Float[Array, "*#b h t n"],
    v: Float[Array, "*b s g e"],
    *,
    mask: Mask | None = None,
) -> Float[Array, "*b t h e"]:
    """Attention whose weights are a softmax of logits given ready-made.

        y_i = sum_j w_ij v_j,   w_ij = exp(l_ij) / sum_{j' allowed} exp(l_ij')

    Only the first s columns are used; the rows are those of the t queries. Reduces to
    the mean of the visible values when the logits are 0. A query that may attend to
    nothing gives exactly 0.

    Cost: O(h t s e) time and O(h t s) memory per example. Logits without batch axes,
    under a mask without any, are softmaxed once and meet the whole batch in one
    contraction.

    Reference: Tay et al. 2021: Y = softmax(S) G(X).

    Args:
      logits: one row a query; batch axes may be missing or 1. Rows of a larger array
        are picked by position before the call, e.g. `logits[:, start : start + t]`.
      v: values; g divides h.
      mask: what each query may attend to; None is everything.

    Returns:
      One vector a query and head, in the dtype of v; the softmax is computed in at
      least float32.

    Raises:
      ValueError, TypeError: shapes, dtypes or a mask that do not fit; more keys than
        the logits have columns.
    """
    check_layouts(logits=(logits, "*b h t n"), v=(v, "*b s g e"))
    h, t, n = logits.shape[-3:]
    check_leading("logits", logits, v)
    check_length("logits", n, h, v)
    allowed = allowed_for(mask, v.shape[:-3], h, t, v.shape[-3])
    return attend_by_rows(
        lambda s, rows: rows[..., :s], logits, v, mask=as_mask(mask), allowed=allowed
    )
