"""Where an experiment runs: options that every one of them has, for several hosts."""

import argparse
import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

HELP = (
    "--hosts 2 --host 0 --coordinator ADDRESS:PORT is one of several hosts; a lost one "
    "ends the others after --host-timeout SECONDS (docs/hosts.md)."
)


def place_of(arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """What `attn_jax.train.hosts.joined` is told, and the rest of a command line.

    >>> place_of(["demo", "--hosts", "2", "--host", "0", "--steps", "9"])[1]
    ['demo', '--steps', '9']
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--hosts", type=_count)
    parser.add_argument("--host", type=int)
    parser.add_argument("--coordinator")
    parser.add_argument("--host-timeout", type=float, dest="timeout")
    found, rest = parser.parse_known_args(arguments)
    return vars(found), rest


def _count(text: str) -> int | str:
    return text if text == "auto" else int(text)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Nothing on standard output, where another host says it."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield
