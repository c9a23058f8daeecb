"""How a state is filed: arrays in nested dicts, under the words of their paths."""

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from attn_jax.train._checks import fail
from attn_jax.train.names import leaf_names


class CheckpointMismatchError(ValueError):
    """A checkpoint holds something else than what is to be restored."""


def _filed_names(tree: PyTree) -> list[tuple[str, ...]]:
    """The name under which each leaf is filed.

    The name of a typed key ends in its kind, so that another kind is another name.
    """
    names = []
    for name, leaf in zip(leaf_names(tree), jax.tree.leaves(tree), strict=True):
        name = name or ("value",)
        names.append((*name, str(leaf.dtype)) if _is_key(leaf) else name)
    dotted = Counter(".".join(name) for name in names)
    if twice := [name for name, count in dotted.items() if count > 1]:
        remedy = "rename the parameters that are called alike"
        fail("state", f"several arrays named {twice}", "one array a name", remedy)
    return names


def _filed(tree: PyTree) -> dict[tuple[str, ...], Any]:
    """The arrays of a state by name; Orbax takes none that has no elements."""
    named = zip(_filed_names(tree), jax.tree.leaves(tree), strict=True)
    return {name: leaf for name, leaf in named if math.prod(leaf.shape)}


def nested(tree: PyTree) -> dict[str, Any]:
    """The arrays of a state in nested dicts, the form in which they are filed."""
    root: dict[str, Any] = {}
    for name, leaf in _filed(tree).items():
        node = root
        for word in name[:-1]:
            node = node.setdefault(word, {})
        node[name[-1]] = leaf
    return root


def restored(read: PyTree, expected: PyTree) -> PyTree:
    """The pytree of the structure of expected with what was read."""
    values = dict(zip(leaf_names(read), jax.tree.leaves(read), strict=True))
    leaves = [
        values[name] if math.prod(leaf.shape) else jnp.zeros(leaf.shape, leaf.dtype)
        for name, leaf in zip(
            _filed_names(expected), jax.tree.leaves(expected), strict=True
        )
    ]
    return jax.tree.unflatten(jax.tree.structure(expected), leaves)


def array(leaf: Any) -> Any:
    """A leaf that has a shape and a dtype: a number becomes an array."""
    return leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf)


def abstract(leaf: Any) -> Any:
    """Shape, dtype and place of an array; one of NumPy stands for itself."""
    leaf = array(leaf)
    if isinstance(leaf, np.ndarray | np.generic):
        return np.asarray(leaf)
    if (
        jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)
        != leaf.dtype
    ):
        fail(
            "abstract_state",
            f"an array of dtype {leaf.dtype}, while jax_enable_x64 is off",
            "a dtype that JAX can hold",
            "turn jax_enable_x64 on, as it was when the checkpoint was written",
        )
    sharding = getattr(leaf, "sharding", None)
    if sharding is None:
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    sharding.shard_shape(leaf.shape)  # Raises where it can't cut that shape.
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def compare(
    expected: PyTree, metadata: PyTree, place: str, *, partial: bool = False
) -> None:
    """Raise unless a checkpoint holds the expected names, shapes and dtypes.

    partial: it may hold others too.
    """
    here = {name: _kind(leaf) for name, leaf in _filed(expected).items()}
    leaves = jax.tree.leaves(metadata)
    there = dict(zip(leaf_names(metadata), map(_kind, leaves), strict=True))
    different = [
        f"  {'.'.join(name)}: {there.get(name, 'nothing')} in the checkpoint, "
        f"{here.get(name, 'nothing')} expected"
        for name in sorted(here.keys() | (set() if partial else there.keys()))
        if here.get(name) != there.get(name)
    ]
    if different:
        fail(
            "abstract_state",
            f"{len(different)} arrays unlike those of {place}",
            "the same names, shapes and dtypes",
            "build model and optimizer as that run did, or use another directory:\n"
            + "\n".join(different),
            CheckpointMismatchError,
        )


def compare_configs(
    here: Mapping[str, Any] | None,
    there: Mapping[str, Any] | None,
    may_differ: Collection[str],
    place: str,
) -> None:
    """Raise unless two configs are one, if both are known, but for what may differ."""
    if here is None or there is None:
        return
    ours, theirs = json.loads(json.dumps(dict(here))), dict(there)
    different = [
        f"  {name}: {theirs.get(name)} in the checkpoint, {ours.get(name)} now"
        for name in sorted((ours.keys() | theirs.keys()) - set(may_differ))
        if ours.get(name) != theirs.get(name)
    ]
    if different:
        fail(
            "config",
            f"{len(different)} fields unlike those of {place}",
            f"the same ones ({', '.join(may_differ) or 'none'} may differ)",
            "go on with that run's config, or use another directory:\n"
            + "\n".join(different),
            CheckpointMismatchError,
        )


def _kind(leaf: Any) -> str:
    """Dtype and shape in words; of a typed key those of its data, as they are filed."""
    if _is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return f"{jnp.dtype(leaf.dtype)}[{','.join(map(str, leaf.shape))}]"


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
