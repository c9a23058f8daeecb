"""Trains every row with every seed, and shows what came out."""

from collections.abc import Sequence
from typing import Any

from experiments.common.main import run_program
from experiments.common.plan import ConfigPlan, plan_of
from experiments.common.study import StudyPlan, plan_study, run_study, show_study
from experiments.synthesizer import plot, speed, table
from experiments.synthesizer.classification import Classification
from experiments.synthesizer.command_line import PROGRAM, parse
from experiments.synthesizer.config import (
    ROWS,
    ClassificationStudy,
    LanguageStudy,
    SpeedStudy,
    Study,
    Training,
    TranslationStudy,
)
from experiments.synthesizer.language import Language
from experiments.synthesizer.presets import PRESETS
from experiments.synthesizer.rows import parse_rows
from experiments.synthesizer.translation import Translation

TASKS: dict[type[Training], Any] = {
    LanguageStudy: Language,
    TranslationStudy: Translation,
    ClassificationStudy: Classification,
}
Plan = ConfigPlan[SpeedStudy] | StudyPlan


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a study and return the exit code, as `run_program` says."""
    return run_program(PROGRAM, arguments, prepare, run)


def prepare(arguments: Sequence[str]) -> Plan:
    """Everything that can be wrong, looked at before anything is computed."""
    config: Study = parse(arguments)
    rows = parse_rows(config.rows)
    if isinstance(config, SpeedStudy):
        speed.check(rows, config)
        return plan_of(config, config.may_differ, PROGRAM, arguments)
    assert isinstance(config, Training)
    task = TASKS[type(config)](config)
    return plan_study(config, rows, task, PROGRAM, arguments)


def run(plan: Plan) -> None:
    """Measure, or train what nobody has trained, then show the results."""
    if isinstance(plan, StudyPlan):
        order = (*ROWS, *PRESETS[plan.config.preset].rows)
        run_study("synthesizer", plan, order, plot, table)
    else:
        measured = speed.measure(plan.config, plan.origin)
        show_study(measured, plan.workdir, plot, table)
