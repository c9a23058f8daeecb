"""The command line: a preset, then fields of the config."""

from collections.abc import Sequence

from experiments.common import command_line
from experiments.common.command_line import at_least
from experiments.common.errors import fail, option
from experiments.compare.config import PRESETS, CompareConfig

PROGRAM = "python -m experiments.compare"
DEFAULT = "demo"
PURPOSE = "Trains small decoders that differ in their attention, and compares them."


def parse(arguments: Sequence[str]) -> CompareConfig:
    """The config that a command line asks for, its numbers checked."""
    config = command_line.parse(
        arguments, PRESETS, DEFAULT, program=PROGRAM, purpose=PURPOSE
    )
    check_numbers(config)
    return config


def check_numbers(config: CompareConfig) -> None:
    """Raise for a number that can't be meant; shapes are checked by the model."""
    at_least(config, 1, "steps", "seeds", "checkpoint_every", "log_every", "eval_every")
    at_least(config, 1, "batch_size", "length", "num_layers", "d_model", "num_heads")
    at_least(config, 2, "d_ff", "validation_bytes")
    for name in ("learning_rate", "embedding_scale", "temperature"):
        value = getattr(config, name)
        if not 0 < value < float("inf"):
            fail(option(name), value, "a number above 0", "pass one")
    if not 0 <= config.warmup_fraction < 1:
        expected = "a number from 0 to below 1"
        fail(option("warmup_fraction"), config.warmup_fraction, expected, "pass one")
    if not 0 <= config.weight_decay < float("inf"):
        expected = "a number of at least 0"
        fail(option("weight_decay"), config.weight_decay, expected, "0 is no decay")
