"""Mistakes that the person at the command line can put right."""

from typing import NoReturn


class UserError(Exception):
    """What came, what was expected and what to do; shown without a traceback."""


def fail(argument: str, got: object, expected: str, remedy: str) -> NoReturn:
    raise UserError(f"{argument}: got {got}; expected {expected}; {remedy}")
