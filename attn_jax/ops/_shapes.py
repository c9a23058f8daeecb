"""Shape checks shared by the ops: raised before compute, written for people."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array


def compute_dtype(*arrays: Array) -> jnp.dtype:
    """The dtype of logits, softmax, features and states: at least float32."""
    return jnp.promote_types(jnp.result_type(*arrays), jnp.float32)


def is_traced(*values: Any) -> bool:
    """Whether some array's values can't be read, as under jit."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def lift(x: Array, ndim: int) -> Array:
    """x with axes of size 1 in front, up to ndim axes."""
    return x.reshape((1,) * (ndim - x.ndim) + x.shape)


def check_array(name: str, x: Any) -> None:
    """A JAX or NumPy array; a list is not guessed at."""
    if hasattr(x, "dtype") and hasattr(x, "ndim"):
        return
    raise TypeError(
        f"{name}: got {type(x).__name__}; expected an array; convert numbers and lists "
        f"with jnp.asarray({name})"
    )


def check_sizes(least: int = 1, **sizes: int) -> None:
    """Ints from `least` on."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < least:
            raise ValueError(f"{name}: got {size!r}; expected an int >= {least}")


def check_rng(rng: Any, otherwise: str = "") -> None:
    """One typed key; otherwise: what else is taken."""
    dtype = getattr(rng, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        raise TypeError(
            f"rng: got {type(rng).__name__ if dtype is None else dtype}; expected a "
            f"typed key such as jax.random.key(0){otherwise}"
        )
    if rng.ndim:
        raise ValueError(f"rng: got keys of shape {rng.shape}; expected one, rng[i]")


def check_qkv(q: Array, k: Array, v: Array | None = None) -> None:
    """q: *b t h d, k: *b s g d, v: *b s g e, with h a multiple of g."""
    named = {"q": q, "k": k} | ({} if v is None else {"v": v})
    for name, x in named.items():
        _check_float_rank(name, x)
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"k: got {k.shape[-1]} features (last axis of {k.shape}) for q's "
            f"{q.shape[-1]}; expected the same d on q: *b t h d and k: *b s g d"
        )
    check_heads("k", k, "q", q)
    if v is not None and v.shape[:-1] != k.shape[:-1]:
        raise ValueError(
            f"v: got shape {v.shape} for k's {k.shape}; expected the same leading, "
            "length and head axes: k: *b s g d, v: *b s g e"
        )


def check_heads(name: str, x: Array, query_name: str, query: Array) -> None:
    """x: *b _ g _ against query: *b _ h _: same leading axes, h a multiple of g."""
    _check_float_rank(name, x)
    _check_float_rank(query_name, query)
    if x.shape[:-3] != query.shape[:-3]:
        raise ValueError(
            f"{name}: got leading axes {x.shape[:-3]} (shape {x.shape}) for "
            f"{query_name}'s {query.shape[:-3]} (shape {query.shape}); expected the "
            "same; broadcast them first"
        )
    check_groups(name, x.shape[-2], query_name, query.shape[-2])


def check_groups(name: str, g: int, query_name: str, h: int) -> None:
    if g == 0 or h % g:
        raise ValueError(
            f"{name}: got {g} heads for {query_name}'s {h}; expected a number of "
            "key/value heads g that divides the number of query heads h, in the "
            "layout *b t h d"
        )


def _check_float_rank(name: str, x: Array) -> None:
    check_array(name, x)
    if x.ndim < 3:
        raise ValueError(
            f"{name}: got shape {x.shape} with {x.ndim} axes; expected at least 3, "
            "length, heads and features in the layout *b t h d; one head is "
            f"{name}[..., None, :]"
        )
    check_floating(name, x)


def check_floating(name: str, x: Array) -> None:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"{name}: got dtype {x.dtype}; expected a floating dtype; cast it first, "
            f"e.g. {name}.astype(jnp.float32)"
        )
