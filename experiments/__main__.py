"""`python -m experiments [NAME ...]`: what there is to run, where, for how long."""

import argparse
import sys
from collections.abc import Sequence

from experiments.common import listing
from experiments.common.errors import UserError, check_name
from experiments.common.interrupts import complain

PROGRAM = "python -m experiments"
USAGE = f"""\
Run one with {PROGRAM}.NAME [preset] [--field value ...]; --help lists its
options. {PROGRAM} NAME shows one alone. Results: docs/results.md.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the list and return the exit code; 2 is a name that isn't there."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Lists the experiments and their presets."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of an experiment")
    names = parser.parse_args(arguments).names
    found = {each.name: each for each in listing.experiments()}
    programs = {
        each.module.removeprefix("experiments."): each for each in listing.programs()
    }
    try:
        for name in names:
            check_name("experiment", name, [*found, *programs], remedy=f"see {PROGRAM}")
    except UserError as error:
        return complain(error, 2)
    chosen = [found[name] for name in found if not names or name in names]
    beside = [programs[name] for name in programs if not names or name in names]
    print(f"{listing.page(chosen, beside)}\n\n{USAGE}", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
