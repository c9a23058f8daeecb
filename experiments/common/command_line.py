"""The command line of an experiment: a preset, then fields of its config."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import tyro

from experiments.common.errors import fail
from experiments.common.mesh import HELP, split_mesh

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
    if preset not in presets:
        near = difflib.get_close_matches(preset, presets, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        remedy = (
            f"{hint}name a preset first, then fields: {program} {default} --steps 9"
        )
        fail("preset", repr(preset), f"one of {', '.join(presets)}", remedy)
    description = (
        f"{purpose} Presets: {', '.join(presets)}; one may come first, before the "
        f"options. Defaults below are those of {preset!r}. {HELP}"
    )
    return tyro.cli(
        type(presets[preset]),
        default=presets[preset],
        args=fields,
        prog=f"{program} [preset]",
        description=description,
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
        if name not in known and not re.fullmatch(pattern, name):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            remedy = f"{hint}name one of these"
            fail(field, repr(name), f"one of {expected}", remedy)
    if twice := sorted({name for name in names if list(names).count(name) > 1}):
        fail(field, f"{twice} twice", "each once", f"use {repeats} to repeat")


def option(name: str) -> str:
    """A field as it is written on the command line."""
    return "--" + name.replace("_", "-")
