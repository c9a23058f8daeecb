"""Trains every model in turn, and shows what came out."""

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from attn_jax.train import (
    CheckpointMismatchError,
    CheckpointReadError,
    CheckpointWriteError,
    NonFiniteError,
    TrainingInterrupted,
)
from experiments.common import provenance
from experiments.common.errors import UserError, fail
from experiments.common.interrupts import complain, sigterm_interrupts
from experiments.common.workdir import Workdir, read_json, write_json
from experiments.compare import plot
from experiments.compare.command_line import PROGRAM, parse
from experiments.compare.config import NOT_SHARED, CompareConfig
from experiments.compare.live import Display, make_display
from experiments.compare.results import assemble, shared_config
from experiments.compare.rows import Row, make_rows, split_names
from experiments.compare.table import notes, samples, show
from experiments.compare.text import Text, load_text
from experiments.compare.training import build, run_name, train

FAILURES = (
    CheckpointMismatchError,
    CheckpointReadError,
    CheckpointWriteError,
    NonFiniteError,
)


class Plan(NamedTuple):
    """All that is known before anything is computed."""

    config: CompareConfig
    command: str
    rows: list[Row]
    text: Text
    workdir: Workdir


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison and return the exit code.

    0: the table is there. 1: the training failed. 2: a mistake on the command line.
    130: interrupted by Ctrl-C or SIGTERM.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    with sigterm_interrupts(), contextlib.ExitStack() as stack:
        try:
            try:
                plan = prepare(arguments)
                claim = plan.workdir.claim(shared_config(plan.config, plan.text))
                stack.enter_context(claim)
            except (UserError, ValueError, OSError) as error:
                return complain(error, 2)
            run(plan)
        except KeyboardInterrupt as error:
            return _interrupted(error, arguments)
        except FAILURES as error:
            return complain(error, 1)
    return 0


def prepare(arguments: Sequence[str]) -> Plan:
    """Everything that can be wrong, looked at before anything is computed."""
    config = parse(arguments)
    split_names(config.mechanisms)
    text = load_text(config)
    rows = make_rows(config)
    workdir = Workdir(config.directory(), NOT_SHARED)
    workdir.check(shared_config(config, text))
    for name in (run_name(row, seed) for row, seed in _runs(rows, config)):
        done = max(workdir.latest_step(name), _steps(workdir.finished(name)))
        if done > config.steps:
            fail(
                "--steps",
                f"{config.steps}, while {workdir.path} holds {done} steps of {name}",
                f"at least {done}",
                "pass more --steps, or another --workdir",
            )
    return Plan(config, provenance.command(PROGRAM, arguments), rows, text, workdir)


def run(plan: Plan) -> None:
    """Train what is left to train, then write and show the results."""
    began = time.perf_counter()
    _introduce(plan)
    names = [run_name(row, seed) for row, seed in _runs(plan.rows, plan.config)]
    with make_display(names, plan.config.steps) as display:
        runs = [(row, _train_row(row, plan, display)) for row in plan.rows]
    results = read_json(plan.workdir.results)
    if results is None or not _same_runs(results, runs):
        results = assemble(runs, plan.config, plan.text, plan.command)
        results["seconds"]["this_session"] = round(time.perf_counter() - began, 1)
        write_json(plan.workdir.results, results)
        plot.draw(results, plan.workdir.figures)
    print(f"\n{samples(results)}\n", flush=True)
    show(results)
    print("\n".join(notes(results)) + "\n")
    seconds = results["seconds"]
    print(
        f"Training took {seconds['training']:.0f} s, compiling "
        f"{seconds['compiling']:.0f} s; the session that wrote this, "
        f"{seconds['this_session']:.0f} s in all.\n"
        f"Numbers and figures: {plan.workdir.results}, {plan.workdir.figures}/"
    )


def _train_row(row: Row, plan: Plan, display: Display) -> list[dict[str, Any]]:
    """The numbers of a row, one for each seed, trained unless they are there."""
    config, workdir = plan.config, plan.workdir
    program, runs = None, []
    for seed in range(config.seeds):
        name = run_name(row, seed)
        numbers = workdir.finished(name)
        if _steps(numbers) != config.steps:
            if program is None:
                display.compiling(name)
                program = build(row, config, plan.text)
            progress = display.progress(name)
            earlier = [] if numbers is None else numbers.get("stages", [])
            numbers = train(row, seed, program, config, plan.text, workdir, progress)
            numbers["stages"] = [*earlier, config.steps]
            workdir.finish(name, numbers)
        display.finished(name, numbers)
        runs.append(numbers)
    return runs


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


def _runs(rows: list[Row], config: CompareConfig) -> list[tuple[Row, int]]:
    return [(row, seed) for row in rows for seed in range(config.seeds)]


def _steps(numbers: dict[str, Any] | None) -> int:
    return 0 if numbers is None else numbers.get("steps", 0)


def _same_runs(results: dict[str, Any], runs: list[Any]) -> bool:
    """Whether results.json already says what these runs say."""
    wanted = [
        (row.name, [(n["seed"], n["steps"], n["sample"]) for n in numbers])
        for row, numbers in runs
    ]
    there = [
        (row["model"], [(n["seed"], n["steps"], n["sample"]) for n in row["runs"]])
        for row in results["rows"]
    ]
    return wanted == there


def _interrupted(error: KeyboardInterrupt, arguments: Sequence[str]) -> int:
    """Say what is safe, and how to go on."""
    said = isinstance(error, TrainingInterrupted)
    print(
        f"\n{error if said else 'Interrupted between two trainings'}\n"
        "Finished models are kept. To go on:\n"
        f"  {provenance.command(PROGRAM, arguments)}",
        file=sys.stderr,
    )
    return 130
