"""Softmax attention (Attention Is All You Need, Vaswani et al. 2017, equation 1)."""

import logging
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from attn_jax.ops._entry import op
from attn_jax.ops._masking import (
    allowed_for,
    check_fits,
    hide_keys,
    hide_queries,
    masked_softmax,
    weighted_sum,
)
from attn_jax.ops._shapes import check_qkv, compute_dtype, lift
from attn_jax.ops._softmax_mesh import over_mesh
from attn_jax.ops.debugging import report_blind
from attn_jax.ops.masks import Mask, as_mask
from attn_jax.ops.softmax_blockwise import blockwise_attention
from attn_jax.ops.softmax_kernels import KERNELS, Call, kernel_here, refusal
from attn_jax.ops.softmax_kernels import run as run_kernel

LOG = logging.getLogger("attn_jax")
IMPLEMENTATIONS = ("auto", "dense", "blockwise", "cudnn", "tpu")
# "auto" works in tiles from so many logits on: a head's on CPU, where it was measured;
# the batch's elsewhere, where tiles one after the other only serve to save memory.
TILES_FROM_ON_CPU = 64 * 64
TILES_FROM = 2**30


@op("implementation", "block_size")
def softmax_attention(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b s g d"],
    v: Float[Array, "*b s g e"],
    *,
    mask: Mask | None = None,
    bias: Float[Array, "..."] | None = None,
    scale: float | Float[Array, ""] | None = None,
    logit_cap: float | Float[Array, ""] | None = None,
    implementation: str = "auto",
    block_size: int | None = None,
) -> Float[Array, "*b t h e"]:
    """Attention whose weights are a softmax of scaled dot products.

        y_i = sum_j w_ij v_j,   w_ij = exp(l_ij) / sum_{j' allowed} exp(l_ij'),
        l_ij = cap(scale q_i . k_j) + bias_ij,   cap(x) = logit_cap tanh(x / logit_cap)

    Reduces to the mean of the visible values when q = 0 and bias is None. A query
    that may attend to nothing gives exactly 0.

    Cost: O(t s (d + e)) time per example; O(h t s) memory for "dense", O(t h (d + e))
    for "blockwise", which never visits the tiles that the mask rules out.

    Reference: Vaswani et al. 2017, equation 1; grouped heads as in Ainslie et al.
    2023 (query head j reads key/value head j // (h / g)).

    Args:
      q: queries.
      k: keys; g divides h.
      v: values; their width may differ from the keys'.
      mask: what each query may attend to; None is everything.
      bias: added to the logits after the cap, shape *#b #h #t #s; differentiable.
      scale: multiplies the dot products; None is d**-0.5.
      logit_cap: bounds the scaled dot products smoothly; None is no bound.
      implementation: "dense", the definition, which alone has forward-mode and second
        derivatives; "blockwise", in tiles; "cudnn", a kernel of NVIDIA GPUs for 16-bit
        inputs, full, causal or with a window to the left; "tpu", one for bfloat16, full
        or causal; "auto", a kernel where it computes just this call (else why not is
        logged); else the faster of the first two on a CPU, and elsewhere "dense" until
        its logits would fill the memory.
      block_size: queries and keys a tile of "blockwise"; None is the measured best.

    Returns:
      One vector a query and head, in the dtype of v. Logits and softmax are computed
      in at least float32.

    Raises:
      ValueError, TypeError: shapes, dtypes or a mask that do not fit.
    """
    check_qkv(q, k, v)
    t, s = q.shape[-3], k.shape[-3]
    if bias is not None:
        bias = _check_bias(bias, (*q.shape[:-3], q.shape[-2], t, s))
    _check_implementation(implementation, block_size)
    check_fits(mask, q.shape[:-3], q.shape[-2], t, s)
    attend = partial(_attend, implementation=implementation, block_size=block_size)
    return over_mesh(attend, Call(q, k, v, as_mask(mask), bias, scale, logit_cap))


@op()
def softmax_attention_weights(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b s g d"],
    *,
    mask: Mask | None = None,
    bias: Float[Array, "..."] | None = None,
    scale: float | Float[Array, ""] | None = None,
    logit_cap: float | Float[Array, ""] | None = None,
) -> Float[Array, "*b h t s"]:
    """The weights w_ij of `softmax_attention`, for looking at them.

    Every row sums to 1, or to 0 where the query may attend to nothing; a masked slot
    is exactly 0. `softmax_attention` equals these weights times v.

    Cost: O(t s d) time and O(h t s) memory per example.

    Args, Raises: as in `softmax_attention`.

    Returns:
      Weights in at least float32.
    """
    check_qkv(q, k)
    t, s = q.shape[-3], k.shape[-3]
    if bias is not None:
        bias = _check_bias(bias, (*q.shape[:-3], q.shape[-2], t, s))
    allowed = allowed_for(mask, q.shape[:-3], q.shape[-2], t, s)
    return _weights(q, k, allowed, bias, scale, logit_cap)


