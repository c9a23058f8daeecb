"""The documents of one side, gathered into shards while they come."""

import hashlib
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import numpy as np

from attn_jax.data._checks import fail
from attn_jax.data._shard_index import Index


class Full(NamedTuple):
    """A shard that is not written yet."""

    tokens: np.ndarray
    documents: int
    seen: str


class Side:
    """The documents of one side, gathered into shards.

    The last shard that is full is held back until the next one is, so that what is left
    over at the end, which may be next to nothing, joins it.
    """

    def __init__(
        self, name: str, index: Index, save: Callable[[str, Full], None]
    ) -> None:
        done = index.shards[name]
        self._name, self._index, self._save = name, index, save
        self._written = sum(shard.documents for shard in done)
        self._expected = done[-1].seen if done else None
        self._seen, self._met = hashlib.sha256(), 0
        self._held: Full | None = None
        self._parts: list[np.ndarray] = []
        self._size = 0

    def has(self, digest: bytes) -> bool:
        """Whether the next document is in a shard already."""
        if self._met == self._written:
            return False
        self._met += 1
        self._seen.update(digest)
        if self._met == self._written and self._seen.hexdigest() != self._expected:
            self._refuse("other documents")
        return True

    def add(self, digest: bytes, ids: list[int]) -> None:
        self._seen.update(digest)
        dtype, separator = self._index.dtype, self._index.separator
        self._parts.append(np.array([separator, *ids], dtype))
        self._size += len(ids) + 1
        if self._size >= self._index.shard_tokens:
            if self._held is not None:
                self._save(self._name, self._held)
            self._held = self._gathered()
            self._parts, self._size = [], 0

    def finish(self) -> None:
        """Write what is left."""
        if self._met < self._written:
            self._refuse("fewer documents")
        last, held = self._gathered(), self._held
        if held is not None:
            tokens = np.concatenate([held.tokens, last.tokens])
            last = Full(tokens, held.documents + last.documents, last.seen)
        if last.documents:
            self._save(self._name, last)
        if not self._index.shards[self._name]:
            fail(
                "documents",
                f"{self._index.source}, of which none is for {self._name} with "
                f"validation_fraction {self._index.validation_fraction}",
                "at least one for each side",
                "pass more documents, or another fraction; files of several documents "
                "are cut at a separator",
            )

    def _gathered(self) -> Full:
        tokens = np.concatenate([np.empty(0, self._index.dtype), *self._parts])
        return Full(tokens, len(self._parts), self._seen.hexdigest())

    def _refuse(self, what: str) -> NoReturn:
        fail(
            "documents",
            f"{what} than when {self._name} was being written",
            "those of the call that was stopped, in their order",
            "bring them back, or remove the folder to begin anew",
        )
