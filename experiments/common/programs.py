"""Programs beside the experiments, whose docstring is what --help says."""

import argparse


def parser_of(program: str, docstring: str | None) -> argparse.ArgumentParser:
    """A parser without arguments yet; what follows the first line comes at the end."""
    what, _, more = (docstring or "").partition("\n\n")
    return argparse.ArgumentParser(
        prog=program,
        description=what,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
