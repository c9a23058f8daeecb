"""Measures, writes results.json, draws and shows what came out."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from experiments.common import provenance
from experiments.common.main import run_program
from experiments.common.workdir import Workdir, write_json
from experiments.linear_scaling import plot, table
from experiments.linear_scaling.command_line import PROGRAM, parse
from experiments.linear_scaling.config import NOT_SHARED, ScalingConfig
from experiments.linear_scaling.measuring import measure


class Plan(NamedTuple):
    """All that is known before anything is computed."""

    config: ScalingConfig
    origin: dict[str, Any]
    workdir: Workdir

    def shared_config(self) -> dict[str, Any]:
        """What all commands in the work directory have in common."""
        return self.config.shared()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit code, as `run_program` says."""
    return run_program(PROGRAM, arguments, prepare, run)


def prepare(arguments: Sequence[str]) -> Plan:
    """Everything that can be wrong, looked at before anything is computed."""
    config = parse(arguments)
    workdir = Workdir(config.directory(), NOT_SHARED)
    workdir.check(config.shared())
    return Plan(config, provenance.origin(PROGRAM, arguments), workdir)


def run(plan: Plan) -> None:
    """Measure everything, then write and show the results.

    Calls take turns, so half a measurement is none: one that was interrupted begins
    again.
    """
    config, workdir = plan.config, plan.workdir
    begin = time.perf_counter()
    rows = measure(config, lambda line: print(line, flush=True))
    results = assemble(config, plan.origin, rows, time.perf_counter() - begin)
    write_json(workdir.results, results)
    plot.draw(results, workdir.figures)
    table.show(results)
    print(f"Numbers and figures: {workdir.results}, {workdir.figures}/")


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
