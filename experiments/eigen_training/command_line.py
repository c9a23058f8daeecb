"""The command line: a preset, then fields of the config."""

import re
from collections.abc import Sequence

from experiments.common import command_line
from experiments.common.command_line import at_least, check_names
from experiments.common.errors import check_name, fail, option
from experiments.eigen_training.config import KINDS, PRESETS, TrainingConfig

PROGRAM = "python -m experiments.eigen_training"
DEFAULT = "sentences"
PURPOSE = "Trains encoders with all scores and with few, and compares them."
TASKS = ("classification", "mlm")
PATTERN = rf"({'|'.join(KINDS)})-([1-9]\d*)"


def parse(arguments: Sequence[str]) -> TrainingConfig:
    """The config that a command line asks for, its values checked."""
    config = command_line.parse(
        arguments, PRESETS, DEFAULT, program=PROGRAM, purpose=PURPOSE
    )
    check(config)
    return config


def check(config: TrainingConfig) -> None:
    """Raise for a value that can't be meant; shapes are checked by the model."""
    at_least(config, 1, "steps", "seeds", "checkpoint_every", "log_every", "eval_every")
    at_least(config, 1, "batch_size", "held_out", "statistics", "num_layers", "d_ff")
    at_least(config, 4, "length")
    check_name("--task", config.task, TASKS)
    described = ", or fixed-K, learnt-K, shared-K with a number K of scores"
    check_names(
        "--models", config.models, ("full",), pattern=PATTERN, described=described
    )
    for name in config.models:
        if known(name) > config.length:
            expected = f"at most --length {config.length} scores a query"
            fail("--models", repr(name), expected, "name fewer")
    for name in ("dropout_rate", "warmup_fraction"):
        value = getattr(config, name)
        if not 0 <= value < 1:
            fail(option(name), value, "a number from 0 to below 1", "0 is none")
    for name in ("learning_rate", "map_learning_rate"):
        value = getattr(config, name)
        if not 0 < value < float("inf"):
            fail(option(name), value, "a number above 0", "pass one")
    for name in ("ridge", "weight_decay"):
        value = getattr(config, name)
        if not 0 <= value < float("inf"):
            fail(option(name), value, "a number of at least 0", "0 is none")
    if config.task == "classification":
        _check_classification(config)


def _check_classification(config: TrainingConfig) -> None:
    if config.pretrained is None:
        expected = "a folder with config.json, model.safetensors and tokenizer.json"
        fail("--pretrained", "nothing", expected, "see --help of this experiment")
    given = [
        option(name) for name in ("data", "tfds") if getattr(config, name) is not None
    ]
    if len(given) != 1:
        got = " and ".join(given) or "neither --data nor --tfds"
        fail("--data", got, "one of the two", "pass a file of labelled texts")
    if config.data is not None and len(config.data) != 1:
        expected = "one file of labelled texts"
        fail("--data", f"{len(config.data)} paths", expected, "join them to one file")


def known(name: str) -> int:
    """K of a model's name; 0 for full."""
    match = re.fullmatch(PATTERN, name)
    return int(match.group(2)) if match else 0


def kind(name: str) -> str:
    """fixed, learnt, shared, or full."""
    return name.partition("-")[0]
