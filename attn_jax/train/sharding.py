"""One mesh for every run: where parameters, optimizer state and batches lie.

    data       copies of the model, each with rows of the batch of its own
    fsdp       rows, too, and pieces of the parameters, brought together layer by layer
    tensor     heads, the width of feed-forward layers, and the vocabulary
    sequence   tokens of a row

XLA partitions the same program for any of them (GSPMD): set the mesh with
`jax.set_mesh`, and give arrays their places with `init_on` and `shard_batch`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from attn_jax.train._checks import fail, integer
from attn_jax.train._logical_axes import check_heads, spec_of
from attn_jax.train.names import leaf_names

AXES = ("data", "fsdp", "tensor", "sequence")
ROWS = ("data", "fsdp")


def parse_mesh(line: str) -> dict[str, int]:
    """The devices along each axis that a line such as "data=2,fsdp=4" asks for.

    Raises:
      TypeError: something else than a line.
      ValueError: a name that is no axis, one that is there twice, a number below 1.
    """
    expected = f"axes and numbers such as data=2,fsdp=4, of {', '.join(AXES)}"
    if not isinstance(line, str):
        fail("mesh", repr(line), expected, "pass such a line", TypeError)
    sizes: dict[str, int] = {}
    for part in line.replace(" ", "").split(","):
        name, _, number = part.partition("=")
        if name not in AXES or not number.isdecimal() or int(number) < 1:
            fail("mesh", f"{part!r} in {line!r}", expected, "write axis=devices")
        if name in sizes:
            fail("mesh", f"{name} twice in {line!r}", expected, "name each axis once")
        sizes[name] = int(number)
    return {name: sizes.get(name, 1) for name in AXES}


def make_mesh(line: str, *, devices: Sequence[Any] | None = None) -> Mesh:
    """The mesh of a line such as "data=2,fsdp=4"; axes left out are of one device.

    Args:
      line: axis=devices, with commas between: of data, fsdp, tensor and sequence.
      devices: those of the mesh; None is the first ones of this run.

    Raises:
      ValueError: a line that says no mesh; more devices than there are, or, with
        several hosts, fewer.
    """
    sizes = parse_mesh(line)
    here = list(jax.devices() if devices is None else devices)
    count = math.prod(sizes.values())
    if count > len(here) or (count < len(here) and jax.process_count() > 1):
        fail(
            "mesh",
            f"{line}, {count} devices",
            f"{'the' if jax.process_count() > 1 else 'at most the'} {len(here)} that "
            "are here",
            "pass other numbers, or start on more devices (on a CPU, "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count} simulates them)",
        )
    types = (AxisType.Auto,) * len(AXES)
    shape = tuple(sizes.values())
    return jax.make_mesh(shape, AXES, devices=here[:count], axis_types=types)


def specs(tree: PyTree, mesh: Mapping[str, int]) -> PyTree:
    """Where each leaf of parameters, optimizer state or a whole state lies.

    The state of the optimizer lies where its parameter does.

    Args:
      tree: arrays, or shapes from `jax.eval_shape`.
      mesh: devices along each axis, as in `Mesh.shape`.

    Raises:
      TypeError: a mesh that is no mapping.
      ValueError: num_heads or num_kv_heads that the mesh doesn't divide.
    """
    if not isinstance(mesh, Mapping):
        remedy = "pass mesh.shape, or what parse_mesh returns"
        fail("mesh", repr(mesh), "devices along each axis", remedy, TypeError)
    leaves, structure = jax.tree.flatten(tree)
    named = [
        (name, leaf.shape) for name, leaf in zip(leaf_names(tree), leaves, strict=True)
    ]
    check_heads(named, mesh)
    return jax.tree.unflatten(structure, (spec_of(*each, mesh) for each in named))


def shardings(tree: PyTree, mesh: Mesh) -> PyTree:
    """`specs` on a mesh, as `jax.device_put` and `jax.jit` take them."""
    _check_mesh(mesh)
    return jax.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        specs(tree, mesh.shape),
        is_leaf=_is_spec,
    )


def init_on(mesh: Mesh | None, init: Callable[..., PyTree], *args: Any) -> PyTree:
    """init(*args), each device computing its own pieces: no device holds the whole.

    Args:
      mesh: None is init(*args) as it is.
      init: of a state or of parameters, for `jax.jit`.
      args: static ones, such as a seed.
    """
    if mesh is None:
        return init(*args)
    _check_mesh(mesh)

    def call() -> PyTree:
        return init(*args)

    with jax.set_mesh(mesh):
        return jax.jit(call, out_shardings=shardings(jax.eval_shape(call), mesh))()


def constrain(tree: PyTree) -> PyTree:
    """Under jit: the tree, laid out as `specs` says on the mesh that is set, if any."""
    mesh = axes_here()
    if math.prod(mesh.values()) == 1:
        return tree
    return jax.tree.map(jax.lax.with_sharding_constraint, tree, specs(tree, mesh))


def axes_here() -> dict[str, int]:
    """Under jit: the devices along our axes of the mesh that is set, if any."""
    mesh = jax.sharding.get_abstract_mesh()
    return {name: mesh.shape[name] for name in AXES if name in mesh.auto_axes}


def shard_batch(batch: PyTree, mesh: Mesh | None, *, fill: bool = False) -> PyTree:
    """A batch on the mesh: rows over data and fsdp, tokens of b t over sequence.

    Args:
      batch: arrays whose first axis is of rows; with several hosts, a host's own rows.
      mesh: None is the batch as it is.
      fill: for evaluation: fills rows up to what the mesh divides, with zeros, at
        weight 0, and lets a length that it doesn't divide be whole.

    Raises:
      TypeError: no mesh, such as a line for `make_mesh`.
      ValueError: rows or tokens that the mesh doesn't divide; rows to fill up in a
        batch without weights.
    """
    if mesh is None:
        return batch
    _check_mesh(mesh)
    if not {*AXES} <= {*mesh.axis_names}:
        got = f"axes {', '.join(map(str, mesh.axis_names))}"
        fail("mesh", got, f"those of make_mesh, {', '.join(AXES)}", "make it with that")
    pieces = _pieces_here(mesh.shape)
    if fill:
        batch = pad_rows(batch, pieces)
    names, (leaves, structure) = leaf_names(batch), jax.tree.flatten(batch)
    placed = []
    for name, x in zip(names, leaves, strict=True):
        x = np.asarray(x)
        label = "/".join(("batch", *name))
        if x.ndim == 0 or x.shape[0] % pieces:
            _refuse_rows(label, x.shape, mesh.shape, pieces)
        spec: list[Any] = [ROWS]
        n = mesh.shape["sequence"]
        if x.ndim == 2 and n > 1:
            if x.shape[1] % n == 0:
                spec.append("sequence")
            elif not fill:
                _refuse_tokens(label, x.shape, n)
        place = NamedSharding(mesh, PartitionSpec(*spec))
        placed.append(jax.make_array_from_process_local_data(place, x))
    return jax.tree.unflatten(structure, placed)


def rows_over(mesh: Mapping[str, int]) -> int:
    """How many pieces the rows of a batch are cut into."""
    return math.prod(mesh[name] for name in ROWS if name in mesh)


def pad_rows(batch: PyTree, multiple: int) -> PyTree:
    """The batch with rows of zeros, of weight 0, up to a multiple of so many rows."""
    multiple = integer("multiple", multiple, minimum=1)
    names, leaves = leaf_names(batch), jax.tree.leaves(batch)
    missing = -len(leaves[0]) % multiple
    if not missing:
        return batch
    if not any(name and name[-1] == "weights" for name in names):
        fail(
            "batch",
            f"{len(leaves[0])} rows, no multiple of {multiple}, and no weights",
            "an array called weights, with 0 where a row doesn't count",
            "give the batch one, or other rows",
        )

    def pad(x: Any) -> np.ndarray:
        return np.pad(np.asarray(x), [(0, missing)] + [(0, 0)] * (np.ndim(x) - 1))

    return jax.tree.map(pad, batch)


def _pieces_here(mesh: Mapping[str, int]) -> int:
    """Of the rows of a batch, how many pieces this host has."""
    pieces, hosts = rows_over(mesh), _hosts()
    if pieces % hosts:
        fail(
            "mesh",
            f"data={mesh['data']}, fsdp={mesh['fsdp']} on {hosts} hosts",
            f"data x fsdp to be a multiple of {hosts}: each host has rows of its own",
            "put tensor and sequence inside a host",
        )
    return pieces // hosts


def _hosts() -> int:
    return jax.process_count()


def _check_mesh(mesh: Any) -> None:
    """A mesh, not the line that says one."""
    if not isinstance(mesh, Mesh):
        line = repr(mesh) if isinstance(mesh, str) else '"data=2"'
        fail("mesh", repr(mesh), "a Mesh", f"pass make_mesh({line})", TypeError)


def _is_spec(x: Any) -> bool:
    return isinstance(x, PartitionSpec)


def _refuse_rows(
    label: str, shape: tuple[int, ...], mesh: Mapping[str, int], pieces: int
) -> None:
    here = "" if _hosts() == 1 else f", {pieces} of them on each host"
    fail(
        label,
        f"shape {shape} on a mesh of data={mesh['data']}, fsdp={mesh['fsdp']}",
        f"rows that data x fsdp = {rows_over(mesh)} devices divide{here}",
        "change the batch size or the mesh",
    )


def _refuse_tokens(label: str, shape: tuple[int, ...], devices: int) -> None:
    fail(
        label,
        f"{shape[1]} tokens on a mesh of sequence={devices}",
        f"a length that {devices} devices divide",
        "change the length or the mesh",
    )
