"""The command line: a preset, then fields of the config."""

import argparse
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from benchmarks.config import PARTS, PRESETS, BenchConfig

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
    read = vars(parser.parse_args(arguments))
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in read.items()
        if value is not None
    }
    config = replace(PRESETS[given.pop("preset")], **given)
    unknown = set(config.parts) - set(PARTS)
    if unknown:
        parser.error(f"--parts: got {sorted(unknown)}; expected of {', '.join(PARTS)}")
    return config


def _reading(default: Any) -> dict[str, Any]:
    """How a field is read from words."""
    if default is None or isinstance(default, tuple):
        return {"nargs": "+", "metavar": "WORD"}
    kind = Path if isinstance(default, Path) else type(default)
    return {"type": kind, "metavar": kind.__name__.upper()}
