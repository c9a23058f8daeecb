"""Compares runs on a page of HTML: what differs, tables, curves, samples.

    python -m experiments.report runs/compare/demo
    python -m experiments.report runs/a runs/b docs/results/compare/demo.json

A run is the directory of one, finished or not, or the results.json of one. The page is
a single file: it opens without the runs and without a network, and can be sent.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.common.errors import UserError, of_the_system
from experiments.common.interrupts import complain
from experiments.report.page import page
from experiments.report.runs import read_runs

OUTPUT = "runs/report.html"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page and return the exit code; 2 is a run that isn't there."""
    what, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m experiments.report",
        description=what,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run")
    page_help = f"where the page goes (default: {OUTPUT})"
    parser.add_argument("--output", default=OUTPUT, metavar="FILE", help=page_help)
    chosen = parser.parse_args(arguments)
    try:
        text = page(read_runs(chosen.runs))
    except (UserError, ValueError, OSError) as error:
        return complain(error, 2)
    output = Path(chosen.output)
    try:
        _write(output, text)
    except OSError as error:
        return complain(of_the_system(error, output), 2)
    print(output)
    return 0


def _write(output: Path, text: str) -> None:
    """Write a file whole or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    scratch = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    try:
        scratch.write_text(text, encoding="utf-8")
        os.replace(scratch, output)
    finally:
        scratch.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