def dot_product_logits(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b s g d"],
    *,
    scale: float | Float[Array, ""] | None = None,
) -> Float[Array, "*b h t s"]:
    """l_ij = scale q_i . k_j in at least float32; scale=None is d**-0.5."""
    *leading, t, h, d = q.shape
    s, g = k.shape[-3:-1]
    dtype = compute_dtype(q, k)
    grouped = (q.astype(dtype) * _scale(scale, d)).reshape(*leading, t, g, h // g, d)
    logits = jnp.einsum("...tgrd,...sgd->...grts", grouped, k.astype(dtype))
    return logits.reshape(*leading, h, t, s)


def _attend(
    call: Call, *, implementation: str, block_size: int | None
) -> Float[Array, "*b t h e"]:
    """The call by the implementation that was asked for, or the best one."""
    q, k, v, mask, bias, scale, logit_cap = call
    if implementation == "auto":
        implementation = _best(call, block_size)
    elif implementation in KERNELS.values():
        why = refusal(implementation, call)
        if why is not None:
            raise ValueError(
                f"implementation: got {implementation!r}, which can't compute this "
                f"call: {why}; expected 'auto', 'dense' or 'blockwise' here"
            )
    if implementation in KERNELS.values():
        return run_kernel(implementation, call)
    leading, (t, h, d) = q.shape[:-3], q.shape[-3:]
    if implementation == "blockwise":
        report_blind(mask, leading, h, t, k.shape[-3])
        return blockwise_attention(
            q,
            k,
            v,
            mask=mask,
            bias=bias,
            scale=_scale(scale, d),
            logit_cap=logit_cap,
            block_size=block_size,
        )
    allowed = allowed_for(mask, leading, h, t, k.shape[-3])
    weights = _weights(q, k, allowed, bias, scale, logit_cap)
    return weighted_sum(weights, hide_keys(v, allowed)).astype(v.dtype)


def _weights(q, k, allowed, bias, scale, logit_cap):
    q, k = hide_queries(q, allowed), hide_keys(k, allowed)
    logits = dot_product_logits(q, k, scale=scale)
    if logit_cap is not None:
        # A hidden logit may have overflowed to NaN, which the slope of tanh would keep.
        logits = logits if allowed is None else jnp.where(allowed, logits, 0)
        logits = logit_cap * jnp.tanh(logits / logit_cap)
    if bias is not None:
        logits = logits + bias.astype(logits.dtype)
    return masked_softmax(logits, allowed)


def _best(call: Call, block_size: int | None) -> str:
    """The implementation that "auto" stands for."""
    kernel = kernel_here()
    if kernel is not None and block_size is None:
        why = refusal(kernel, call)
        if why is None:
            return kernel
        LOG.info("softmax_attention: %s is not used, since %s", kernel, why)
    t, _, d = call.q.shape[-3:]
    logits = t * call.k.shape[-3]
    if jax.default_backend() == "cpu":
        return "blockwise" if logits >= TILES_FROM_ON_CPU else "dense"
    heads = call.q.size // max(1, t * d)
    return "blockwise" if logits * heads >= TILES_FROM else "dense"


def _scale(scale: Any, d: int) -> Any:
    return max(d, 1) ** -0.5 if scale is None else scale


def _check_implementation(implementation: str, block_size: int | None) -> None:
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(
            f"implementation: got {implementation!r}; expected one of "
            f"{', '.join(map(repr, IMPLEMENTATIONS))}"
        )
    if block_size is None:
        return
    if not isinstance(block_size, int) or block_size < 1:
        raise ValueError(
            f"block_size: got {block_size!r}; expected an int >= 1, or None for the "
            "measured best"
        )
    if implementation not in ("auto", "blockwise"):
        raise ValueError(
            f"block_size: got {block_size} for implementation={implementation!r}, "
            "which takes none; leave it out, or use 'blockwise'"
        )


def _check_bias(bias: Array, shape: tuple[int, ...]) -> Array:
    if not jnp.issubdtype(bias.dtype, jnp.floating):
        raise TypeError(
            f"bias: got dtype {bias.dtype}; expected a floating array to add to the "
            "logits; what may be attended to is a mask: mask=masks.dense(allowed)"
        )
    fits = 3 <= bias.ndim <= len(shape) and all(
        m in (1, n) for m, n in zip(bias.shape[::-1], shape[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"bias: got shape {bias.shape}; expected one that broadcasts to "
            f"(*b, h, t, s) = {shape}, with at least the axes (h, t, s)"
        )
    return lift(bias, len(shape))
