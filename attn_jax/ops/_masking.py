"""The one place where masks meet logits: a softmax that is exact under any mask."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from attn_jax.ops._shapes import lift
from attn_jax.ops.debugging import report_blind
from attn_jax.ops.masks import Mask, as_mask


def allowed_for(
    mask: Mask | None, leading: tuple[int, ...], h: int, t: int, s: int
) -> Bool[Array, "*b h t s"] | None:
    """The mask's t x s array with as many axes as the logits; None when all is seen.

    Raises:
      ValueError: batch or head axes that do not broadcast to the logits'.
    """
    mask = as_mask(mask)
    check_fits(mask, leading, h, t, s)
    report_blind(mask, leading, h, t, s)
    if not mask.rules:
        return None
    allowed = mask.allowed(t, s)
    return lift(allowed, len(leading) + 3)


def check_fits(
    mask: Mask | None, leading: tuple[int, ...], h: int, t: int, s: int
) -> None:
    """Raises where a mask does not fit the logits *b h t s; builds no array."""
    mask = as_mask(mask)
    shape = jax.eval_shape(lambda: mask.allowed(t, s)).shape
    axes = ((1,) * (len(leading) + 3 - len(shape)) + shape)[:-2]
    fits = len(axes) == len(leading) + 1 and all(
        m in (1, n) for m, n in zip(axes, (*leading, h), strict=True)
    )
    if not fits:
        raise ValueError(
            f"mask: its array has shape {shape}, that is batch axes {shape[:-3]} and "
            f"{shape[-3]} heads, for logits with batch axes {leading} and h = {h} "
            "heads; expected each of these axes to be the same or 1"
        )


def masked_softmax(
    logits: Float[Array, "*b h t s"], allowed: Bool[Array, "*#b #h t s"] | None
) -> Float[Array, "*b h t s"]:
    """softmax over the allowed keys: w_ij = a_ij e^{l_ij} / sum_j a_ij e^{l_ij}.

    A row that may attend to nothing has weights 0, not the mean of what was masked.
    A masked logit may hold anything, NaN included: it reaches neither the weights nor
    their gradient. The second `where` stops what a function of the weights (their
    entropy, say) sends back at a masked slot.
    """
    if logits.shape[-1] == 0:
        return logits
    lowest = jnp.finfo(logits.dtype).min
    if allowed is not None:
        logits = jnp.where(allowed, logits, lowest)
    peak = jnp.maximum(jnp.max(logits, axis=-1, keepdims=True), lowest)
    terms = jnp.exp(logits - jax.lax.stop_gradient(peak))
    if allowed is None:
        total = jnp.sum(terms, axis=-1, keepdims=True)
        return terms / jnp.where(total > 0, total, 1)
    terms = jnp.where(allowed, terms, 0)
    total = jnp.sum(terms, axis=-1, keepdims=True)
    return jnp.where(allowed, terms / jnp.where(total > 0, total, 1), 0)


def hide_queries(
    q: Float[Array, "*b t h d"], allowed: Bool[Array, "*#b #h t s"] | None
) -> Float[Array, "*b t h d"]:
    """q with 0 where the query may attend to nothing."""
    if allowed is None:
        return q
    seeing = jnp.any(allowed, axis=-1)
    return jnp.where(jnp.swapaxes(seeing, -1, -2)[..., None], q, 0)


def hide_keys(
    x: Float[Array, "*b s g d"], allowed: Bool[Array, "*#b #h t s"] | None
) -> Float[Array, "*b s g d"]:
    """Keys or values with 0 where no query of the group may see them.

    0 * NaN is NaN: a weight of 0 alone does not keep out what a hidden slot holds.
    """
    if allowed is None:
        return x
    seen = jnp.any(allowed, axis=-2)
    if seen.shape[-2] > 1:
        g = x.shape[-2]
        grouped = seen.reshape(*seen.shape[:-2], g, seen.shape[-2] // g, seen.shape[-1])
        seen = jnp.any(grouped, axis=-2)
    return jnp.where(jnp.swapaxes(seen, -1, -2)[..., None], x, 0)


def weighted_sum(
    weights: Float[Array, "*#b h t s"], v: Float[Array, "*b s g e"]
) -> Float[Array, "*b t h e"]:
    """y_i = sum_j w_ij v_j; query head j reads value head j // (h / g).

    Weights that lack the batch axes (or have them as 1) are used for the whole batch
    in one contraction.
    """
    *_, h, t, s = weights.shape
    g, e = v.shape[-2:]
    v = v.astype(weights.dtype)
    leading = v.shape[:-3]
    if all(n == 1 for n in weights.shape[:-3]):
        w = weights.reshape(g, h // g, t, s)
        y = jnp.einsum("grts,...sge->...tgre", w, v)
    else:
        w = weights.reshape(*weights.shape[:-3], g, h // g, t, s)
        y = jnp.einsum("...grts,...sge->...tgre", w, v)
    return y.reshape(*leading, t, h, e)
