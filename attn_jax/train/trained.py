"""Which leaves of a model's state are trained, and which are kept as they are."""

from typing import Any

import jax
from jaxtyping import PyTree


def split(params: PyTree) -> tuple[PyTree, PyTree]:
    """What is trained and what is kept, each with None in the other's places.

    A Flax variable that is no `nnx.Param`, such as the matrix of a fixed Synthesizer,
    is kept. Every other leaf is trained.
    """
    trained = jax.tree.map(lambda x: None if _kept(x) else x, params, is_leaf=_kept)
    kept = jax.tree.map(lambda x: x if _kept(x) else None, params, is_leaf=_kept)
    return trained, kept


def join(trained: PyTree, kept: PyTree) -> PyTree:
    """The state that `split` took apart."""
    return jax.tree.map(
        lambda x, y: y if x is None else x, trained, kept, is_leaf=lambda x: x is None
    )


def _kept(x: Any) -> bool:
    # Flax brings rich along, which nobody needs who only imports this package.
    from flax import nnx

    return isinstance(x, nnx.Variable) and not isinstance(x, nnx.Param)
