"""Cross entropy with weights, label smoothing and labels that are ignored."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Integer, Shaped

from attn_jax.train._checks import fail


def cross_entropy(
    logits: Float[Any, "*b vocab"],
    labels: Integer[Any, "*b"],
    *,
    weights: Shaped[Any, "..."] | float | None = None,
    label_smoothing: float | int = 0.0,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sums the weighted cross entropy over all positions, and the weights.

        loss_i = - Σ_j target_ij log softmax(logits_i)_j
        target_i = (1 - ε) onehot(labels_i) + ε / vocab

    The mean is the quotient of the two results. They come apart so that batches of
    uneven weight, accumulated or sharded, are divided once, by the total.

    Reduces to the usual -log softmax(logits)[label] when label_smoothing = 0, and to a
    sum over the positions that are left when some have weight 0: those have no
    influence on value or gradient, whatever their logits hold, NaN included. A
    negative label, -100 say, has weight 0.

    Cost: O(b vocab) time and memory.

    Reference: Szegedy et al. 2016, section 7, as Vaswani et al. 2017, section 5.4 use
    it. Smoothing spreads ε over all classes, the right one too.

    Args:
      logits: unnormalised log-probabilities; computed with in at least float32.
      labels: the right class of each position, below vocab.
      weights: what a position counts; broadcasts to the labels. None is 1.
      label_smoothing: ε above, at least 0 and below 1.

    Returns:
      (sum of losses, sum of weights), in at least float32.

    Raises:
      ValueError, TypeError: shapes or dtypes that do not fit, and a label of vocab or
        more whose weight is not 0. Under jit, where values are not known, such a label
        makes the sum of losses NaN.
    """
    logits, labels, weights = _checked(logits, labels, weights, label_smoothing)
    vocab = logits.shape[-1]
    weights = jnp.where(labels < 0, 0, weights)
    counts = weights != 0
    known = counts & (labels < vocab)
    _refuse_concrete(labels, counts & ~known, vocab)

    # Once before the sums, so that no NaN enters a gradient, and once after them.
    logits = jnp.where(known[..., None], logits, 0)
    safe = jnp.where(known, labels, 0)
    picked = jnp.take_along_axis(logits, safe[..., None], axis=-1)[..., 0]
    score = (1 - label_smoothing) * picked
    if label_smoothing:
        score += label_smoothing * jnp.mean(logits, axis=-1)
    loss = weights * (jax.nn.logsumexp(logits, axis=-1) - score)
    loss = jnp.where(known, loss, jnp.where(counts, jnp.nan, 0))
    return jnp.sum(loss), jnp.sum(weights)


def _checked(
    logits: Any, labels: Any, weights: Any, label_smoothing: float | int
) -> tuple[Array, Array, Array]:
    """The arguments as arrays that fit each other, the floats in at least float32."""
    logits, labels = jnp.asarray(logits), jnp.asarray(labels)
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        fail("logits", str(logits.dtype), "a floating dtype", "pass logits", TypeError)
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        fail("labels", str(labels.dtype), "integers", "pass class numbers", TypeError)
    if logits.ndim == 0 or logits.shape[:-1] != labels.shape or logits.shape[-1] == 0:
        fail(
            "labels",
            f"shape {labels.shape} beside logits of shape {logits.shape}",
            "the shape of the logits without their last axis, vocab",
            "pass one class number for each row of logits",
        )
    if not 0 <= label_smoothing < 1:
        remedy = "0.1 is usual, and 0 is none"
        fail(
            "label_smoothing", str(label_smoothing), "0 <= label_smoothing < 1", remedy
        )
    # Bytes are labels too, and vocab = 256 is no uint8.
    labels = labels.astype(jnp.promote_types(labels.dtype, jnp.int32))
    dtype = jnp.promote_types(logits.dtype, jnp.float32)
    weights = jnp.ones((), dtype) if weights is None else jnp.asarray(weights, dtype)
    try:
        weights = jnp.broadcast_to(weights, labels.shape)
    except ValueError:
        fail(
            "weights",
            f"shape {weights.shape} beside labels of shape {labels.shape}",
            "a shape that broadcasts to that of the labels",
            "pass one weight for each label",
        )
    return logits.astype(dtype), labels, weights


def _refuse_concrete(labels: Array, outside: Array, vocab: int) -> None:
    """Raise for labels of vocab or more where their values are known."""
    if isinstance(outside, Tracer) or not (bad := np.asarray(outside)).any():
        return
    fail(
        "labels",
        f"{int(bad.sum())} labels of vocab or more, the largest "
        f"{int(np.asarray(labels)[bad].max())}",
        f"labels below vocab = {vocab}, or negative where nothing is to be learnt",
        "build the model with the vocabulary the data was encoded with",
    )
