"""A switch that reports queries which may attend to nothing."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.ops._mask_rules import Padding
from attn_jax.ops._shapes import lift
from attn_jax.ops.masks import Mask, as_mask

LOG = logging.getLogger("attn_jax")
SHOWN = 8  # queries of one call that are logged one by one

# Part of what jit compiles for: a function compiled outside `debug` is compiled anew
# inside, and runs as it did before once the context is left.
_on: Any = jax.make_user_context(default_value=False)
_reports: list[list["BlindQuery"]] = []


class BlindQuery(NamedTuple):
    """A query that may attend to no key, though nobody said that it is padding."""

    example: tuple[int, ...]  # index on the leading axes
    query: int
    heads: tuple[int, ...]
    every_head: bool

    def __str__(self) -> str:
        of = f" of example {', '.join(map(str, self.example))}" if self.example else ""
        heads = ", ".join(map(str, self.heads))
        where = "" if self.every_head else f" in head {heads}"
        return f"query {self.query}{of} sees no key{where}"


@contextmanager
def debug() -> Iterator[list[BlindQuery]]:
    """Reports, in every mechanism, the queries that may attend to nothing.

    Their output is 0, which is easily taken for a fault of a kernel; most often a mask
    is inverted, shifted, or says nothing of padding. A query that `padding(keys,
    queries)` marks as padding is not reported.

        with attn_jax.debug() as blind:
            decoder(tokens, mask=mask)
        blind  # [BlindQuery(example=(1,), query=3, ...)]

    Each is logged as a warning of the logger "attn_jax" when it is computed, and stands
    in the list once the context is left. It works under jit, vmap, grad and scan, where
    functions are compiled anew; vmap hides which example a query belongs to. Open it
    around the call, not inside a compiled function, and in one thread at a time.

    Cost: the mask as a t x s array in every call, whatever the implementation.
    """
    found: list[BlindQuery] = []
    _reports.append(found)
    try:
        with _on(True):
            yield found
    finally:
        try:
            jax.effects_barrier()
        finally:
            # By identity: two reports that are equal, as empty ones, are not the same.
            del _reports[next(i for i, each in enumerate(_reports) if each is found)]


def quietly() -> AbstractContextManager[Any]:
    """Inside, nothing is reported: the caller has done so."""
    return _on(False)


def report_blind(
    mask: Mask | None, leading: tuple[int, ...], h: int, t: int, s: int
) -> None:
    """Reports the queries of logits *b h t s that see nothing, inside `debug`."""
    mask = as_mask(mask)
    if not _on.value or (s and not mask.rules):
        return
    ndim = len(leading) + 3
    blind = ~jnp.any(lift(mask.allowed(t, s), ndim), axis=-1)
    for rule in mask.find(Padding):
        if rule.queries is not None:
            blind = blind & lift(rule.queries[..., None, :], ndim - 1)
    jax.debug.callback(_record, jnp.broadcast_to(blind, (*leading, h, t)))


def _record(blind: Any) -> None:
    """On the host, when the values are there."""
    blind = np.moveaxis(np.asarray(blind), -2, -1)
    rows = [
        BlindQuery(
            tuple(example),
            query,
            tuple(np.flatnonzero(blind[(*example, query)]).tolist()),
            bool(blind[(*example, query)].all()),
        )
        for *example, query in np.argwhere(blind.any(axis=-1)).tolist()
    ]
    if _reports:
        known = set(_reports[-1])
        _reports[-1].extend(row for row in rows if row not in known)
    for row in rows[:SHOWN]:
        LOG.warning("%s", row)
    if len(rows) > SHOWN:
        LOG.warning("and %d more queries see no key", len(rows) - SHOWN)
