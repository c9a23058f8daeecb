"""What the leaves of a pytree are called: the words of their paths."""

from collections import Counter
from typing import Any

import jax
from jaxtyping import PyTree

# Flax wraps each parameter in a variable; the way into it adds one of these.
_WRAPPERS = frozenset({"value", "raw_value"})


def leaf_names(tree: PyTree) -> list[tuple[str, ...]]:
    """The path of every leaf as words, in the order of `jax.tree.leaves`.

    The attribute through which a Flax variable holds its array is left out, so that a
    parameter has one name, `("layers", "kernel")`, in an `nnx.State` and in a dict.

    Args:
      tree: any pytree.

    Returns:
      One tuple of words a leaf.
    """
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
    below = Counter(path[:depth] for path in paths for depth in range(len(path)))
    names = []
    for path in paths:
        words = tuple(_word(entry) for entry in path)
        wrapped = isinstance(path[-1], jax.tree_util.GetAttrKey) if path else False
        if wrapped and words[-1] in _WRAPPERS and below[path[:-1]] == 1:
            words = words[:-1]
        names.append(words)
    return names


def _word(entry: Any) -> str:
    """One step of a path: the key of a dict, an index, the name of an attribute."""
    for attribute in ("key", "idx", "name"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)
