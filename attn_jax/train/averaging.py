"""The mean of several sets of parameters."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from attn_jax.train._checks import fail
from attn_jax.train.trained import join, split


def average_checkpoints(checkpoints: Iterable[PyTree]) -> PyTree:
    """Averages parameters, summed in at least float32.

    Translation models are usually evaluated on the mean of their last checkpoints. The
    sets come one at a time, so a generator holds no more than one of them beside the
    sum. The last n that a run of num_steps saves every so many steps, and not what an
    interruption saved in between, of a `Checkpointer(..., keep=n, every=every)`:

        regular = [*range(every, num_steps, every), num_steps]
        average_checkpoints(
            checkpointer.restore(state, step=step).params for step in regular[-n:]
        )

    Reduces to the parameters themselves for one checkpoint. What is kept and not
    trained (`init_train_state`) is that of the first set.

    Reference: Vaswani et al. 2017, section 6.1 (the last 5 for base, 20 for big).

    Args:
      checkpoints: trees of floating-point arrays, alike in structure and shapes.

    Returns:
      A tree like the first one, in its dtypes.

    Raises:
      ValueError, TypeError: none given; trees that differ; leaves that have no mean.
    """
    total, first, kept, count = None, None, None, 0
    for given in checkpoints:
        params, others = split(given)
        wide = jax.tree_util.tree_map_with_path(_widen, params)
        if total is None:
            total, first, kept = wide, params, others
        else:
            _check_alike(first, params, count)
            total = jax.tree.map(jnp.add, total, wide)
        count += 1
    if total is None:
        remedy = "pass the parameters of at least one"
        fail("checkpoints", "none", "one set of parameters or more", remedy)
    mean = jax.tree.map(lambda t, x: (t / count).astype(x.dtype), total, first)
    return join(mean, kept)


def _widen(path: tuple, x: jax.Array) -> jax.Array:
    """The leaf in at least float32."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        fail(
            f"checkpoints{jax.tree_util.keystr(path)}",
            str(x.dtype),
            "a floating-point array",
            "pass the parameters of a state, its .params, and not the state",
            TypeError,
        )
    return jnp.asarray(x, jnp.promote_types(x.dtype, jnp.float32))


def _check_alike(first: PyTree, other: PyTree, index: int) -> None:
    """Raise unless two trees have the same structure and shapes."""
    shapes = [jax.tree.map(jnp.shape, tree) for tree in (first, other)]
    if jax.tree.structure(first) != jax.tree.structure(other) or shapes[0] != shapes[1]:
        fail(
            "checkpoints",
            f"number {index} unlike number 0",
            "trees of the same structure and shapes",
            "average checkpoints of one model",
        )
