"""Trains every row with every seed, or measures, and shows what came out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.common import provenance
from experiments.common.grid import Grid
from experiments.common.main import run_program
from experiments.common.study import assemble, say_elsewhere, train_rows
from experiments.common.workdir import Workdir, write_json
from experiments.exclusive import overhead, plot, table
from experiments.exclusive.command_line import PROGRAM, parse
from experiments.exclusive.config import PRESETS, OverheadStudy, TrainingStudy
from experiments.exclusive.rows import Row, parse_rows
from experiments.exclusive.training import Language


class OverheadPlan(NamedTuple):
    """The study that trains nothing."""

    config: OverheadStudy
    origin: dict[str, Any]
    workdir: Workdir

    def shared_config(self) -> dict[str, Any]:
        return self.config.shared()

    def run(self) -> None:
        """Measure, then show the results."""
        _show(overhead.measure(self.config, self.origin), self.workdir.path)


class TrainingPlan(NamedTuple):
    """A study that trains: all that is known before anything is computed."""

    config: TrainingStudy
    origin: dict[str, Any]
    rows: list[Row]
    task: Language
    workdir: Grid

    def shared_config(self) -> dict[str, Any]:
        """What all runs in the work directory have in common."""
        return self.workdir.config

    def run(self) -> None:
        """Train what nobody has trained, then show what there is by now."""
        elsewhere = train_rows(
            self.rows,
            self.config.seeds,
            self.task,
            self.workdir,
            origin=self.origin,
            in_words=table.in_words,
        )
        with self.workdir.joining():
            preset = PRESETS[self.config.preset]
            assert isinstance(preset, TrainingStudy)
            if done := self.workdir.finished(preset.rows):
                corpus = self.task.corpus()
                found = assemble("exclusive", self.config, corpus, done)
                _show(found, self.workdir.root)
        say_elsewhere(elsewhere)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a study and return the exit code, as `run_program` says."""
    return run_program(PROGRAM, arguments, prepare, lambda plan: plan.run())


def prepare(arguments: Sequence[str]) -> OverheadPlan | TrainingPlan:
    """Everything that can be wrong, looked at before anything is computed."""
    config = parse(arguments)
    origin = provenance.origin(PROGRAM, arguments)
    if isinstance(config, OverheadStudy):
        workdir = Workdir(config.directory(), config.may_differ)
        workdir.check(config.shared())
        return OverheadPlan(config, origin, workdir)
    rows = parse_rows(config.rows)
    task = Language(config)
    for row in rows:
        task.model(row)
    shared = {**config.shared(), **task.fingerprints()}
    grid = Grid(config.directory(), shared, config.may_differ)
    grid.check()
    return TrainingPlan(config, origin, rows, task, grid)


def _show(found: dict[str, Any], directory: Path) -> None:
    """Write results, draw their figures, print their table."""
    found = {**found, "figures": list(plot.figures(found))}
    write_json(directory / "results.json", found)
    plot.draw(found, directory / "figures")
    table.show(found)
    print(f"Numbers and figures: {directory}/results.json, {directory}/figures/")
