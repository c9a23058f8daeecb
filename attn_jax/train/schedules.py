"""Learning rates as functions of the number of updates done so far.

A schedule is called as Optax calls it: `schedule(count)`, where count is 0 at the
first update. Formulas that papers write for a step s starting at 1 use s = count + 1.
"""

from typing import Any

import jax.numpy as jnp
import optax

from attn_jax.train._checks import fail, integer


def noam_schedule(
    d_model: int, warmup_steps: int, scale: float | int = 1.0
) -> optax.Schedule:
    """The schedule of the Transformer: linear warm-up, then an inverse square root.

        rate(s) = scale d_model^-0.5 min(s^-0.5, s warmup_steps^-1.5),  s = count + 1

    The first update uses s = 1, the rate is largest at s = warmup_steps.

    Reference: Vaswani et al. 2017, equation 3.

    Args:
      d_model: width of the model.
      warmup_steps: updates until the peak, at least 1.
      scale: a factor on top of the paper's.

    Returns:
      schedule(count) -> float32.
    """
    d_model = integer("d_model", d_model, minimum=1)
    warmup_steps = integer("warmup_steps", warmup_steps, minimum=1)

    def schedule(count: Any) -> Any:
        s = jnp.asarray(count, jnp.float32) + 1
        return scale * d_model**-0.5 * jnp.minimum(s**-0.5, s * warmup_steps**-1.5)

    return schedule


def cosine_schedule(
    peak: float | int,
    *,
    num_steps: int,
    warmup_steps: int,
    final_fraction: float | int = 0.1,
) -> optax.Schedule:
    """Linear warm-up to peak, then half a cosine down to final_fraction · peak.

        rate(s) = peak s / warmup_steps                        s <= warmup_steps
        rate(s) = peak (f + (1 - f) (1 + cos πx) / 2)          after it
        x = (s - warmup_steps) / (num_steps - warmup_steps),  s = count + 1

    The horizon num_steps includes the warm-up. The first update uses
    peak / warmup_steps (not 0), update number warmup_steps uses peak, and update number
    num_steps, the last, uses final_fraction · peak, as do any beyond it.

    Reference: Loshchilov and Hutter 2017, equation 5, without restarts.

    Args:
      peak: the largest rate.
      num_steps: updates of the whole run.
      warmup_steps: updates of the warm-up, below num_steps; 0 is none.
      final_fraction: f above, the rate at the end as a fraction of peak.

    Returns:
      schedule(count) -> float32.
    """
    num_steps = integer("num_steps", num_steps, minimum=1)
    warmup_steps = integer("warmup_steps", warmup_steps, minimum=0)
    if warmup_steps >= num_steps:
        fail(
            "warmup_steps",
            f"{warmup_steps} with num_steps = {num_steps}",
            "fewer steps of warm-up than there are steps, which include it",
            "lower warmup_steps or raise num_steps",
        )
    if not peak > 0:
        fail("peak", str(peak), "a rate above 0", "3e-4 is a usual one")
    if not 0 <= final_fraction <= 1:
        remedy = "0.1 ends at a tenth of peak"
        fail("final_fraction", str(final_fraction), "a number from 0 to 1", remedy)
    rate = optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=peak,
        warmup_steps=warmup_steps,
        decay_steps=num_steps,
        end_value=final_fraction * peak,
    )

    def schedule(count: Any) -> Any:
        return rate(jnp.asarray(count, jnp.float32) + 1)

    return schedule
