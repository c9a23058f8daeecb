"""The command line: a preset, then fields of the config."""

import argparse
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from benchmarks.config import PARTS, PRESETS, BenchConfig
from experiments.common.errors import UserError, check_name

PROGRAM = "python -m benchmarks"


def parse(arguments: Sequence[str]) -> BenchConfig:
    """The config that a command line asks for.

    Written with argparse, since tyro and tokamax want different versions of typeguard.
    """
    parser = argparse.ArgumentParser(prog=PROGRAM, description=BenchConfig.__doc__)
    parser.add_argument("preset", nargs="?", default="full", help=", ".join(PRESETS))
    options = {
        "--" + entry.name.replace("_", "-"): _reading(entry.default)
        for entry in fields(BenchConfig)
        if entry.name != "preset"
    }
    for option, reading in options.items():
        parser.add_argument(option, **reading)
    known, others = parser.parse_known_args(arguments)
    read = vars(known)
    try:
        # What follows an unknown option is taken for the preset.
        for word in others:
            check_name("option", word.partition("=")[0], options)
        check_name("preset", read["preset"], PRESETS)
        for word in read["parts"] or ():
            check_name("--parts", word, PARTS)
    except UserError as error:
        parser.error(str(error))
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in read.items()
        if value is not None
    }
    return replace(PRESETS[given.pop("preset")], **given)


def _reading(default: Any) -> dict[str, Any]:
    """How a field is read from words."""
    if default is None or isinstance(default, tuple):
        return {"nargs": "+", "metavar": "WORD"}
    kind = Path if isinstance(default, Path) else type(default)
    return {"type": kind, "metavar": kind.__name__.upper()}
