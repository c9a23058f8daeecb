"""Parameters keep their initial values whatever else a model contains."""

import zlib

import jax
from flax import nnx


def named_rngs(rngs: nnx.Rngs, *names: str) -> tuple[nnx.Rngs, ...]:
    """One stream a name, so that a part draws the same numbers in every model.

    The streams depend on the next `params` key and the names, not on their order or
    number: two models that differ in one part share the initial values of the rest.
    """
    key = rngs.params()
    return tuple(
        nnx.Rngs(params=jax.random.fold_in(key, zlib.crc32(name.encode())))
        for name in names
    )
