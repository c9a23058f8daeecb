"""One training step: gradient, accumulation, update, and what becomes of NaN."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int32, Key, PyTree

from attn_jax.train._checks import fail, integer
from attn_jax.train.sharding import axes_here, constrain, rows_over
from attn_jax.train.state import Skipped, TrainState
from attn_jax.train.trained import join, split

LossFn = Callable[[PyTree, PyTree, Key[Array, ""]], tuple[Array, Array]]


class StepMetrics(NamedTuple):
    """What a step reports.

    loss: Σ losses / Σ weights over the whole batch, before the update.
    weight: Σ weights: how many targets counted.
    gradient_norm: of the mean loss, before clipping.
    parameter_norm: of what is trained, before the update.
    update_norm: of what the optimizer would add, rate included.
    learning_rate: of this update; NaN where `make_train_step` got no schedule.
    skipped: whether the update was left out because something was not finite.
    consecutive_skips, total_skips: as in the state after this step.
    """

    loss: Float[Array, ""]
    weight: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    parameter_norm: Float[Array, ""]
    update_norm: Float[Array, ""]
    learning_rate: Float[Array, ""]
    skipped: Bool[Array, ""]
    consecutive_skips: Int32[Array, ""]
    total_skips: Int32[Array, ""]


TrainStep = Callable[[TrainState, PyTree], tuple[TrainState, StepMetrics]]


def make_train_step(
    loss_fn: LossFn,
    optimizer: optax.GradientTransformation,
    *,
    schedule: optax.ScalarOrSchedule | None = None,
    accumulation: int = 1,
) -> TrainStep:
    """Compiles one step of training.

        loss = Σ_i Σ losses_i / Σ_i Σ weights_i           over micro-batches i
        params <- params + optimizer(∇ loss)

    Sums are accumulated and divided once, by the total weight, so that any
    accumulation gives the gradient of the whole batch up to rounding, however uneven
    the weights. Micro-batch i of n holds rows i, i + n, i + 2n, ..., which leaves a
    batch that is sharded over devices where it is.

    The key that loss_fn gets is a pure function of (seed, step, i): the seed of the
    state, folded with the step, then with i.

    If the loss, the norm of the gradient or that of the update is not finite, params
    and opt_state stay as they are, to the bit. The step counts all the same, so the
    data move on; the count of the schedule does not, since it counts updates. A batch
    whose weights sum to 0 has no mean and is such a step.

    A variable of a model that is no `nnx.Param`, such as the matrix of a fixed
    Synthesizer, stays as it is: it has no gradient, no decay and no optimizer state.

    Cost: one forward and backward pass; one float32 copy of params for the gradient.

    Args:
      loss_fn: (params, batch, rng) -> (sum of losses, sum of weights), as
        `cross_entropy` returns them; weights may not depend on params.
      optimizer: an Optax transformation.
      schedule: what the optimizer was built with; it is only reported.
      accumulation: micro-batches a step; it divides the leading axis of every array
        in the batch.

    Returns:
      train_step(state, batch) -> (state, StepMetrics), jitted. It takes over the
      memory of the state it is given, which can't be used afterwards.
    """
    accumulation = integer("accumulation", accumulation, minimum=1)

    def train_step(state: TrainState, batch: PyTree) -> tuple[TrainState, StepMetrics]:
        rng = jax.random.fold_in(state.seed, state.step)
        loss, weight, grads = _mean_gradient(
            loss_fn, *split(state.params), batch, rng, accumulation
        )
        rate = _rate(schedule, state.step - state.skipped.total)
        state, metrics = _update(optimizer, state, loss, weight, grads, rate)
        # The next step finds the state where this one did.
        return constrain(state), metrics

    return jax.jit(train_step, donate_argnums=0)


def global_norm(tree: PyTree) -> Float[Array, ""]:
    """The Euclidean norm of all leaves together, in at least float32."""
    squares = [
        jnp.sum(jnp.square(x.astype(jnp.promote_types(x.dtype, jnp.float32))))
        for x in jax.tree.leaves(tree)
    ]
    return jnp.sqrt(sum(squares, jnp.zeros((), jnp.float32)))


def _mean_gradient(
    loss_fn: LossFn,
    trained: PyTree,
    kept: PyTree,
    batch: PyTree,
    rng: Key[Array, ""],
    accumulation: int,
) -> tuple[Array, Array, PyTree]:
    """Mean loss, total weight and gradient of the mean over all micro-batches."""

    def sums(index: Any, batch: PyTree) -> tuple[Array, Array, PyTree]:
        key = jax.random.fold_in(rng, index)
        value_and_grad = jax.value_and_grad(
            lambda params: loss_fn(join(params, kept), batch, key), has_aux=True
        )
        (loss, weight), grads = value_and_grad(trained)
        return _widen((loss, weight, constrain(grads)))

    if accumulation == 1:
        loss, weight, grads = sums(0, batch)
    else:
        micro_batches = _split(batch, accumulation)
        first = jax.tree.map(lambda x: x[0], micro_batches)
        zeros = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(sums, 0, first)
        )

        def add(total: PyTree, scanned: PyTree) -> tuple[PyTree, None]:
            return jax.tree.map(jnp.add, total, sums(*scanned)), None

        scanned = (jnp.arange(accumulation), micro_batches)
        (loss, weight, grads), _ = jax.lax.scan(add, zeros, scanned)
    return loss / weight, weight, jax.tree.map(lambda g: g / weight, grads)


def _split(batch: PyTree, accumulation: int) -> PyTree:
    """Every array b ... of the batch as accumulation, b / accumulation, ...."""
    pieces = rows_over(axes_here())

    def split(path: Any, x: Any) -> Array:
        x = jnp.asarray(x)
        if x.ndim == 0 or x.shape[0] % accumulation:
            fail(
                f"batch{jax.tree_util.keystr(path)}",
                f"shape {x.shape} with accumulation = {accumulation}",
                "a leading axis that accumulation divides",
                "change the batch size or the number of micro-batches",
            )
        rows = x.shape[0] // accumulation
        if rows % pieces:
            fail(
                f"batch{jax.tree_util.keystr(path)}",
                f"shape {x.shape} with accumulation = {accumulation}, micro-batches of "
                f"{rows} rows",
                f"rows that data x fsdp = {pieces} devices divide",
                "change the batch size, the number of micro-batches or the mesh",
            )
        x = x.reshape(rows, accumulation, *x.shape[1:])
        return jnp.swapaxes(x, 0, 1)

    return jax.tree_util.tree_map_with_path(split, batch)


def _update(
    optimizer: optax.GradientTransformation,
    state: TrainState,
    loss: Float[Array, ""],
    weight: Float[Array, ""],
    grads: PyTree,
    rate: Float[Array, ""],
) -> tuple[TrainState, StepMetrics]:
    """The state after the update, or after leaving it out, and what is reported."""
    old, kept = split(state.params)
    gradient_norm = global_norm(grads)
    grads = jax.tree.map(lambda g, p: g.astype(p.dtype), grads, old)
    updates, opt_state = optimizer.update(grads, state.opt_state, old)
    new = optax.apply_updates(old, updates)
    update_norm = global_norm(updates)
    finite = jnp.isfinite(loss + gradient_norm + update_norm)
    more = (~finite).astype(jnp.int32)
    skipped = Skipped(
        consecutive=(state.skipped.consecutive + 1) * more,
        total=state.skipped.total + more,
    )
    metrics = StepMetrics(
        loss=loss,
        weight=weight,
        gradient_norm=gradient_norm,
        parameter_norm=global_norm(old),
        update_norm=update_norm,
        learning_rate=rate,
        skipped=~finite,
        consecutive_skips=skipped.consecutive,
        total_skips=skipped.total,
    )
    state = TrainState(
        step=state.step + 1,
        params=join(_choose(finite, new, old), kept),
        opt_state=_choose(finite, opt_state, state.opt_state),
        seed=state.seed,
        skipped=skipped,
    )
    return state, metrics


def _widen(tree: PyTree) -> PyTree:
    """Leaves in at least float32, so that sums over micro-batches keep their digits."""
    return jax.tree.map(
        lambda x: jnp.asarray(x, jnp.promote_types(jnp.result_type(x), jnp.float32)),
        tree,
    )


def _choose(condition: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    """New leaves where condition holds, the old ones to the bit where it does not."""
    return jax.tree.map(
        lambda x, y: jnp.where(condition, jnp.asarray(x, y.dtype), y), new, old
    )


def _rate(schedule: optax.ScalarOrSchedule | None, count: Int32[Array, ""]) -> Array:
    """The learning rate after count updates, NaN without a schedule."""
    rate = schedule(count) if callable(schedule) else schedule
    return jnp.asarray(jnp.nan if rate is None else rate, jnp.float32)
