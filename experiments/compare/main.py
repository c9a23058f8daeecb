"""Trains every model in turn, and shows what came out."""

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from experiments.common import provenance
from experiments.common.live import Display, Measure, make_display
from experiments.common.main import run_program
from experiments.common.runs import finish_runs, require_steps, run_name
from experiments.common.workdir import Workdir, write_json
from experiments.compare import plot
from experiments.compare.command_line import PROGRAM, parse
from experiments.compare.config import NOT_SHARED, CompareConfig
from experiments.compare.results import assemble, shared_config
from experiments.compare.rows import Row, make_rows, split_names
from experiments.compare.table import notes, samples, show
from experiments.compare.text import Text, load_text
from experiments.compare.training import BITS, build, train

MEASURE = Measure(
    unit="bits per byte",
    scale=1 / math.log(2),
    reached=lambda numbers: f"{numbers[BITS]:.3f} bits per byte",
)


class Plan(NamedTuple):
    """All that is known before anything is computed."""

    config: CompareConfig
    origin: dict[str, Any]
    rows: list[Row]
    text: Text
    workdir: Workdir

    def shared_config(self) -> dict[str, Any]:
        """What all commands in the work directory have in common."""
        return shared_config(self.config, self.text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison and return the exit code, as `run_program` says."""
    return run_program(PROGRAM, arguments, prepare, run)


def prepare(arguments: Sequence[str]) -> Plan:
    """Everything that can be wrong, looked at before anything is computed."""
    config = parse(arguments)
    split_names(config.mechanisms)
    text = load_text(config)
    rows = make_rows(config)
    workdir = Workdir(config.directory(), NOT_SHARED)
    workdir.check(shared_config(config, text))
    require_steps(workdir, _runs(rows, config), config.steps)
    return Plan(config, provenance.origin(PROGRAM, arguments), rows, text, workdir)


def run(plan: Plan) -> None:
    """Train what is left to train, then write and show the results."""
    began = time.perf_counter()
    _introduce(plan)
    with make_display(_runs(plan.rows, plan.config), MEASURE) as display:
        runs = [(row, _train_row(row, plan, display)) for row in plan.rows]
    results = assemble(runs, plan.config, plan.text)
    write_json(plan.workdir.results, results)
    plot.draw(results, plan.workdir.figures)
    print(f"\n{samples(results)}\n", flush=True)
    show(results)
    print("\n".join(notes(results)) + "\n")
    seconds = results["seconds"]
    print(
        f"Training took {seconds['training']:.0f} s, compiling "
        f"{seconds['compiling']:.0f} s; since the last start, "
        f"{time.perf_counter() - began:.0f} s in all.\n"
        f"Numbers and figures: {plan.workdir.results}, {plan.workdir.figures}/"
    )


def _train_row(row: Row, plan: Plan, display: Display) -> list[dict[str, Any]]:
    """The numbers of a row, one for each seed, trained unless they are there."""
    config, text, workdir = plan.config, plan.text, plan.workdir
    return finish_runs(
        row.name,
        seeds=config.seeds,
        steps=config.steps,
        workdir=workdir,
        origin=plan.origin,
        display=display,
        build=lambda: build(row, config, text),
        train=lambda program, seed, progress: train(
            row, seed, program, config, text, workdir, progress
        ),
    )


def _introduce(plan: Plan) -> None:
    """What is about to be compared, on what."""
    config = plan.config
    sizes = ", ".join(f"{row.name} {row.parameters:,}" for row in plan.rows)
    print(
        f"Text: {plan.text.corpus.summary}\n"
        f"Parameters: {sizes}\n"
        f"Each model: {config.num_layers} layers of width {config.d_model}, "
        f"{config.steps} steps of {config.batch_size} x {config.length} bytes, "
        f"--seeds {config.seeds}",
        flush=True,
    )


def _runs(rows: list[Row], config: CompareConfig) -> list[str]:
    return [run_name(row.name, seed) for row in rows for seed in range(config.seeds)]
