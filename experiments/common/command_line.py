"""The command line of an experiment: a preset, then fields of its config."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import tyro

from experiments.common.errors import check_name, fail, option
from experiments.common.help_page import help_page
from experiments.common.mesh import split_mesh

HELP = {"-h", "--help", "-H", "--help-verbose"}
Config = TypeVar("Config")


def parse(
    arguments: Sequence[str],
    presets: Mapping[str, Config],
    default: str,
    *,
    program: str,
    purpose: str,
) -> Config:
    """The config that a command line asks for; its numbers are not checked yet."""
    preset, fields = split(split_mesh(arguments)[1], default)
    check_name(
        "preset",
        preset,
        presets,
        remedy=f"name a preset first, then fields: {program} {default} --steps 9",
    )
    config = presets[preset]
    if HELP & set(fields):
        print(help_page(config, presets, default, program, purpose), end="")
        raise SystemExit(0)
    return tyro.cli(
        type(config), default=config, args=fields, prog=f"{program} [preset]"
    )


def split(arguments: Sequence[str], default: str) -> tuple[str, list[str]]:
    """The preset, and the rest."""
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], list(arguments[1:])
    return default, list(arguments)


def at_least(config: Any, minimum: int, *names: str) -> None:
    """Raise for a field below a minimum."""
    for name in names:
        value = getattr(config, name)
        if value < minimum:
            expected = f"a whole number of at least {minimum}"
            fail(option(name), value, expected, f"pass {minimum} or more")


def check_names(
    field: str,
    names: Sequence[str],
    known: Sequence[str],
    *,
    pattern: str = "(?!)",
    described: str = "",
    repeats: str = "--seeds",
) -> None:
    """Raise for no names, for one that isn't known, and for one that is there twice.

    Args:
      pattern: of other names that are taken; as it is, none.
      described: these, in words that follow the known ones.
      repeats: the option for whoever wants one twice.
    """
    expected = f"{', '.join(known)}{described}"
    if not names:
        fail(field, "none", f"at least one of {expected}", "name one")
    for name in names:
        if not re.fullmatch(pattern, name):
            check_name(field, name, known, described=described)
    if twice := sorted({name for name in names if list(names).count(name) > 1}):
        fail(field, f"{twice} twice", "each once", f"use {repeats} to repeat")
