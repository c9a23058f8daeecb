"""The command line: a preset, then fields of the config."""

import argparse
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from benchmarks.config import PRESETS, BenchConfig

PROGRAM = "python -m benchmarks"


def parse(arguments: Sequence[str]) -> BenchConfig:
    """The config that a command line asks for.

    Written with argparse, since tyro and tokamax want different versions of typeguard.
    """
    parser = argparse.ArgumentParser(prog=PROGRAM, description=BenchConfig.__doc__)
    parser.add_argument("preset", nargs="?", default="full", choices=sorted(PRESETS))
    for entry in fields(BenchConfig):
        if entry.name != "preset":
            option = "--" + entry.name.replace("_", "-")
            parser.add_argument(option, **_reading(entry.default))
    given = {name: x for name, x in vars(parser.parse_args(arguments)).items() if x}
    return replace(PRESETS[given.pop("preset")], **given)


def _reading(default: Any) -> dict[str, Any]:
    """How a field is read from words."""
    if default is None:
        return {"nargs": "+", "metavar": "WORD"}
    kind = Path if isinstance(default, Path) else type(default)
    return {"type": kind, "metavar": kind.__name__.upper()}
