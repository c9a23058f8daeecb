"""Compares runs on a page of HTML: what differs, tables, curves, samples.

    python -m experiments.report runs/compare/demo
    python -m experiments.report runs/a runs/b docs/results/compare/demo.json

A run is the directory of one, finished or not, or the results.json of one. The page is
a single file: it opens without the runs and without a network, and can be sent.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.common.errors import UserError, of_the_system
from experiments.common.interrupts import complain
from experiments.common.programs import parser_of
from experiments.common.workdir import write_text
from experiments.report.page import page
from experiments.report.runs import read_runs

OUTPUT = "runs/report.html"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page and return the exit code; 2 is one that can't be made."""
    parser = parser_of("python -m experiments.report", __doc__)
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
        write_text(output, text)
    except OSError as error:
        return complain(of_the_system(error, output), 2)
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
