"""The command line: a preset, then fields of the config."""

from collections.abc import Sequence

from attn_jax.decoding import length_penalties
from attn_jax.nn import MECHANISMS
from experiments.common import command_line
from experiments.common.command_line import at_least
from experiments.common.errors import UserError, fail, option
from experiments.common.mechanisms import mechanism_named
from experiments.translation.config import PRESETS, TranslationConfig, with_text

PROGRAM = "python -m experiments.translation"
DEFAULT = "smoke"
PURPOSE = "Trains an encoder-decoder on sentence pairs, and translates held-out ones."


def parse(arguments: Sequence[str]) -> TranslationConfig:
    """The config that a command line asks for, its numbers checked."""
    presets = PRESETS
    named = {word.partition("=")[0] for word in arguments}
    if named & {"--data", "--tfds"} and "--synthetic" not in named:
        # Who names a text doesn't want the made-up words of a preset.
        presets = {
            name: with_text(preset) if preset.synthetic else preset
            for name, preset in PRESETS.items()
        }
    config = command_line.parse(
        arguments, presets, DEFAULT, program=PROGRAM, purpose=PURPOSE
    )
    check(config)
    return config


def check(config: TranslationConfig) -> None:
    """Raise for a value that can't be meant; shapes are checked by the model."""
    at_least(config, 1, "steps", "checkpoint_every", "log_every", "eval_every")
    at_least(config, 1, "warmup_steps", "average", "beam_size", "eval_sentences")
    at_least(config, 0, "extra_length", "synthetic", "map_sentence")
    at_least(config, 2, "max_length")
    at_least(config, 259, "vocab_size")
    if not 0 <= config.seed < 2**32:
        expected = "a whole number from 0 to 4294967295 (2^32 - 1)"
        fail("--seed", config.seed, expected, "pass one of these")
    if config.encoder_mechanism is not None:
        mechanism_named(config.encoder_mechanism)
    MECHANISMS[config.cross_mechanism]
    if mechanism_named(config.mechanism).cannot_decode:
        fail(
            "--mechanism",
            config.mechanism,
            "one that decodes token by token, as translations are written",
            f"leave it to the encoder: --encoder-mechanism {config.mechanism}",
        )
    try:
        length_penalties(config.alpha, config.max_length + config.extra_length)
    except ValueError as error:
        raise UserError(f"--{error}") from error
    for name in ("dropout_rate", "label_smoothing"):
        value = getattr(config, name)
        if not 0 <= value < 1:
            fail(option(name), value, "a number from 0 to below 1", "0 is none")
    if not 0 < config.learning_rate < float("inf"):
        remedy = "1 is the schedule of the paper"
        fail("--learning-rate", config.learning_rate, "a number above 0", remedy)
    # Two kinds of data are a mistake, and so is none.
    given = [
        option(name)
        for name in ("data", "tfds", "synthetic")
        if getattr(config, name) not in (None, 0)
    ]
    if len(given) > 1:
        fail("data", " and ".join(given), "one of them", "leave the others out")
    if not given:
        fail(
            "--data",
            "nothing",
            f"a folder with train.{config.source}, train.{config.target}, valid.*, "
            "test.*",
            "make it with python -m experiments.translation.prepare (--help says how)",
        )
