"""Trains every row with every seed, or measures, and shows what came out."""

from collections.abc import Sequence

from experiments.common.main import run_program
from experiments.common.plan import ConfigPlan, plan_of
from experiments.common.study import StudyPlan, plan_study, run_study, show_study
from experiments.exclusive import overhead, plot, table
from experiments.exclusive.command_line import PROGRAM, parse
from experiments.exclusive.config import PRESETS, OverheadStudy, TrainingStudy
from experiments.exclusive.rows import parse_rows
from experiments.exclusive.training import Language

Plan = ConfigPlan[OverheadStudy] | StudyPlan


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a study and return the exit code, as `run_program` says."""
    return run_program(PROGRAM, arguments, prepare, run)


def prepare(arguments: Sequence[str]) -> Plan:
    """Everything that can be wrong, looked at before anything is computed."""
    config = parse(arguments)
    if isinstance(config, OverheadStudy):
        return plan_of(config, config.may_differ, PROGRAM, arguments)
    rows = parse_rows(config.rows)
    return plan_study(config, rows, Language(config), PROGRAM, arguments)


def run(plan: Plan) -> None:
    """Measure, or train what nobody has trained, then show the results."""
    if isinstance(plan, StudyPlan):
        preset = PRESETS[plan.config.preset]
        assert isinstance(preset, TrainingStudy)
        run_study("exclusive", plan, preset.rows, plot, table)
    else:
        measured = overhead.measure(plan.config, plan.origin)
        show_study(measured, plan.workdir, plot, table)
