"""The mesh of a run: --mesh data=2,fsdp=4, on the command line of any experiment.

It says where arrays lie and changes no number beyond rounding, so it is no field of a
config: a run may go on with another one.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import Mesh
from jaxtyping import PyTree

from attn_jax.train import (
    init_on,
    layout_table,
    make_mesh,
    shard_batch,
    shardings,
)
from attn_jax.train.hosts import rows
from attn_jax.train.sharding import pad_rows, rows_over
from experiments.common.errors import fail

OPTION = "--mesh"
HELP = f"{OPTION} data=2,fsdp=4 runs on 8 devices (docs/scaling.md)."


def split_mesh(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The mesh that a command line asks for, None for none, and the other words."""
    words, line = list(arguments), None
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name != OPTION:
            continue
        if not equals and i + 1 == len(words):
            remedy = f"write {OPTION} data=2,fsdp=4"
            fail("mesh", "no value", "axes and numbers of devices", remedy)
        line = value if equals else words[i + 1]
        return line, words[:i] + words[i + (1 if equals else 2) :]
    return line, words


def on_mesh(line: str | None) -> contextlib.AbstractContextManager[Any]:
    """Everything inside computes on the mesh.

    None is one device, as ever; of several hosts all devices, which share rows.
    """
    if line is None and jax.distributed.is_initialized():
        line = f"data={jax.device_count()}"
    return contextlib.nullcontext() if line is None else jax.set_mesh(make_mesh(line))


def current() -> Mesh | None:
    """The mesh that is set."""
    mesh = jax.sharding.get_mesh()
    return None if mesh.empty else mesh


def initial(init: Callable[[], PyTree]) -> PyTree:
    """init(), on the mesh that is set, after a table of what will lie where."""
    mesh = current()
    if mesh is None:
        return init()
    show_layout(layout_table(jax.eval_shape(init), mesh.shape))
    return init_on(mesh, init)


def placed(state: PyTree) -> PyTree:
    """A state on the mesh that is set, or as it is."""
    mesh = current()
    if mesh is None:
        return state
    show_layout(layout_table(state, mesh.shape))
    return jax.device_put(state, shardings(state, mesh))


@functools.cache
def show_layout(table: str) -> None:
    """Print a table, the first time that it comes."""
    print(f"\n{table}\n", flush=True)


def placed_batch(batch: PyTree, *, fill: bool = False) -> PyTree:
    """A batch likewise, of which several hosts have made all rows, each for itself.

    fill: with rows of weight 0 where the mesh doesn't divide them, for evaluation.
    """
    mesh = current()
    if mesh is None:
        return batch
    if fill:
        batch = pad_rows(batch, rows_over(mesh.shape))
    mine = rows(len(jax.tree.leaves(batch)[0]))
    batch = jax.tree.map(lambda x: x[mine.start : mine.stop], batch)
    return shard_batch(batch, mesh, fill=fill)
