"""Trains every row on every task, and shows what came out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from attn_jax.train import Progress
from experiments.common import provenance
from experiments.common.live import Display, Measure, make_display
from experiments.common.main import run_program
from experiments.common.runs import finish_runs, require_steps, run_name
from experiments.common.workdir import Workdir, write_json
from experiments.compare import training as text_training
from experiments.compare.text import Text, load_text
from experiments.feature_maps import table
from experiments.feature_maps.command_line import PROGRAM, parse
from experiments.feature_maps.config import NOT_SHARED, FeatureMapsConfig
from experiments.feature_maps.results import assemble
from experiments.feature_maps.rows import Row, make_rows
from experiments.linear_copy import training as copy_training

MEASURE = Measure("nats", 1.0, table.reached)


class Plan(NamedTuple):
    """All that is known before anything is computed."""

    config: FeatureMapsConfig
    origin: dict[str, Any]
    rows: list[Row]
    text: Text
    workdir: Workdir

    def shared_config(self) -> dict[str, Any]:
        fingerprint = self.text.corpus.fingerprint
        return {**self.config.shared(), "text_fingerprint": fingerprint}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit code, as `run_program` says."""
    return run_program(PROGRAM, arguments, prepare, run)


def prepare(arguments: Sequence[str]) -> Plan:
    """Everything that can be wrong, looked at before anything is computed."""
    config = parse(arguments)
    text = load_text(config.text_config())
    workdir = Workdir(config.directory(), NOT_SHARED)
    origin = provenance.origin(PROGRAM, arguments)
    plan = Plan(config, origin, make_rows(config), text, workdir)
    workdir.check(plan.shared_config())
    for task in config.tasks:
        require_steps(workdir, _runs(plan, task), _steps(config, task))
    return plan


def run(plan: Plan) -> None:
    """Train what is left to train, then write and show the results."""
    tasks = plan.config.tasks
    with make_display([n for task in tasks for n in _runs(plan, task)], MEASURE) as on:
        runs = {
            task: {row.name: TRAINED[task](row, plan, on) for row in plan.rows}
            for task in tasks
        }
    results = assemble(plan.config, plan.text, runs)
    write_json(plan.workdir.results, results)
    table.show(results)
    print(f"Numbers: {plan.workdir.results}")


def _copy(row: Row, plan: Plan, display: Display) -> list[dict[str, Any]]:
    """The numbers of a row on the copy task, one dict a seed."""
    config, name = plan.config.copy_config(), f"copy-{row.name}"

    def train(program: Any, seed: int, progress: Progress) -> dict[str, Any]:
        return copy_training.train(name, seed, program, config, plan.workdir, progress)

    return finish_runs(
        name,
        seeds=plan.config.seeds,
        steps=config.steps,
        workdir=plan.workdir,
        origin=plan.origin,
        display=display,
        build=lambda: copy_training.build(row.copy_decoder(config), config),
        train=train,
    )


def _text(row: Row, plan: Plan, display: Display) -> list[dict[str, Any]]:
    """The numbers of a row on the text, one dict a seed."""
    config, text = plan.config.text_config(), plan.text
    model = row.text_row(config)._replace(name=f"text-{row.name}")

    def train(program: Any, seed: int, progress: Progress) -> dict[str, Any]:
        _, numbers = text_training.train_on(
            model, seed, program, config, text, plan.workdir, progress
        )
        return numbers

    return finish_runs(
        model.name,
        seeds=plan.config.seeds,
        steps=config.steps,
        workdir=plan.workdir,
        origin=plan.origin,
        display=display,
        build=lambda: text_training.build(model, config, text),
        train=train,
    )


TRAINED = {"copy": _copy, "text": _text}


def _runs(plan: Plan, task: str) -> list[str]:
    return [
        run_name(f"{task}-{row.name}", seed)
        for row in plan.rows
        for seed in range(plan.config.seeds)
    ]


def _steps(config: FeatureMapsConfig, task: str) -> int:
    return config.copy_steps if task == "copy" else config.text_steps
