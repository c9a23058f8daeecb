"""The command line: a preset, then fields of the config."""

from collections.abc import Sequence

from experiments.common import command_line
from experiments.common.command_line import at_least, check_names
from experiments.common.errors import fail, option
from experiments.common.lsh import DESCRIBED, HASHES
from experiments.linear_copy.config import MODELS, PRESETS, CopyConfig

PROGRAM = "python -m experiments.linear_copy"
DEFAULT = "cpu"
PURPOSE = "Trains decoders that differ in their attention to copy, and compares them."


def parse(arguments: Sequence[str]) -> CopyConfig:
    """The config that a command line asks for, its numbers checked."""
    config = command_line.parse(
        arguments, PRESETS, DEFAULT, program=PROGRAM, purpose=PURPOSE
    )
    check_numbers(config)
    others = {"pattern": HASHES.pattern, "described": DESCRIBED}
    check_names("models", config.models, MODELS, **others)
    return config


def check_numbers(config: CopyConfig) -> None:
    """Raise for a number that can't be meant; shapes are checked by the model."""
    at_least(config, 1, "steps", "seeds", "checkpoint_every", "log_every", "eval_every")
    at_least(config, 1, "batch_size", "num_symbols", "num_layers", "d_model")
    at_least(config, 1, "num_heads", "d_ff", "decay_after", "bucket_size")
    at_least(config, 1, "validation_batches", "generated_rows")
    at_least(config, 5, "length")
    if not 0 < config.learning_rate < float("inf"):
        remedy = "1e-3 is the paper's"
        fail("--learning-rate", config.learning_rate, "a number above 0", remedy)
    if not 0 <= config.weight_decay < float("inf"):
        expected = "a number of at least 0"
        fail(option("weight_decay"), config.weight_decay, expected, "0 is no decay")
