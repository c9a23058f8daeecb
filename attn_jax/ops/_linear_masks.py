"""What linear attention asks of a mask: rules it honours, tokens that count, runs."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from attn_jax.ops._mask_rules import Causal, Dense, Padding, Prefix, Segments, Window
from attn_jax.ops._shapes import is_traced, lift
from attn_jax.ops.masks import Mask, UnsupportedMaskError, as_mask, causal

F = TypeVar("F", bound=Callable[..., Any])


def linear_op(*static_argnames: str) -> Callable[[F], F]:
    """jit, after the checks that need concrete values."""

    def decorate(function: F) -> F:
        compiled = jax.jit(function, static_argnames=static_argnames)

        @wraps(function)
        def call(*args: Any, mask: Mask | None = None, **kwargs: Any) -> Any:
            mask = as_mask(mask)
            _refuse(mask)
            _check_one_run(mask)
            return compiled(*args, mask=mask, **kwargs)

        return call  # pyright: ignore[reportReturnType]

    return decorate


def is_causal(mask: Mask, t: int, s: int) -> bool:
    """Whether each query sees the keys up to itself, less padding and segments."""
    return (
        t == s
        and bool(mask.find(Causal))
        and not mask.find(Prefix)
        and all(_at_zero(rule.start) for rule in mask.find(Causal))
        and len(mask.find(Segments)) <= 1
        and all(rule.keys is None for rule in mask.find(Segments))
    )


def require_causal(mask: Mask | None, q: Array, k: Array, name: str) -> Mask:
    """The mask of a form that is causal by nature; None is causal()."""
    mask = as_mask(mask)
    mask = mask if mask.rules else causal()
    t, s = q.shape[-3], k.shape[-3]
    if not is_causal(mask, t, s):
        rules = " & ".join(type(rule).__name__.lower() for rule in mask.rules)
        raise UnsupportedMaskError(
            f"mask: {name} is causal by nature, t = s and no offset; got {rules} with "
            f"t = {t} queries and s = {s} keys; expected None or causal(), joined with "
            "padding or one segments(ids) as needed; linear_attention takes the others"
        )
    return mask


def _at_zero(start: Any) -> bool:
    return start is None or (isinstance(start, int) and start == 0)


def per_token(x: Array, leading: tuple[int, ...], t: int, name: str) -> Array:
    """A rule's array, one entry a token, broadcast to the inputs' leading axes."""
    fits = (
        x.ndim <= len(leading) + 1
        and x.shape[-1] == t
        and all(
            m in (1, n) for m, n in zip(x.shape[-2::-1], leading[::-1], strict=False)
        )
    )
    if not fits:
        raise ValueError(
            f"mask: {name} has shape {x.shape} for leading axes {leading} and {t} "
            f"tokens; expected (*b, {t}), where any leading axis may be 1"
        )
    return jnp.broadcast_to(lift(x, len(leading) + 1), (*leading, t))


def real_tokens(
    mask: Mask, leading: tuple[int, ...], t: int, s: int
) -> tuple[Any, Any]:
    """Real keys Bool[*b s] and real queries Bool[*b t]; None where all are."""
    keys = queries = None
    for rule in mask.find(Padding):
        real = per_token(rule.keys, leading, s, "padding(keys)")
        keys = real if keys is None else keys & real
        if rule.queries is not None:
            real = per_token(rule.queries, leading, t, "padding(queries)")
            queries = real if queries is None else queries & real
    return keys, queries


def runs(real: Any, ids: Any, t: int, carried: bool) -> tuple[Any, Any]:
    """`run` and `sees` of CausalInputs, from the last real key at or before a token."""
    if real is None and ids is None:
        return None, None
    if real is None:
        last = jnp.broadcast_to(jnp.arange(t), ids.shape)
    else:
        where = jnp.arange(t).reshape((1,) * (real.ndim - 1) + (t,))
        last = jax.lax.cummax(jnp.where(real, where, -1), axis=real.ndim - 1)
    sees = None if real is None or carried else last >= 0
    if ids is None or t == 0:
        return None, sees
    filled = jnp.take_along_axis(ids, jnp.maximum(last, 0), axis=-1)
    changes = (filled[..., 1:] != filled[..., :-1]) & (last[..., :-1] >= 0)
    run = jnp.cumsum(changes, axis=-1, dtype=jnp.int32)
    run = jnp.concatenate([jnp.zeros_like(last[..., :1], dtype=jnp.int32), run], -1)
    same = filled == ids
    return run, same if sees is None else sees & same


def _refuse(mask: Mask) -> None:
    for kind, why in (
        (Window, "a sum over keys can't drop the keys that leave a window"),
        (Dense, "one sum over keys serves every query, so queries can't choose keys"),
    ):
        if mask.find(kind):
            raise UnsupportedMaskError(
                f"mask: linear attention cannot honour {kind.__name__.lower()}(...): "
                f"{why}; expected full, causal, prefix, padding or segments; use "
                "softmax_attention for this mask"
            )


def _check_one_run(mask: Mask) -> None:
    """Concrete segment ids must be contiguous; traced ones are the caller's promise."""
    real = [rule.keys for rule in mask.find(Padding)]
    for rule in mask.find(Segments):
        if is_traced(real, rule.key_ids) or rule.key_ids.size == 0:
            continue
        ids = np.asarray(rule.key_ids)
        keep = np.ones((1,) * ids.ndim, bool)
        for x in real:
            keep = keep & np.asarray(x)
        ids, keep = np.broadcast_arrays(ids, keep)
        t = ids.shape[-1]
        for row, kept in zip(ids.reshape(-1, t), keep.reshape(-1, t), strict=True):
            row = row[kept]
            starts = row[np.flatnonzero(np.diff(row, prepend=row[:1] - 1))]
            found, counts = np.unique(starts, return_counts=True)
            if np.any(counts > 1):
                again = found[counts > 1][0]
                raise ValueError(
                    f"mask: segments has id {again} in more than one run; linear "
                    "attention expects each id in one contiguous run of real tokens; "
                    "give every run an id of its own"
                )
