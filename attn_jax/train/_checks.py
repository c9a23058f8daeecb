"""Checks of arguments, with messages that say what came and what to do."""

import operator
from typing import Any, NoReturn


def fail(
    argument: str,
    got: str,
    expected: str,
    remedy: str,
    error: type[Exception] = ValueError,
) -> NoReturn:
    """Raise `error` with a message of four parts: argument, got, expected, remedy."""
    raise error(f"{argument}: got {got}; expected {expected}; {remedy}")


def integer(argument: str, value: Any, *, minimum: int) -> int:
    """The value as a Python int, at least `minimum`."""
    expected = f"an integer of at least {minimum}"
    try:
        number = operator.index(value)
    except TypeError:
        fail(argument, repr(value), expected, "pass a whole number", TypeError)
    if number < minimum:
        fail(argument, str(number), expected, f"pass {minimum} or more")
    return number
