"""Trains every row with every seed, and shows what came out."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from attn_jax.train import (
    CheckpointMismatchError,
    CheckpointReadError,
    CheckpointWriteError,
    NonFiniteError,
    TrainingInterrupted,
)
from experiments.common import provenance
from experiments.common.errors import UserError
from experiments.common.interrupts import complain, sigterm_interrupts
from experiments.common.runs import Runs
from experiments.common.workdir import Workdir, write_json
from experiments.synthesizer import plot, results, speed, table
from experiments.synthesizer.classification import Classification
from experiments.synthesizer.command_line import PROGRAM, parse
from experiments.synthesizer.config import (
    MAY_DIFFER,
    ROWS,
    ClassificationStudy,
    LanguageStudy,
    SpeedStudy,
    Training,
    TranslationStudy,
)
from experiments.synthesizer.language import Language
from experiments.synthesizer.rows import Row, parse_rows
from experiments.synthesizer.translation import Translation

FAILURES = (
    CheckpointMismatchError,
    CheckpointReadError,
    CheckpointWriteError,
    NonFiniteError,
)


class Task(Protocol):
    """What is learnt in a study, and how."""

    def fingerprints(self) -> dict[str, Any]:
        """What runs of one directory have in common, beside the config."""
        ...

    def corpus(self) -> dict[str, Any]:
        """What results say of the data."""
        ...

    def model(self, row: Row) -> Any:
        """The config of a row's model; raises where there is no such model."""
        ...

    def build(self, row: Row) -> Any:
        """What the seeds of a row share."""
        ...

    def train(self, built: Any, seed: int, workdir: Workdir) -> dict[str, Any]:
        """The numbers of a run, trained from where it was left."""
        ...


TASKS: dict[type[Training], Any] = {
    LanguageStudy: Language,
    TranslationStudy: Translation,
    ClassificationStudy: Classification,
}


class Plan(NamedTuple):
    """All that is known before anything is computed."""

    config: Training
    command: str
    rows: list[Row]
    task: Task
    runs: Runs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a study and return the exit code.

    0: the table is there. 1: the training failed. 2: a mistake on the command line.
    130: interrupted by Ctrl-C or SIGTERM.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    with sigterm_interrupts():
        try:
            try:
                config = parse(arguments)
                command = provenance.command(PROGRAM, arguments)
                if isinstance(config, SpeedStudy):
                    return _measure(config, command)
                plan = prepare(config, command)
            except (UserError, ValueError, TypeError, OSError, ImportError) as error:
                return complain(error, 2)
            run(plan)
        except KeyboardInterrupt as error:
            return _interrupted(error, arguments)
        except UserError as error:
            return complain(error, 2)
        except FAILURES as error:
            return complain(error, 1)
    return 0


def prepare(config: Training, command: str) -> Plan:
    """Everything that can be wrong, looked at before anything is computed."""
    rows = parse_rows(config.rows)
    task = TASKS[type(config)](config)
    for row in rows:
        task.model(row)
    shared = {**config.shared(), **task.fingerprints()}
    runs = Runs(config.directory(), shared, MAY_DIFFER)
    runs.check()
    return Plan(config, command, rows, task, runs)


def run(plan: Plan) -> None:
    """Train what nobody has trained, then write and show what there is by now."""
    elsewhere = [
        f"{row.name}, seed {seed}"
        for row in plan.rows
        for seed, numbers in _train_row(row, plan)
        if numbers is None
    ]
    with plan.runs.joining():
        if done := plan.runs.finished(ROWS):
            found = results.assemble(plan.config, plan.task.corpus(), done)
            _show(found, plan.config.directory())
    if elsewhere:
        print(
            f"Another process is training {'; '.join(elsewhere)}. When it has "
            "finished, its table has these rows too."
        )


def _measure(config: SpeedStudy, command: str) -> int:
    """The study that trains nothing."""
    _show(speed.measure(config, command), config.directory())
    return 0


def _show(found: dict[str, Any], directory: Path) -> None:
    """Write results, draw their figures, print their table."""
    write_json(directory / "results.json", found)
    plot.draw(found, directory / "figures")
    table.show(found)
    print(f"Numbers and figures: {directory}/results.json, {directory}/figures/")


def _train_row(row: Row, plan: Plan) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Each seed with its numbers; the row is built when a seed needs it."""
    built = None

    def train(workdir: Workdir) -> dict[str, Any]:
        nonlocal built
        origin = {"command": plan.command, "commit": provenance.commit()}
        if built is None:
            print(f"{row.name}: compiling", flush=True)
            built = plan.task.build(row)
        else:
            # This seed finds what an earlier one compiled.
            origin["compile_seconds"] = 0.0
        return {**plan.task.train(built, seed, workdir), **origin}

    for seed in range(plan.config.seeds):
        numbers = plan.runs.train(row.name, seed, train)
        if numbers is not None:
            print(f"{row.name}, seed {seed}: {table.in_words(numbers)}", flush=True)
        yield seed, numbers


def _interrupted(error: KeyboardInterrupt, arguments: Sequence[str]) -> int:
    """Say what is safe, and how to go on."""
    said = isinstance(error, TrainingInterrupted)
    print(
        f"\n{error if said else 'Interrupted between two trainings'}\n"
        "Finished runs are kept. To go on:\n"
        f"  {provenance.command(PROGRAM, arguments)}",
        file=sys.stderr,
    )
    return 130
