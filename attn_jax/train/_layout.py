"""What lies where on a mesh, and how many bytes of it are a device's: a table."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec
from jaxtyping import PyTree

from attn_jax.train._logical_axes import logical_axes
from attn_jax.train.names import leaf_names
from attn_jax.train.sharding import specs


class Placed(NamedTuple):
    """A leaf and its place.

    name: words of its path.
    axes: what its axes mean; None where no rule knows it.
    device_bytes: of the piece that one device holds.
    """

    name: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    axes: tuple[str, ...] | None
    spec: PartitionSpec
    device_bytes: int


def layout(tree: PyTree, mesh: Mapping[str, int]) -> list[Placed]:
    """Every leaf and its place; nothing is allocated.

    Args:
      tree: shapes from `jax.eval_shape`, or arrays.
      mesh: devices along each axis: `Mesh.shape`, or what `parse_mesh` returns.

    Raises:
      ValueError: as in `specs`.
    """
    leaves = zip(
        leaf_names(tree),
        jax.tree.leaves(tree),
        jax.tree.leaves(specs(tree, mesh)),
        strict=True,
    )
    return [
        Placed(
            name,
            tuple(x.shape),
            str(x.dtype),
            logical_axes(name, len(x.shape)),
            spec,
            x.size * x.dtype.itemsize // math.prod(mesh[a] for a in spec if a),
        )
        for name, x, spec in leaves
    ]


def layout_table(state: PyTree, mesh: Mapping[str, int]) -> str:
    """The parameters of a state with their places, and bytes a device of all of it.

    Args: as in `layout`; of a `TrainState`.
    """
    placed = layout(state, mesh)
    rows = [("parameter", "shape", "lies over", "bytes a device")]
    rows += [
        ("/".join(each.name[1:]), _shape(each), _place(each), f"{each.device_bytes:,}")
        for each in placed
        if each.name[0] == "params"
    ]
    lines = list(_aligned(rows))
    for part, what in (("params", "parameters"), ("opt_state", "optimizer state")):
        n = sum(each.device_bytes for each in placed if each.name[0] == part)
        lines.append(f"{what}: {n:,} bytes a device")
    total = sum(each.device_bytes for each in placed)
    devices = ", ".join(f"{name}={n}" for name, n in mesh.items())
    lines.append(f"in all: {total:,} bytes on each of the devices of {devices}")
    return "\n".join(lines)


def _shape(each: Placed) -> str:
    words = each.axes or ("",) * len(each.shape)
    return " x ".join(
        f"{n} {word}".rstrip() for n, word in zip(each.shape, words, strict=True)
    )


def _place(each: Placed) -> str:
    return ", ".join(axis for axis in each.spec if axis) or "every device, whole"


def _aligned(rows: list[tuple[Any, ...]]) -> Iterable[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(n) for cell, n in zip(row[:-1], widths, strict=False)]
        yield "  ".join([*cells, row[-1].rjust(widths[-1])])
