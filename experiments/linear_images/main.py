"""Trains every model in turn, sets it to write, and shows what came out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from attn_jax.data import ImageSet
from attn_jax.models import count_parameters
from experiments.common import provenance
from experiments.common.main import run_program
from experiments.common.plan import publish
from experiments.common.runs import require_steps, run_name
from experiments.common.workdir import Workdir
from experiments.linear_images import plot, table
from experiments.linear_images.command_line import PROGRAM, parse
from experiments.linear_images.config import ImagesConfig
from experiments.linear_images.pictures import load_images
from experiments.linear_images.results import assemble, shared_config
from experiments.linear_images.rows import Row
from experiments.linear_images.training import decoder_config


class Plan(NamedTuple):
    """All that is known before anything is computed."""

    config: ImagesConfig
    origin: dict[str, Any]
    images: ImageSet
    workdir: Workdir
    parameters: dict[str, int]

    def shared_config(self) -> dict[str, Any]:
        """What all models of the work directory have in common."""
        return shared_config(self.config, self.images)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit code, as `run_program` says."""
    return run_program(PROGRAM, arguments, prepare, run)


def prepare(arguments: Sequence[str]) -> Plan:
    """Everything that can be wrong, looked at before anything is computed."""
    config = parse(arguments)
    parameters = {
        mechanism: count_parameters(decoder_config(mechanism, config))
        for mechanism in config.mechanisms
    }
    images = load_images(config)
    workdir = Workdir(config.directory(), config.may_differ)
    origin = provenance.origin(PROGRAM, arguments)
    plan = Plan(config, origin, images, workdir, parameters)
    workdir.check(plan.shared_config())
    names = [run_name(mechanism, config.seed) for mechanism in config.mechanisms]
    require_steps(workdir, names, config.steps)
    return plan


def run(plan: Plan) -> None:
    """Compute what isn't there yet, then write and show the results."""
    config, workdir = plan.config, plan.workdir
    _introduce(plan)
    rows = [
        Row(mechanism, config, plan.images, workdir, plan.origin)
        for mechanism in config.mechanisms
    ]
    numbers = [row.numbers() for row in rows]
    parts = [part for row in rows for part in row.parts]
    results = assemble(numbers, parts, config, plan.images)
    publish(results, workdir, plot, table)


def _introduce(plan: Plan) -> None:
    """What is about to be compared, on what."""
    config = plan.config
    sizes = ", ".join(f"{name} {count:,}" for name, count in plan.parameters.items())
    print(
        f"{plan.images.summary}\nParameters: {sizes}\nEach model: {config.steps:,} "
        f"updates of {config.batch_size} x {config.num_pixels:,} pixels",
        flush=True,
    )
