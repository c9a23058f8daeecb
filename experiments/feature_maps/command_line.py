"""The command line: a preset, then fields of the config."""

from collections.abc import Sequence

from experiments.common import command_line
from experiments.common.command_line import at_least, check_names
from experiments.feature_maps.config import MAPS, PRESETS, TASKS, FeatureMapsConfig

PROGRAM = "python -m experiments.feature_maps"
DEFAULT = "cpu"
PURPOSE = "Trains decoders that differ in the feature map of their linear attention."


def parse(arguments: Sequence[str]) -> FeatureMapsConfig:
    """The config that a command line asks for, checked."""
    config = command_line.parse(
        arguments, PRESETS, DEFAULT, program=PROGRAM, purpose=PURPOSE
    )
    at_least(config, 1, "seeds", "copy_steps", "text_steps")
    check_names("maps", config.maps, MAPS)
    check_names("tasks", config.tasks, TASKS)
    return config
