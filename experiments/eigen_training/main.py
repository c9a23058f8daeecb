"""Trains every model in turn, and shows what came out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from attn_jax.train import Progress
from experiments.common import provenance
from experiments.common.live import Display, Measure, make_display
from experiments.common.main import run_program
from experiments.common.plan import publish
from experiments.common.runs import finish_runs, require_steps, run_name
from experiments.common.workdir import Workdir
from experiments.eigen_training import maps, plot, table, training
from experiments.eigen_training.classification import Classification
from experiments.eigen_training.command_line import PROGRAM, known, parse
from experiments.eigen_training.config import NOT_SHARED, TrainingConfig
from experiments.eigen_training.masked import Masked
from experiments.eigen_training.results import assemble

MEASURE = Measure("nats", 1.0, table.reached)


class Plan(NamedTuple):
    """All that is known before anything is computed."""

    config: TrainingConfig
    origin: dict[str, Any]
    task: training.Task
    workdir: Workdir

    def shared_config(self) -> dict[str, Any]:
        """What all models of the work directory have in common."""
        return {
            **self.config.shared(),
            "data_fingerprint": self.task.summary["fingerprint"],
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit code, as `run_program` says."""
    return run_program(PROGRAM, arguments, prepare, run)


def prepare(arguments: Sequence[str]) -> Plan:
    """Everything that can be wrong, looked at before anything is computed."""
    config = parse(arguments)
    workdir = Workdir(config.directory(), NOT_SHARED)
    task: training.Task
    if config.task == "mlm":
        task = Masked(config, workdir.path / "vocabulary.json")
    else:
        task = Classification(config)
    for name in config.models:
        maps.mechanism(name, task.length, None)
    plan = Plan(config, provenance.origin(PROGRAM, arguments), task, workdir)
    workdir.check(plan.shared_config())
    require_steps(workdir, _runs(config), config.steps)
    return plan


def run(plan: Plan) -> None:
    """Train what is left to train, then write and show the results."""
    config, task, workdir = plan.config, plan.task, plan.workdir
    print(
        f"{task.summary['name']}: {task.summary['texts']} sequences of up to "
        f"{task.length} tokens; {config.steps:,} updates of {config.batch_size}",
        flush=True,
    )
    starts: dict[int, maps.Start] = {}
    if isinstance(task, Masked):
        task.vocabulary.save(workdir.path / "vocabulary.json")
    else:
        starts = maps.find(task, list(config.models), workdir.path / "maps")
    with make_display(_runs(config), MEASURE) as display:
        rows = [_row(name, plan, starts, display) for name in config.models]
    results = assemble(rows, config, task)
    publish(results, workdir, plot, table)


def _row(
    name: str, plan: Plan, starts: dict[int, maps.Start], display: Display
) -> list[dict[str, Any]]:
    """The numbers of a model, one dict a seed."""
    config, workdir = plan.config, plan.workdir

    def build() -> training.Program:
        return training.Program(name, config, plan.task, starts.get(known(name)))

    def train(program: Any, seed: int, progress: Progress) -> dict[str, Any]:
        return training.train(program, seed, progress, workdir)

    return finish_runs(
        name,
        seeds=config.seeds,
        steps=config.steps,
        workdir=workdir,
        origin=plan.origin,
        display=display,
        build=build,
        train=train,
    )


def _runs(config: TrainingConfig) -> list[str]:
    return [
        run_name(name, seed) for name in config.models for seed in range(config.seeds)
    ]
