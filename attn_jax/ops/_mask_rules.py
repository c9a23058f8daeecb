"""The rules a `Mask` is made of. Each builds its own part of the t x s array.

Fields that hold arrays are annotated in comments: tree transformations put anything
there.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from attn_jax.ops._shapes import lift


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Positional:
    """A rule on absolute positions: query i stands at start + i, key j at j."""

    start: Any = field(default=None, kw_only=True)

    def query_positions(self, t: int, s: int) -> Int[Array, "*b 1 t 1"]:
        """Absolute positions of t queries, shaped to compare with `keys(s)`."""
        if self.start is None and t != s:
            raise ValueError(
                f"mask: {type(self).__name__.lower()} is ambiguous for t = {t} queries "
                f"and s = {s} keys; say where the first query stands with "
                f"mask.offset(start), e.g. .offset({s - t}) when the last query is "
                "the last key"
            )
        start = jnp.asarray(0 if self.start is None else self.start)
        return start[..., None, None, None] + jnp.arange(t)[:, None].reshape(
            (1,) * (start.ndim + 1) + (t, 1)
        )

    def allows(self, i: Any, j: Any) -> Bool[Array, "..."]:
        """Whether queries at absolute positions i see keys at j; arrays broadcast."""
        raise NotImplementedError

    def allowed(self, t: int, s: int) -> Bool[Array, "*b 1 t s"]:
        i = self.query_positions(t, s)
        return self.allows(i, _key_positions(s, i.ndim))


def _key_positions(s: int, ndim: int) -> Int[Array, "..."]:
    return jnp.arange(s).reshape((1,) * (ndim - 1) + (s,))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Causal(Positional):
    """Key j is visible when j <= query position."""

    def allows(self, i: Any, j: Any) -> Bool[Array, "..."]:
        return j <= i


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Window(Positional):
    """Key j is visible when -left <= j - query position <= right."""

    left: int = field(metadata={"static": True})
    right: int = field(metadata={"static": True})

    def allows(self, i: Any, j: Any) -> Bool[Array, "..."]:
        distance = j - i
        return (-self.left <= distance) & (distance <= self.right)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Prefix(Positional):
    """Key j is visible when j < length or j <= query position."""

    length: Any

    def allows(self, i: Any, j: Any) -> Bool[Array, "..."]:
        return j <= jnp.maximum(i, self.length - 1)

    def allowed(self, t: int, s: int) -> Bool[Array, "*b 1 t s"]:
        i = self.query_positions(t, s)
        length = jnp.asarray(self.length)[..., None, None, None]
        ndim = max(i.ndim, length.ndim)
        lifted = replace(self, length=lift(length, ndim))
        return lifted.allows(lift(i, ndim), _key_positions(s, ndim))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Padding:
    """Keys, and queries where given, that are real tokens (True)."""

    keys: Any  # Bool[*b s]
    queries: Any = None  # Bool[*b t]

    def allowed(self, t: int, s: int) -> Bool[Array, "*b 1 #t s"]:
        _check_length("padding(keys)", self.keys, s, "keys")
        keys = self.keys[..., None, None, :]
        if self.queries is None:
            return keys
        _check_length("padding(queries)", self.queries, t, "queries")
        queries = self.queries[..., None, :, None]
        ndim = max(keys.ndim, queries.ndim)
        return lift(keys, ndim) & lift(queries, ndim)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Segments:
    """A query attends to keys with its own id."""

    queries: Any  # Int[*b t]
    keys: Any = None  # Int[*b s]; None is the queries'

    @property
    def key_ids(self) -> Int[Array, "*b s"]:
        return self.queries if self.keys is None else self.keys

    def allowed(self, t: int, s: int) -> Bool[Array, "*b 1 t s"]:
        _check_length("segments(queries)", self.queries, t, "queries")
        _check_length("segments(keys)", self.key_ids, s, "keys")
        queries = self.queries[..., None, :, None]
        keys = self.key_ids[..., None, None, :]
        ndim = max(keys.ndim, queries.ndim)
        return lift(queries, ndim) == lift(keys, ndim)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Dense:
    """An explicit array, True = may attend."""

    array: Any  # Bool[*#b #h #t #s]

    def allowed(self, t: int, s: int) -> Bool[Array, "*b h #t #s"]:
        if self.array.shape[-2] not in (1, t) or self.array.shape[-1] not in (1, s):
            raise ValueError(
                f"mask: dense(allowed) has shape {self.array.shape} for t = {t} "
                f"queries and s = {s} keys; expected (*b, h, {t}, {s}), where any "
                "axis may be 1; slice or pad the array to these lengths"
            )
        return self.array


Rule = Causal | Window | Prefix | Padding | Segments | Dense


def _check_length(name: str, x: Array, length: int, axis: str) -> None:
    if x.shape[-1] != length:
        raise ValueError(
            f"mask: {name} has shape {x.shape} for {length} {axis}; expected "
            f"{length} on its last axis"
        )
