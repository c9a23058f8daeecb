"""Everything a run needs in order to go on: one pytree."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int32, Key, PyTree

from attn_jax.train._checks import fail, integer
from attn_jax.train.trained import split


class Skipped(NamedTuple):
    """How many steps were skipped because something in them was not finite.

    consecutive: in a row, up to now.
    total: since the run began.
    """

    consecutive: Int32[Array, ""]
    total: Int32[Array, ""]


class TrainState(NamedTuple):
    """The state of a run after `step` steps.

    step: steps done, the skipped ones included; it is also the position in the data,
        since batches are a function of the step, and what dropout depends on.
    params: the parameters, and what of a model's state is kept as it is.
    opt_state: the state of the optimizer, which counts updates and not steps.
    seed: the key that randomness in the run derives from; it never changes.
    skipped: the steps without an update.
    """

    step: Int32[Array, ""]
    params: PyTree
    opt_state: PyTree
    seed: Key[Array, ""]
    skipped: Skipped


def init_train_state(
    params: PyTree, optimizer: optax.GradientTransformation, *, seed: int
) -> TrainState:
    """The state before the first step.

    The arrays of params are copied, since the first step gives away the memory of the
    state it gets; under jit, or where params are not used again, the copy costs nothing
    for long.

    Args:
      params: the parameters, floating-point leaves only: of an NNX model,
        `nnx.state(model)`. A variable in it that is no `nnx.Param` is kept as it is
        and saved in checkpoints; the optimizer doesn't see it.
      optimizer: an Optax transformation, `adamw(schedule)` say.
      seed: of the run, for dropout.

    Returns:
      A TrainState at step 0.

    Raises:
      TypeError: a leaf to train that is not floating point.
    """
    seed = integer("seed", seed, minimum=0)
    for path, leaf in jax.tree_util.tree_flatten_with_path(split(params)[0])[0]:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            fail(
                f"params{jax.tree_util.keystr(path)}",
                str(jnp.result_type(leaf)),
                "a floating-point array, something that has a gradient",
                "keep what is not learnt out of params and give it to the loss_fn",
                TypeError,
            )
    # The dtype is named so that the copy has it for certain: a weak type here would
    # make the second step trace again.
    params = jax.tree.map(lambda x: jnp.array(x, jnp.result_type(x), copy=True), params)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=optimizer.init(split(params)[0]),
        seed=jax.random.key(seed),
        skipped=Skipped(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)),
    )
