"""The command line: a preset, then fields of the config."""

import difflib
from collections.abc import Sequence

from experiments.common import command_line
from experiments.common.command_line import at_least, option
from experiments.common.errors import fail
from experiments.linear_scaling.config import PRESETS, ROWS, ScalingConfig

PROGRAM = "python -m experiments.linear_scaling"
DEFAULT = "cpu"
PURPOSE = "Measures time and memory of attention over the length of its input."


def parse(arguments: Sequence[str]) -> ScalingConfig:
    """The config that a command line asks for, its numbers checked."""
    config = command_line.parse(
        arguments, PRESETS, DEFAULT, program=PROGRAM, purpose=PURPOSE
    )
    check(config)
    return config


def check(config: ScalingConfig) -> None:
    """Raise for a value that can't be meant."""
    for name in config.mechanisms:
        if name not in ROWS:
            near = difflib.get_close_matches(name, ROWS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            expected = f"of {', '.join(ROWS)}"
            fail("--mechanisms", repr(name), expected, f"{hint}name one of these")
    if len(set(config.mechanisms)) < max(1, len(config.mechanisms)):
        got = " ".join(config.mechanisms) or "none"
        fail("--mechanisms", got, "one or more, each once", "name each once")
    at_least(config, 1, "shortest", "fit_from", "tokens", "num_heads", "head_dim")
    at_least(config, 1, "bucket_size", "rounds")
    if config.longest < config.shortest:
        expected = f"at least --shortest, {config.shortest}"
        fail("--longest", config.longest, expected, "pass a greater one")
    for name in ("max_seconds", "max_bytes"):
        if not getattr(config, name) > 0:
            fail(option(name), getattr(config, name), "a number above 0", "pass one")
