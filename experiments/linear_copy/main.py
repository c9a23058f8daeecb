"""Trains every model in turn, and shows what came out."""

from collections.abc import Sequence

from attn_jax.models import count_parameters
from experiments.common.live import Measure, make_display
from experiments.common.main import run_program
from experiments.common.plan import ConfigPlan, plan_of, publish
from experiments.common.runs import finish_runs, require_steps, run_name
from experiments.linear_copy import plot, table
from experiments.linear_copy.command_line import PROGRAM, parse
from experiments.linear_copy.config import NOT_SHARED, CopyConfig
from experiments.linear_copy.models import decoder_config, mechanism
from experiments.linear_copy.results import assemble
from experiments.linear_copy.training import SYMBOLS, build, train

MEASURE = Measure("nats", 1.0, lambda numbers: f"{numbers[SYMBOLS]:.2%} of the symbols")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit code, as `run_program` says."""
    return run_program(PROGRAM, arguments, prepare, run)


def prepare(arguments: Sequence[str]) -> ConfigPlan[CopyConfig]:
    """Everything that can be wrong, looked at before anything is computed."""
    config = parse(arguments)
    for model in config.models:
        # What a mechanism can't do is said when its shapes are worked out.
        count_parameters(decoder_config(mechanism(model, config), config))
    plan = plan_of(config, NOT_SHARED, PROGRAM, arguments)
    require_steps(plan.workdir, _runs(config), config.steps)
    return plan


def run(plan: ConfigPlan[CopyConfig]) -> None:
    """Train what is left to train, then write and show the results."""
    config, workdir = plan.config, plan.workdir
    with make_display(_runs(config), MEASURE) as display:
        for model in config.models:
            finish_runs(
                model,
                seeds=config.seeds,
                steps=config.steps,
                workdir=workdir,
                origin=plan.origin,
                display=display,
                build=lambda model=model: build(
                    decoder_config(mechanism(model, config), config), config
                ),
                train=lambda program, seed, progress, model=model: train(
                    model, seed, program, config, workdir, progress
                ),
            )
    results = assemble(config, workdir)
    publish(results, workdir, plot, table)


def _runs(config: CopyConfig) -> list[str]:
    return [
        run_name(model, seed) for model in config.models for seed in range(config.seeds)
    ]
