"""The command line: a preset, then fields of the config."""

from collections.abc import Sequence

from experiments.common import command_line
from experiments.common.command_line import at_least, check_names
from experiments.common.errors import fail, option
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
    check_names("mechanisms", config.mechanisms, ROWS, repeats="--rounds")
    at_least(config, 1, "shortest", "fit_from", "tokens", "num_heads", "head_dim")
    at_least(config, 1, "bucket_size", "rounds")
    if config.longest < config.shortest:
        expected = f"at least --shortest, {config.shortest}"
        fail("--longest", config.longest, expected, "pass a greater one")
    for name in ("max_seconds", "max_bytes"):
        if not getattr(config, name) > 0:
            fail(option(name), getattr(config, name), "a number above 0", "pass one")
    # The cotangent, q, k and v are there before anything is known of a call.
    tokens = max(config.tokens, config.longest)
    inputs = 4 * 4 * tokens * config.num_heads * config.head_dim
    if inputs > config.max_bytes:
        fail(
            "--longest",
            f"{config.longest}, with inputs of {inputs:.3g} bytes a call",
            f"at most --max-bytes, {config.max_bytes:g}",
            "pass fewer tokens, heads or features, or more --max-bytes",
        )
