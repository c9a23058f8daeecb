"""Adam as the Transformer's paper has it, AdamW, RAdam, and which parameters decay."""

from functools import partial

import jax
import optax
from jaxtyping import PyTree

from attn_jax.train._checks import fail
from attn_jax.train.names import leaf_names

_DECAYED = frozenset({"kernel", "embedding"})
# The matrices that a Synthesizer learns in place of queries and keys.
_SYNTHESIZER = frozenset({"random", "r1", "r2", "w1", "v1", "w2"})


def decay_mask(params: PyTree, *, synthesizers: bool = False) -> PyTree:
    """Says of each parameter whether weight decay applies to it, by its name.

    A parameter decays when the last word of its path is `kernel` or `embedding`:
    scales of norms and biases stay out. So do the matrices of Synthesizers (`random`,
    `r1`, `r2`, `w1`, `v1`, `w2`), which are attention logits or make them, unless asked
    for, and what decides between several, the `alpha` of mixtures, in any case.
    The name decides and not the number of axes, since stacked layers add one.

    Args:
      params: the parameters, as an `nnx.State` or nested dicts.
      synthesizers: whether the matrices of Synthesizers decay.

    Returns:
      The tree of params with True or False at each leaf.
    """
    decayed = _DECAYED | _SYNTHESIZER if synthesizers else _DECAYED
    mask = [bool(name) and name[-1] in decayed for name in leaf_names(params)]
    return jax.tree.unflatten(jax.tree.structure(params), mask)


def adam(
    schedule: optax.ScalarOrSchedule,
    *,
    b1: float | int = 0.9,
    b2: float | int = 0.98,
    eps: float = 1e-9,
) -> optax.GradientTransformation:
    """Adam with the numbers of the Transformer's paper: no decay, no clipping.

        p <- p - rate m̂ / (√v̂ + eps)

    With `noam_schedule` and `cross_entropy(label_smoothing=0.1)` it is the training of
    that paper.

    Reference: Kingma and Ba 2015, algorithm 1; Vaswani et al. 2017, section 5.3.

    Args:
      schedule: a rate, or a function of the number of updates done so far.
      b1, b2, eps: of Adam.

    Returns:
      An Optax transformation.
    """
    return optax.adam(schedule, b1, b2, eps)


def adamw(
    schedule: optax.ScalarOrSchedule,
    *,
    b1: float | int = 0.9,
    b2: float | int = 0.95,
    eps: float = 1e-8,
    weight_decay: float | int = 0.1,
    clip_norm: float | int | None = 1.0,
    decay_synthesizers: bool = False,
) -> optax.GradientTransformation:
    """Clips the gradient by its global norm, then AdamW with `decay_mask`.

        g <- g min(1, clip_norm / |g|)
        p <- p - rate (m̂ / (√v̂ + eps) + weight_decay p)       where the mask says so

    The decay is multiplied by the rate of the schedule.

    Reference: Loshchilov and Hutter 2019, algorithm 2.

    Args:
      schedule: a rate, or a function of the number of updates done so far.
      b1, b2, eps: of Adam.
      weight_decay: as above.
      clip_norm: the largest global norm of a gradient; None does not clip.
      decay_synthesizers: whether the matrices of Synthesizers decay too.

    Returns:
      An Optax transformation.
    """
    if clip_norm is not None and not clip_norm > 0:
        fail("clip_norm", str(clip_norm), "a norm above 0", "pass None not to clip")
    clip = [] if clip_norm is None else [optax.clip_by_global_norm(clip_norm)]
    mask = partial(decay_mask, synthesizers=decay_synthesizers)
    update = optax.adamw(schedule, b1, b2, eps, weight_decay=weight_decay, mask=mask)
    return optax.chain(*clip, update)


def radam(
    schedule: optax.ScalarOrSchedule,
    *,
    b1: float | int = 0.9,
    b2: float | int = 0.999,
    eps: float = 1e-8,
    weight_decay: float | int = 0.01,
    decay_synthesizers: bool = False,
) -> optax.GradientTransformation:
    """Rectified Adam with `decay_mask`: momentum alone until v̂ can be trusted.

        ρ_t = ρ - 2 t b2^t / (1 - b2^t),   ρ = 2 / (1 - b2) - 1
        r_t² = (ρ_t - 4) (ρ_t - 2) ρ / ((ρ - 4) (ρ - 2) ρ_t)
        p <- p - rate (r_t m̂ / (√v̂ + eps) + weight_decay p)       where ρ_t >= 5
        p <- p - rate (m̂ + weight_decay p)                         in the first updates

    ρ_t is how many gradients v̂ is worth. With b2 = 0.999 the first few updates are
    momentum, then r_t grows from 0.02 to 1: a warm-up of some thousand updates that
    nobody has to choose. The decay is multiplied by the rate of the schedule and
    applies where the mask says so.

    Reference: Liu et al. 2020, algorithm 2; their code rectifies from ρ_t >= 5 on, and
    so does this, where the paper has ρ_t > 4. It trains every transformer of
    Katharopoulos et al. 2020.

    Args:
      schedule: a rate, or a function of the number of updates done so far.
      b1, b2, eps: of Adam.
      weight_decay: as above.
      decay_synthesizers: whether the matrices of Synthesizers decay too.

    Returns:
      An Optax transformation.
    """
    return optax.chain(
        optax.scale_by_radam(b1, b2, eps),
        optax.add_decayed_weights(
            weight_decay, partial(decay_mask, synthesizers=decay_synthesizers)
        ),
        optax.scale_by_learning_rate(schedule),
    )
