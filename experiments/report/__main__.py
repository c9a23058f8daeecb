"""Compares runs on a page of HTML: what differs, tables, curves, samples.

    python -m experiments.report runs/compare/demo
    python -m experiments.report runs/a runs/b docs/results/compare/demo.json

A run is the directory of one, finished or not, or the results.json of one. The page is
a single file: it opens without the runs and without a network, and can be sent.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.common.errors import fail
from experiments.common.programs import exit_code, parser_of
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

    def write() -> None:
        output = _output(chosen.output)
        write_text(output, page(read_runs(chosen.runs)))
        print(chosen.output)

    return exit_code(write, chosen.output)


def _output(path: str) -> Path:
    """Where the page goes, links followed; only files are replaced."""
    output = Path(os.path.realpath(path))
    if not path or (output.exists() and not output.is_file()):
        got = f"{path}, which is there and no file" if path else "nothing"
        fail("--output", got, "a file, new or old", f"pass {OUTPUT}")
    return output


if __name__ == "__main__":
    sys.exit(main())
