"""The command line: a study, then fields of its config."""

from collections.abc import Sequence

from experiments.common import command_line
from experiments.common.command_line import at_least
from experiments.common.errors import check_name, fail
from experiments.compare.command_line import check_numbers
from experiments.exclusive.config import PRESETS, Study, TrainingStudy
from experiments.exclusive.rows import SIZES

PROGRAM = "python -m experiments.exclusive"
DEFAULT = "smoke"
PURPOSE = "Self attention with and without exclusion, seed by seed."


def parse(arguments: Sequence[str]) -> Study:
    """The config that a command line asks for, its numbers checked."""
    config = command_line.parse(
        arguments, PRESETS, DEFAULT, program=PROGRAM, purpose=PURPOSE
    )
    if isinstance(config, TrainingStudy):
        check_numbers(config)
        at_least(config, 0, "similarity")
        check_name("--size", config.size, SIZES)
        return config
    at_least(config, 1, "tokens", "head_dim", "rounds", "step_layers", "step_batch")
    at_least(config, 0, "step_length")
    for name in ("lengths", "widths"):
        values = getattr(config, name)
        if not values or min(values) < 1:
            fail(f"--{name}", values, "numbers of at least 1", "pass some")
    if any(width % config.head_dim for width in config.widths):
        got = f"{config.widths} with --head-dim {config.head_dim}"
        fail("--widths", got, "multiples of head_dim", "pass others")
    check_name("--dtype", config.dtype, ("float32", "bfloat16"))
    return config
