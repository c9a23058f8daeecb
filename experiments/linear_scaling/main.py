"""Measures, writes results.json, draws and shows what came out."""

import time
from collections.abc import Sequence
from typing import Any

from experiments.common.main import run_program
from experiments.common.plan import ConfigPlan, plan_of, publish
from experiments.linear_scaling import plot, table
from experiments.linear_scaling.command_line import PROGRAM, parse
from experiments.linear_scaling.config import NOT_SHARED, ScalingConfig
from experiments.linear_scaling.measuring import measure


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit code, as `run_program` says."""
    return run_program(PROGRAM, arguments, prepare, run)


def prepare(arguments: Sequence[str]) -> ConfigPlan[ScalingConfig]:
    """Everything that can be wrong, looked at before anything is computed."""
    config = parse(arguments)
    return plan_of(config, NOT_SHARED, PROGRAM, arguments)


def run(plan: ConfigPlan[ScalingConfig]) -> None:
    """Measure everything, then write and show the results.

    Calls take turns, so half a measurement is none: one that was interrupted begins
    again.
    """
    config, workdir = plan.config, plan.workdir
    begin = time.perf_counter()
    rows = measure(config, lambda line: print(line, flush=True))
    results = assemble(config, plan.origin, rows, time.perf_counter() - begin)
    publish(results, workdir, plot, table)


def assemble(
    config: ScalingConfig,
    origin: dict[str, Any],
    rows: list[dict[str, Any]],
    seconds: float,
) -> dict[str, Any]:
    """Everything that the tables and the figure are made from."""
    return {
        "experiment": "linear_scaling",
        "preset": config.preset,
        **origin,
        "config": {**config.shared(), "seeds": [0]},
        "seconds": round(seconds, 1),
        "rows": rows,
    }
