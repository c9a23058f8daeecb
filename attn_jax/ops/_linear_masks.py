"""What linear attention asks of a mask: rules it honours, tokens that count, runs."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from attn_jax.ops._entry import check_options
from attn_jax.ops._mask_rules import Causal, Dense, Padding, Prefix, Segments, Window
from attn_jax.ops._shapes import check_array, check_qkv, is_traced, lift
from attn_jax.ops.debugging import quietly, report_blind
from attn_jax.ops.feature_maps import check_feature_map, elu_plus_one
from attn_jax.ops.masks import Mask, UnsupportedMaskError, as_mask, causal

F = TypeVar("F", bound=Callable[..., Any])


def linear_op(*static_argnames: str) -> Callable[[F], F]:
    """jit, after the checks that need concrete values."""

    def decorate(function: F) -> F:
        compiled = jax.jit(function, static_argnames=static_argnames)

        @functools.wraps(function)
        def call(
            q: Array, k: Array, v: Array, *, mask: Mask | None = None, **options: Any
        ) -> Any:
            check_array("v", v)
            check_qkv(q, k, v)
            mask = as_mask(mask)
            check_options(options)
            _check_map(q, **options)
            _refuse(mask)
            check_one_run(mask)
            mask = _drop_zero_offsets(mask, q, k)
            with quietly():
                out = compiled(q, k, v, mask=mask, **options)
            if options.get("initial_state") is None:
                report_blind(mask, q.shape[:-3], q.shape[-2], q.shape[-3], k.shape[-3])
            return out

        return call  # pyright: ignore[reportReturnType]

    return decorate


def _check_map(
    q: Array,
    *,
    feature_map: Any = elu_plus_one,
    eps: Any = None,
    normalize: bool = True,
    **_: Any,
) -> None:
    """The feature map, and whether its sums are divided by."""
    if not isinstance(normalize, bool):
        raise TypeError(f"normalize: got {normalize!r}; expected True or False")
    if eps is not None and not normalize:
        raise ValueError(
            f"eps: got {eps} with normalize=False; expected None, since nothing is "
            "divided that it could be added to; leave one of them out"
        )
    check_feature_map(feature_map, q, signed=not normalize)


def is_causal(mask: Mask, t: int, s: int) -> bool:
    """Whether each query sees the keys up to itself, less padding and segments."""
    return (
        t == s
        and bool(mask.find(Causal))
        and not mask.find(Prefix)
        and all(rule.start is None for rule in mask.find(Causal))
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


def _drop_zero_offsets(mask: Mask, q: Array, k: Array) -> Mask:
    """The mask without concrete offsets of 0, which say nothing where t = s."""
    if q.ndim < 3 or k.ndim < 3 or q.shape[-3] != k.shape[-3]:
        return mask

    def drop(rule: Any) -> Any:
        zero = isinstance(rule, Causal) and isinstance(rule.start, int)
        return Causal() if zero and rule.start == 0 else rule

    return Mask(tuple(drop(rule) for rule in mask.rules))


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


def check_one_run(mask: Mask) -> None:
    """Concrete segment ids must be contiguous; traced ones are the caller's promise.

    An id at padding counts only where its token still asks for the keys of that id.
    """
    padding = mask.find(Padding)
    for rule in mask.find(Segments):
        if is_traced(rule, padding) or 0 in (rule.queries.size, rule.key_ids.size):
            continue
        ids = np.asarray(rule.key_ids)
        real = _all([each.keys for each in padding])
        asks = _all([each.queries for each in padding if each.queries is not None])
        asks = asks if rule.keys is None else np.False_
        ids, real, asks = np.broadcast_arrays(ids, real, asks)
        for row, keys, queries in zip(*map(_rows, (ids, real, asks)), strict=True):
            _check_row(row[keys | (queries & np.isin(row, row[keys]))])


def _all(parts: list[Array]) -> Any:
    """Where every part is True."""
    return functools.reduce(np.logical_and, map(np.asarray, parts), np.True_)


def _rows(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, x.shape[-1])


def _check_row(row: np.ndarray) -> None:
    starts = row[np.flatnonzero(np.diff(row, prepend=row[:1] - 1))]
    found, counts = np.unique(starts, return_counts=True)
    if np.any(counts > 1):
        raise ValueError(
            f"mask: segments has id {found[counts > 1][0]} in more than one run; "
            "linear attention expects each id in one contiguous run of real tokens; "
            "give every run an id of its own"
        )
