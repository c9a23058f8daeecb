"""Rows of a batch over the devices of a mesh, where `jax.set_mesh` has one."""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import PartitionSpec
from jaxtyping import Array

# Axes of a mesh that share the rows of a batch, those of them that it has.
AXES = ("data", "fsdp")


def in_rows(x: Any) -> Any:
    """x, kept in pieces along its first axis.

    Parameters that are cut over the same devices leave XLA a choice at every product:
    to bring the pieces of the matrix together, or the rows of the batch. A batch is
    larger. Where its other axes lie remains XLA's choice. Without a mesh, with axes
    that XLA doesn't place, for one row, or where rows don't divide evenly, x stays as
    it is.
    """
    axes = _axes(x.shape[0]) if x.ndim > 2 else ()
    if not axes:
        return x
    others = [PartitionSpec.UNCONSTRAINED] * (x.ndim - 1)
    return jax.lax.with_sharding_constraint(x, PartitionSpec(axes, *others))


def by_rows(function: Callable[..., Array], rows: int, *trees: Any) -> Array:
    """function(*trees), each device working on the rows that it has.

    For a function that takes one row after the other: XLA would bring them all together
    on every device. An array has the rows along its first axis, or is the same for all.
    """
    axes = _axes(rows)
    if not axes:
        return function(*trees)

    def place(x: Array) -> PartitionSpec:
        mine = x.ndim > 0 and x.shape[0] == rows
        return PartitionSpec(axes) if mine else PartitionSpec()

    mapped = jax.shard_map(
        function,
        in_specs=jax.tree.map(place, trees),
        out_specs=PartitionSpec(axes),
        axis_names={*axes},
        check_vma=False,
    )
    return mapped(*trees)


def _axes(rows: int) -> tuple[str, ...]:
    """The axes of the mesh that so many rows lie over; none where there is no need."""
    mesh = jax.sharding.get_abstract_mesh()
    axes = tuple(name for name in AXES if name in mesh.auto_axes)
    pieces = math.prod(mesh.shape[name] for name in axes)
    return axes if pieces > 1 and rows % pieces == 0 else ()
