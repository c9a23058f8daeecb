"""Where arrays lie on the mesh that `jax.set_mesh` has set, if there is one.

    data, fsdp   share the rows of a batch
    sequence     shares tokens
    tensor       shares heads

An axis of an array that its part of the mesh doesn't divide stays whole, as does
everything without a mesh, with axes of other names, and inside `jax.shard_map`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Int

ROWS, TOKENS, HEADS = ("data", "fsdp"), "sequence", "tensor"


class Cut(NamedTuple):
    """The axes of the mesh that rows, tokens and heads lie over; () is whole."""

    rows: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()

    def spec(self, shape: tuple[int, ...], *axes: str, b: int = 0) -> PartitionSpec:
        """Of an array whose last axes are "tokens", "heads" or "" for whole.

        The axis before them, if any, is that of rows where it is as long as b. One of
        size 1 stays whole: it broadcasts.
        """
        inner = [
            getattr(self, name) if name and n > 1 else ()
            for name, n in zip(axes, shape[len(shape) - len(axes) :], strict=True)
        ]
        outer: list[Any] = [()] * (len(shape) - len(axes))
        if outer and shape[len(outer) - 1] == b and b > 1:
            outer[-1] = self.rows
        return PartitionSpec(*(axis or None for axis in (*outer, *inner)))


def cut(*, rows: int = 1, tokens: int = 1, heads: int = 1) -> Cut:
    """What the mesh divides of so many rows, tokens and heads."""
    return Cut(_axes(ROWS, rows), _axes((TOKENS,), tokens), _axes((HEADS,), heads))


def in_rows(x: Any) -> Any:
    """x: b t ..., kept in pieces along b and t.

    Parameters that are cut over the same devices leave XLA a choice at every product:
    to bring the pieces of the matrix together, or the rows of the batch. A batch is
    larger. Where the other axes lie remains XLA's choice.
    """
    if x.ndim < 3:
        return x
    ours = cut(rows=x.shape[0], tokens=x.shape[1] if x.ndim == 3 else 1)
    if not ours.rows and not ours.tokens:
        return x
    others = [PartitionSpec.UNCONSTRAINED] * (x.ndim - 2)
    spec = PartitionSpec(ours.rows or None, ours.tokens or None, *others)
    return jax.lax.with_sharding_constraint(x, spec)


def in_whole_rows(table: Any) -> Any:
    """table: n m, its rows brought together where the mesh cuts them.

    What is looked up in it then lies as the tokens do, and so does its gradient, which
    XLA would otherwise bring together on every device to cut it anew.
    """
    if not _axes(("fsdp",), 0):
        return table
    spec = PartitionSpec(PartitionSpec.UNCONSTRAINED, None)
    return jax.lax.with_sharding_constraint(table, spec)


def tokens_are_shared() -> bool:
    """Whether the mesh has more than one device along tokens."""
    return bool(_axes((TOKENS,), 0))


def on_each(
    function: Callable[..., Any], ours: Cut, in_specs: Any, out_specs: Any
) -> Callable[..., Any]:
    """function on the pieces that each device has: `jax.shard_map` over our axes.

    Axes of one device belong to it too, so that most meshes leave XLA none of theirs.
    """
    mesh = jax.sharding.get_abstract_mesh()
    single = {name for name in mesh.auto_axes if mesh.shape[name] == 1}
    return jax.shard_map(
        function,
        in_specs=in_specs,
        out_specs=out_specs,
        axis_names={*ours.rows, *ours.tokens, *ours.heads, *single},
        check_vma=False,
    )


def by_tokens(
    function: Callable[[Any, Any], Array], t: int, mine: Any, whole: Any
) -> Array:
    """function(mine, whole) -> *b t h e, each device for the tokens that it has.

    Args:
      t: tokens.
      mine: arrays with t or 1 entries on their last axis but one.
      whole: arrays that every device needs all of.
    """
    ours = Cut(tokens=cut(tokens=t).tokens)
    if not ours.tokens:
        return function(mine, whole)
    places = jax.tree.map(lambda x: ours.spec(x.shape, "tokens", ""), mine)
    everywhere = jax.tree.map(lambda _: PartitionSpec(), whole)
    shape = jax.eval_shape(function, mine, whole).shape
    out = ours.spec(shape, "tokens", "", "")
    return on_each(function, ours, (places, everywhere), out)(mine, whole)


def first_token(length: int) -> Int[Array, ""]:
    """In `on_each`: the position of the first of this device's `length` tokens."""
    return jax.lax.axis_index(TOKENS) * length


def gather_tokens(x: Any, axis: int) -> Any:
    """In `on_each`: the tokens of all devices, brought together along an axis."""
    return jax.lax.all_gather(x, TOKENS, axis=axis, tiled=True)


def _axes(names: tuple[str, ...], size: int) -> tuple[str, ...]:
    """Those that the mesh has; none where they are one device, or don't divide."""
    mesh = jax.sharding.get_abstract_mesh()
    found = tuple(name for name in names if name in mesh.auto_axes)
    pieces = math.prod(mesh.shape[name] for name in found)
    return found if pieces > 1 and size % pieces == 0 else ()
