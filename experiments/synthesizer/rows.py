"""A row's name: its mechanism, and how many heads it has."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
from flax import nnx

from attn_jax.nn import Mechanism
from experiments.common.errors import fail
from experiments.common.mechanisms import mechanism_named


class Row(NamedTuple):
    """A row of the table.

    name: as on the command line, "random+dense@8" say.
    num_heads: None where the study says it.
    """

    name: str
    mechanism: str
    num_heads: int | None

    def build(self) -> Mechanism:
        return mechanism_named(self.mechanism)

    def heads(self, others: int) -> int:
        """Its heads, or as many as others have."""
        return others if self.num_heads is None else self.num_heads


def parse_rows(names: Sequence[str]) -> list[Row]:
    """The rows of names, each checked and there once."""
    if not names:
        fail("--rows", "none", "at least one name", "leave it out for all rows")
    rows = [_parse(name) for name in names]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        fail("--rows", f"{', '.join(twice)} twice", "each once", "--seeds repeats rows")
    return rows


def _parse(name: str) -> Row:
    mechanism, at, heads = name.partition("@")
    if at and not (heads.isdecimal() and int(heads)):
        expected = "a number of heads, at least 1, behind the @"
        fail("--rows", repr(name), expected, f"write {mechanism}@8")
    mechanism_named(mechanism)
    return Row(name, mechanism, int(heads) if at else None)


def trained_parameters(build: Callable[[], nnx.Module]) -> int:
    """How many numbers a model trains, a fixed matrix not among them.

    Args:
      build: makes the model; nothing is allocated.
    """
    params = nnx.state(nnx.eval_shape(build), nnx.Param)
    return sum(leaf.size for leaf in jax.tree.leaves(params))
