"""Mistakes that the person at the command line can put right."""

import difflib
import errno
import os
from collections.abc import Iterable
from typing import NoReturn

_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_RIGHTS = (errno.EACCES, errno.EPERM, errno.EROFS)
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class UserError(Exception):
    """What came, what was expected and what to do; shown without a traceback."""


def fail(argument: str, got: object, expected: str, remedy: str) -> NoReturn:
    raise UserError(f"{argument}: got {got}; expected {expected}; {remedy}")


def option(name: str) -> str:
    """A field of a config as it is written on the command line."""
    return "--" + name.replace("_", "-")


def check_name(
    argument: str,
    name: str,
    known: Iterable[str],
    *,
    described: str = "",
    remedy: str = "name one of these",
) -> None:
    """Raise for a name that isn't known, with the nearest one.

    Args:
      described: what else is taken, in words that follow the known names.
    """
    known = list(known)
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    fail(argument, repr(name), f"one of {', '.join(known)}{described}", hint + remedy)


def of_the_system(error: OSError, workdir: object) -> UserError:
    """What the operating system refuses in the middle of a run, and what to do.

    workdir: where the run writes, for an error that names no file.
    """
    place = workdir if error.filename is None else os.fspath(error.filename)
    if error.errno in _ROOM:
        expected, remedy = "a disk with room", "make room"
    elif error.errno in _RIGHTS:
        expected, remedy = "a file that may be read and written", "change its rights"
    elif error.errno in _GONE:
        expected, remedy = "a file that stays there while a run lasts", "put it back"
    else:
        expected, remedy = "a file that can be read and written", "look at the disk"
    return UserError(
        f"{place}: got {error.strerror or error}; expected {expected}; {remedy}, then "
        "run the same command again"
    )
