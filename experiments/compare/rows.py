"""The rows of the table: a name, and a decoder of the same size as the others."""

import difflib
import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from attn_jax.data import ByteCorpus
from attn_jax.models import DecoderConfig, count_parameters
from attn_jax.nn import MECHANISMS, Mechanism
from experiments.common.errors import fail
from experiments.compare.config import CompareConfig

EXCLUSIVE = "exclusive"
TOLERANCE = 0.02


class Row(NamedTuple):
    """One model of the comparison.

    name: as on the command line, "linear+exclusive" say.
    decoder: its config, with the d_ff that makes it as large as the others.
    parameters: numbers it trains.
    """

    name: str
    decoder: DecoderConfig
    parameters: int


def make_rows(config: CompareConfig) -> list[Row]:
    """One row a name, all within 2 % of the size of softmax with config.d_ff."""
    names = split_names(config.mechanisms)
    target = _count(_decoder("softmax", config, config.d_ff))
    # A unit of d_ff is the same number of parameters, whatever the mechanism is.
    a_unit = _count(_decoder("softmax", config, 2)) - _count(
        _decoder("softmax", config, 1)
    )
    rows = [_row(name, config, target, a_unit) for name in names]
    _require_same_size(rows)
    return rows


@functools.cache
def _count(decoder: DecoderConfig) -> int:
    return count_parameters(decoder)


def split_names(given: Sequence[str]) -> list[str]:
    """The names, checked, from words that may hold several with commas between."""
    names = [name for word in given for name in word.split(",") if name]
    if not names:
        known = ", ".join(MECHANISMS)
        fail("mechanisms", "none", f"at least one of {known}", "name one")
    for name in names:
        _parse(name)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        fail("mechanisms", f"{twice} twice", "each once", "use --seeds to repeat")
    return names


def _parse(name: str) -> tuple[str, bool]:
    """The mechanism's name in the table, and whether it is exclusive."""
    mechanism, plus, option = name.partition("+")
    MECHANISMS[mechanism]
    if plus and option != EXCLUSIVE:
        near = difflib.get_close_matches(option, [EXCLUSIVE], cutoff=0.4)
        hint = f"did you mean {mechanism}+{EXCLUSIVE}? " if near else ""
        fail(
            "mechanisms",
            repr(name),
            f"a mechanism, alone or with +{EXCLUSIVE}",
            f"{hint}write {mechanism} or {mechanism}+{EXCLUSIVE}",
        )
    return mechanism, bool(plus)


def _decoder(name: str, config: CompareConfig, d_ff: int) -> DecoderConfig:
    """The decoder of a row; everything but mechanism and d_ff is the same in all."""
    mechanism, exclusive = _parse(name)
    decoder = decoder_config(config, MECHANISMS[mechanism]())
    return replace(decoder, d_ff=d_ff, exclusive=exclusive)


def decoder_config(config: CompareConfig, mechanism: Mechanism) -> DecoderConfig:
    """A decoder that reads bytes, at the sizes of a config."""
    return DecoderConfig(
        vocab_size=ByteCorpus.vocab_size,
        max_length=config.length,
        num_layers=config.num_layers,
        d_model=config.d_model,
        num_heads=config.num_heads,
        d_ff=config.d_ff,
        mechanism=mechanism,
        positions=config.positions,
        embedding_scale=config.embedding_scale,
        # A few layers run faster unrolled, and XLA then counts each of them.
        scan_layers=False,
    )


def _row(name: str, config: CompareConfig, target: int, a_unit: int) -> Row:
    """The row whose d_ff brings its size nearest to the target."""
    rest = _count(_decoder(name, config, 1)) - a_unit
    d_ff = round((target - rest) / a_unit)
    if d_ff < 1:
        fail(
            "mechanisms",
            f"{name}, whose attention alone has {rest:,} parameters",
            f"fewer than the {target:,} of softmax with --d-ff {config.d_ff}",
            "pass a greater --d-ff or a shorter --length, or leave this model out",
        )
    return Row(name, _decoder(name, config, d_ff), rest + d_ff * a_unit)


def _require_same_size(rows: list[Row]) -> None:
    """Raise unless the largest model is within 2 % of the smallest."""
    smallest = min(rows, key=lambda row: row.parameters)
    largest = max(rows, key=lambda row: row.parameters)
    if largest.parameters > (1 + TOLERANCE) * smallest.parameters:
        fail(
            "mechanisms",
            f"{largest.name} with {largest.parameters:,} parameters beside "
            f"{smallest.name} with {smallest.parameters:,}",
            f"sizes within {TOLERANCE:.0%} of each other",
            "pass a greater --d-model or --d-ff",
        )
