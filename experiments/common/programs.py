"""Programs beside the experiments, whose docstring is what --help says."""

import argparse
import sys
from collections.abc import Callable

from experiments.common.errors import UserError, of_the_system
from experiments.common.interrupts import complain, sigterm_interrupts


def parser_of(program: str, docstring: str | None) -> argparse.ArgumentParser:
    """A parser without arguments yet; what follows the first line comes at the end."""
    what, _, more = (docstring or "").partition("\n\n")
    return argparse.ArgumentParser(
        prog=program,
        description=what,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def exit_code(do: Callable[[], None], writes: object) -> int:
    """What a program ends with: 2 is a mistake, 130 Ctrl-C or SIGTERM, in a line each.

    writes: where, for an error of the system that names no file.
    """
    try:
        with sigterm_interrupts():
            do()
    except UserError as error:
        return complain(error, 2)
    except OSError as error:
        return complain(of_the_system(error, writes), 2)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0
