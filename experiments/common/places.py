"""Where an experiment runs: options that every one of them has, for several hosts."""

import argparse
import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from attn_jax.train import hosts as hosts_of
from experiments.common.errors import fail

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
    for option in ("--hosts", "--host", "--coordinator", "--host-timeout"):
        parser.add_argument(option)
    found, rest = parser.parse_known_args(arguments)
    hosts = found.hosts
    if hosts != hosts_of.AUTO:
        hosts = _number("--hosts", hosts, int, "a whole number, or auto")
    return {
        "hosts": hosts,
        "host": _number("--host", found.host, int, "a whole number"),
        "coordinator": found.coordinator,
        "timeout": _number("--host-timeout", found.host_timeout, float, "seconds"),
    }, rest


def _number(option: str, text: str | None, kind: type, expected: str) -> Any:
    """What an option was given, None for nothing."""
    try:
        return None if text is None else kind(text)
    except ValueError:
        fail(option, repr(text), expected, "see docs/hosts.md")


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Nothing on standard output, where another host says it."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield
