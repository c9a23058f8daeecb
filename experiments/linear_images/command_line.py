"""The command line: a preset, then fields of the config."""

from collections.abc import Sequence
from dataclasses import replace

from attn_jax.nn import MECHANISMS
from experiments.common import command_line
from experiments.common.command_line import at_least, check_names
from experiments.common.errors import check_name, fail, option
from experiments.common.lsh import DESCRIBED, HASHES
from experiments.linear_images.config import PRESETS, ImagesConfig
from experiments.linear_images.heads import HEADS
from experiments.linear_images.training import OPTIMIZERS

PROGRAM = "python -m experiments.linear_images"
DEFAULT = "digits"
PURPOSE = "Trains decoders on the pixels of images, and times how they write some."


def parse(arguments: Sequence[str]) -> ImagesConfig:
    """The config that a command line asks for, its values checked."""
    named = {word.partition("=")[0] for word in arguments}
    presets = PRESETS
    if "--data" in named:
        # Who names other images doesn't want those of the preset.
        presets = {name: replace(each, tfds=None) for name, each in PRESETS.items()}
    elif "--tfds" in named:
        presets = {name: replace(each, data=None) for name, each in PRESETS.items()}
    config = command_line.parse(
        arguments, presets, DEFAULT, program=PROGRAM, purpose=PURPOSE
    )
    check(config)
    return config


def check(config: ImagesConfig) -> None:
    """Raise for a value that can't be meant; shapes are checked by the model."""
    at_least(config, 1, "steps", "checkpoint_every", "log_every", "eval_every")
    at_least(config, 1, "batch_size", "num_layers", "d_model", "num_heads", "d_ff")
    at_least(config, 1, "eval_images", "test_images", "generate", "repeats")
    at_least(config, 1, "completions", "mixtures", "channels", "bucket_size")
    at_least(config, 2, "side", "levels")
    check_names(
        "mechanisms",
        config.mechanisms,
        list(MECHANISMS),
        pattern=HASHES.pattern,
        described=DESCRIBED,
        repeats="another --seed and --workdir",
    )
    check_name("--head", config.head, HEADS)
    check_name("--optimizer", config.optimizer, OPTIMIZERS)
    if config.levels > 256:
        fail("--levels", config.levels, "at most 256, a byte", "pass fewer")
    if not 0 <= config.seed < 2**32:
        expected = "a whole number from 0 to 4294967295 (2^32 - 1)"
        fail("--seed", config.seed, expected, "pass one of these")
    if not 0 < config.learning_rate < float("inf"):
        fail("--learning-rate", config.learning_rate, "a number above 0", "pass one")
    for name in ("dropout_rate", "warmup_fraction"):
        value = getattr(config, name)
        if not 0 <= value < 1:
            fail(option(name), value, "a number from 0 to below 1", "0 is none")
    if not 0 <= config.final_fraction <= 1:
        remedy = "1 doesn't fall"
        fail("--final-fraction", config.final_fraction, "a number from 0 to 1", remedy)
    if not 0 <= config.weight_decay < float("inf"):
        expected = "a number of at least 0"
        fail("--weight-decay", config.weight_decay, expected, "0 is no decay")
    if config.data is not None and config.tfds is not None:
        fail("--data", "a folder and --tfds", "one of them", "leave the other out")
