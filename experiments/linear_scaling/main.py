"""Measures, writes results.json, draws and shows what came out."""

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Any

from experiments.common import provenance
from experiments.common.errors import UserError
from experiments.common.interrupts import complain, sigterm_interrupts
from experiments.common.workdir import Workdir, write_json
from experiments.linear_scaling import plot, table
from experiments.linear_scaling.command_line import PROGRAM, parse
from experiments.linear_scaling.config import NOT_SHARED, ScalingConfig
from experiments.linear_scaling.measuring import measure


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit code.

    0: the results are there. 2: a mistake on the command line. 130: interrupted by
    Ctrl-C or SIGTERM.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    command = provenance.command(PROGRAM, arguments)
    with sigterm_interrupts(), contextlib.ExitStack() as stack:
        try:
            try:
                config = parse(arguments)
                workdir = Workdir(config.directory(), NOT_SHARED)
                workdir.check(config.shared())
                stack.enter_context(workdir.claim(config.shared()))
            except (UserError, ValueError, OSError) as error:
                return complain(error, 2)
            run(config, command, workdir)
        except KeyboardInterrupt:
            print(
                "\nInterrupted. Calls take turns, so half a measurement is none. To "
                f"begin again:\n  {command}",
                file=sys.stderr,
            )
            return 130
    return 0


def run(config: ScalingConfig, command: str, workdir: Workdir) -> None:
    """Measure everything, then write and show the results."""
    begin = time.perf_counter()
    rows = measure(config, lambda line: print(line, flush=True))
    results = assemble(config, command, rows, time.perf_counter() - begin)
    write_json(workdir.results, results)
    plot.draw(results, workdir.figures)
    table.show(results)
    print(f"Numbers and figures: {workdir.results}, {workdir.figures}/")


def assemble(
    config: ScalingConfig, command: str, rows: list[dict[str, Any]], seconds: float
) -> dict[str, Any]:
    """Everything that the tables and the figure are made from."""
    return {
        "experiment": "linear_scaling",
        "preset": config.preset,
        "command": command,
        "config": {**config.shown(), "seeds": [0]},
        "versions": provenance.versions(),
        "device": provenance.device(),
        "commit": provenance.commit(),
        "seconds": round(seconds, 1),
        "rows": rows,
    }
