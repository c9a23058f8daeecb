"""The command line: a study, then fields of its config."""

from collections.abc import Sequence

from experiments.common import command_line
from experiments.common.command_line import at_least
from experiments.common.errors import fail
from experiments.compare.command_line import check_numbers
from experiments.synthesizer.config import (
    ClassificationStudy,
    LanguageStudy,
    SpeedStudy,
    Study,
    Training,
    TranslationStudy,
)
from experiments.synthesizer.presets import PRESETS
from experiments.translation.command_line import check

PROGRAM = "python -m experiments.synthesizer"
DEFAULT = "smoke"
PURPOSE = "Trains the rows of the Synthesizer's table on one task, each several times."


def parse(arguments: Sequence[str]) -> Study:
    """The config that a command line asks for, its numbers checked."""
    config = command_line.parse(
        arguments, PRESETS, DEFAULT, program=PROGRAM, purpose=PURPOSE
    )
    if isinstance(config, Training):
        at_least(config, 1, "seeds")
    if isinstance(config, LanguageStudy):
        check_numbers(config)
        at_least(config, 0, "vocab_size")
        if config.data is not None and config.tfds is not None:
            fail("data", "--data and --tfds", "one of them", "leave the other out")
    elif isinstance(config, TranslationStudy):
        check(config)
        at_least(config, 1, "test_sentences")
    elif isinstance(config, ClassificationStudy):
        _check_classification(config)
    elif isinstance(config, SpeedStudy):
        at_least(config, 1, "tokens", "d_model", "num_heads", "rounds")
        if not config.lengths or min(config.lengths) < 1:
            fail("--lengths", config.lengths, "numbers of at least 1", "pass some")
    return config


def _check_classification(config: ClassificationStudy) -> None:
    at_least(config, 1, "steps", "checkpoint_every", "log_every", "eval_every")
    at_least(config, 1, "batch_size", "num_layers", "d_model", "num_heads", "d_ff")
    at_least(config, 259, "vocab_size")
    if not 0 < config.learning_rate < float("inf"):
        fail("--learning-rate", config.learning_rate, "a number above 0", "pass one")
    if not 0 <= config.dropout_rate < 1:
        expected = "a number from 0 to below 1"
        fail("--dropout-rate", config.dropout_rate, expected, "0 is none")
    if (config.data is None) == (config.tfds is None):
        fail(
            "--data",
            "nothing" if config.data is None else f"{config.data} beside --tfds",
            "a file with a class, a tab and a text on each line",
            "make one with python -m experiments.synthesizer.prepare (--help says how)",
        )
