"""The command line: a preset, then fields of the config."""

import difflib
from collections.abc import Sequence

import tyro

from experiments.compare.config import PRESETS, CompareConfig
from experiments.compare.errors import fail

PROGRAM = "python -m experiments.compare"
DEFAULT = "demo"


def parse(arguments: Sequence[str]) -> CompareConfig:
    """The config that a command line asks for, its numbers checked."""
    preset, fields = split(arguments)
    if preset not in PRESETS:
        near = difflib.get_close_matches(preset, PRESETS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        remedy = (
            f"{hint}name a preset first, then fields: {PROGRAM} {DEFAULT} --steps 9"
        )
        fail("preset", repr(preset), f"one of {', '.join(PRESETS)}", remedy)
    description = (
        "Trains small decoders that differ in their attention, and compares them. "
        f"Presets: {', '.join(PRESETS)}; one may come first, before the options. "
        f"Defaults below are those of {preset!r}."
    )
    config = tyro.cli(
        CompareConfig,
        default=PRESETS[preset],
        args=fields,
        prog=f"{PROGRAM} [preset]",
        description=description,
    )
    check_numbers(config)
    return config


def split(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The preset, and the rest."""
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], list(arguments[1:])
    return DEFAULT, list(arguments)


def check_numbers(config: CompareConfig) -> None:
    """Raise for a number that can't be meant; shapes are checked by the model."""
    for name in (
        "steps",
        "seeds",
        "checkpoint_every",
        "log_every",
        "eval_every",
        "batch_size",
        "length",
        "num_layers",
        "d_model",
        "num_heads",
    ):
        _at_least(name, getattr(config, name), 1)
    _at_least("d_ff", config.d_ff, 2)
    _at_least("validation_bytes", config.validation_bytes, 2)
    for name in ("learning_rate", "embedding_scale", "temperature"):
        value = getattr(config, name)
        if not 0 < value < float("inf"):
            fail(_option(name), value, "a number above 0", "pass one")
    if not 0 <= config.warmup_fraction < 1:
        expected = "a number from 0 to below 1"
        fail(_option("warmup_fraction"), config.warmup_fraction, expected, "pass one")
    if not 0 <= config.weight_decay < float("inf"):
        expected = "a number of at least 0"
        fail(_option("weight_decay"), config.weight_decay, expected, "0 is no decay")


def _at_least(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        expected = f"a whole number of at least {minimum}"
        fail(_option(name), value, expected, f"pass {minimum} or more")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
