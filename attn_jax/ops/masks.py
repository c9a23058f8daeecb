"""Masks as rules: what a query may attend to, said once and built late.

A `Mask` is a conjunction of rules. The rules keep their structure (causal, window,
padding, ...), so that a mechanism can use it; no t x s array exists until somebody
calls `allowed`. Everywhere, True means "may attend".
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from attn_jax.ops._mask_rules import (
    Causal,
    Dense,
    Padding,
    Positional,
    Prefix,
    Rule,
    Segments,
    Window,
)
from attn_jax.ops._shapes import lift


class UnsupportedMaskError(ValueError):
    """A mechanism cannot honour a rule of the mask it was given."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Mask:
    """What queries may attend to: every rule must allow it. A frozen pytree.

    Build one with `full`, `causal`, `window`, `prefix`, `padding`, `segments` or
    `dense`, and join them with `&`.
    """

    rules: tuple[Rule, ...] = ()

    def __and__(self, other: "Mask | None") -> "Mask":
        return Mask(self.rules + as_mask(other).rules)

    __rand__ = __and__

    def __bool__(self) -> NoReturn:
        """Raises: of `a and b` Python would take b alone, and leave out a's rules."""
        raise TypeError(
            "mask: got `and`, `or`, `not` or `if` on a Mask; expected & between masks, "
            "which are neither true nor false; ask `mask is None` whether there is one"
        )

    def offset(self, start: int | Int[Array, "*b"]) -> "Mask":
        """Places the first query at absolute position `start`.

        Args:
          start: one number, or one an example; may be negative (those queries stand
            before every key). Offsets add up. Only positional rules move.
        """
        _check_integer("offset(start)", start)

        def move(rule: Rule) -> Rule:
            if not isinstance(rule, Positional):
                return rule
            return replace(
                rule, start=start if rule.start is None else rule.start + start
            )

        return Mask(tuple(move(rule) for rule in self.rules))

    def allowed(self, t: int, s: int) -> Bool[Array, "*b h {t} {s}"]:
        """The t x s array of the mask; batch and head axes are 1 where nothing varies.

        Raises:
          ValueError: a positional rule with t != s and no offset, or an array in a
            rule whose length is neither t nor s.
        """
        parts = [rule.allowed(t, s) for rule in self.rules]
        ndim = max([3, *(part.ndim for part in parts)])
        parts = [lift(part, ndim) for part in parts]
        every = jnp.ones((1,) * (ndim - 2) + (t, s), bool)
        return reduce(operator.and_, parts, every)

    def find(self, kind: type) -> tuple[Any, ...]:
        """The rules of one kind."""
        return tuple(rule for rule in self.rules if isinstance(rule, kind))


def full() -> Mask:
    """Every query attends to every key; what mask=None means, also when t != s."""
    return Mask()


def causal() -> Mask:
    """Key j is visible to the query at position i when j <= i."""
    return Mask((Causal(),))


def window(left: int, right: int = 0) -> Mask:
    """Key j is visible to the query at position i when i - left <= j <= i + right.

    `left` and `right` count keys besides the query's own, so that `window(w - 1)`
    lets w keys through.
    """
    for name, value in (("left", left), ("right", right)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(
                f"window({name}): got {value!r}; expected an int >= 0, the number of "
                "keys on that side besides the query's own"
            )
    return Mask((Window(left, right),))


def prefix(length: int | Int[Array, "*b"]) -> Mask:
    """Key j is visible when j < length, or j <= the query's position (prefix LM)."""
    _check_integer("prefix(length)", length)
    return Mask((Prefix(length),))


def padding(
    keys: Bool[Array, "*b s"], queries: Bool[Array, "*b t"] | None = None
) -> Mask:
    """True marks a real token. A padded key is not seen; a padded query's output is 0.

    Args:
      keys: nobody attends to a key that is False.
      queries: a query that is False attends to nothing. In self-attention over a
        padded batch pass the same array twice: `padding(real, real)`.
    """
    _check_bool("padding(keys)", keys, "Bool[*b s]", 1)
    if queries is not None:
        _check_bool("padding(queries)", queries, "Bool[*b t]", 1)
    return Mask((Padding(_array(keys), None if queries is None else _array(queries)),))


def segments(
    queries: Int[Array, "*b t"], keys: Int[Array, "*b s"] | None = None
) -> Mask:
    """Attention inside segments of the same id only, as for packed documents.

    Every id is alike: padding is said with `padding`, not with an id of its own.
    """
    for name, ids in (("queries", queries), ("keys", keys)):
        if ids is None:
            continue
        _check_integer(f"segments({name})", ids)
        if jnp.ndim(ids) < 1:
            raise ValueError(
                f"segments({name}): got a scalar; expected one id a token, Int[*b t]"
            )
    return Mask((Segments(_array(queries), None if keys is None else _array(keys)),))


def dense(allowed: Bool[Array, "*b h t s"]) -> Mask:
    """An explicit mask: True = may attend; any axis may be 1 and then broadcasts."""
    _check_bool("dense(allowed)", allowed, "Bool[*#b #h #t #s]", 3)
    return Mask((Dense(_array(allowed)),))


def as_mask(mask: Mask | None) -> Mask:
    """`mask` itself, `full()` for None; anything else raises TypeError."""
    if mask is None:
        return Mask()
    if isinstance(mask, Mask):
        return mask
    what = f"{type(mask).__name__}"
    if hasattr(mask, "dtype"):
        what = f"an array of dtype {mask.dtype} and shape {tuple(mask.shape)}"
    raise TypeError(
        f"mask: got {what}; expected None or a Mask from attn_jax.ops.masks: "
        "dense(allowed) for Bool[*b h t s] where True = may attend, padding(keys) for "
        "Bool[*b s] where True = real token, segments(ids) for integer ids, causal() "
        "or window(left); an additive float mask is a bias: pass bias=, or "
        "dense(array == 0)"
    )


def _array(x: Any) -> Array:
    return x if isinstance(x, jax.Array) else jnp.asarray(x)


def _dtype(x: Any) -> Any:
    return x.dtype if hasattr(x, "dtype") else jnp.result_type(x)


def _check_bool(name: str, x: Any, expected: str, ndim: int) -> None:
    if isinstance(x, Sequence):
        x = jnp.asarray(x)
    if not hasattr(x, "dtype") or x.dtype != bool:
        got = f"dtype {x.dtype}" if hasattr(x, "dtype") else type(x).__name__
        raise TypeError(
            f"{name}: got {got}; expected {expected}, True = may attend; compare "
            "first, e.g. lengths[:, None] > positions or array != 0"
        )
    if x.ndim < ndim:
        raise ValueError(
            f"{name}: got shape {tuple(x.shape)} with {x.ndim} axes; expected "
            f"{expected}, at least {ndim}; add the missing axes as size 1, e.g. "
            "allowed[None] for one mask shared by all heads"
        )


def _check_integer(name: str, x: Any) -> None:
    dtype = _dtype(x)
    if not jnp.issubdtype(dtype, jnp.integer):
        raise TypeError(
            f"{name}: got dtype {dtype}; expected an int or an integer array (for a "
            "boolean array of real tokens use padding)"
        )
