"""The command line: a preset, then fields of the config."""

from collections.abc import Sequence
from pathlib import Path

from experiments.common import command_line
from experiments.common.command_line import at_least, check_names
from experiments.common.errors import fail, option
from experiments.eigen.config import PRESETS, EigenConfig

PROGRAM = "python -m experiments.eigen"
DEFAULT = "default"
PURPOSE = "Analyses attention scores of encoders on one text."
RANDOM = "random"


def parse(arguments: Sequence[str]) -> EigenConfig:
    """The config that a command line asks for, its values checked."""
    config = command_line.parse(
        arguments, PRESETS, DEFAULT, program=PROGRAM, purpose=PURPOSE
    )
    check(config)
    return config


def check(config: EigenConfig) -> None:
    """Raise for a value that can't be meant."""
    at_least(config, 1, "sequences", "held_out", "batch_size", "matrix_rank", "repeats")
    at_least(config, 4, "length")
    for name in ("ranks", "known"):
        values = getattr(config, name)
        if not values or min(values) < 1 or max(values) > config.length:
            expected = f"numbers from 1 to --length {config.length}"
            fail(option(name), values, expected, "pass smaller ones")
    most = max(*config.ranks, *config.known, config.matrix_rank)
    if config.sequences <= most:
        expected = f"more than {most}, the most components that are asked for"
        fail("--sequences", config.sequences, expected, "pass more")
    if not 0 <= config.ridge < float("inf"):
        fail("--ridge", config.ridge, "a number of at least 0", "0 is none")
    named_models(config)


def named_models(config: EigenConfig) -> dict[str, Path]:
    """{name: folder} of the models that are asked for."""
    pairs = [word.partition("=") for word in config.models]
    for name, equals, folder in pairs:
        if not (name and equals and folder) or name == RANDOM:
            expected = f"NAME=FOLDER with another name than {RANDOM!r}"
            fail("--models", f"{name}{equals}{folder}", expected, "name the encoder")
    names = [name for name, _, _ in pairs]
    if names:
        check_names("--models", names, names)
    return {name: Path(folder) for name, _, folder in pairs}
