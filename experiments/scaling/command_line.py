"""The command line: a preset, then fields of the config."""

from collections.abc import Sequence

from attn_jax.train import parse_mesh
from experiments.common import command_line
from experiments.common.command_line import at_least
from experiments.common.errors import fail
from experiments.scaling.config import PRESETS, ScalingConfig

PROGRAM = "python -m experiments.scaling"
DEFAULT = "pods"
PURPOSE = "Compiles a training step for devices that aren't there."


def parse(arguments: Sequence[str]) -> ScalingConfig:
    """The config that a command line asks for, its numbers checked."""
    config = command_line.parse(
        arguments, PRESETS, DEFAULT, program=PROGRAM, purpose=PURPOSE
    )
    at_least(config, 1, "batch_size", "micro_rows", "length", "num_layers", "d_model")
    for line in config.meshes:
        mesh = parse_mesh(line)
        rows = mesh["data"] * mesh["fsdp"]
        if config.batch_size % rows:
            fail(
                "--batch-size",
                f"{config.batch_size} on {line}",
                f"a multiple of data x fsdp = {rows}",
                "pass another one, or another mesh",
            )
    config.decoder()
    return config
