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


def integer(argument: str, value: Any, *, minimum: int | None = None) -> int:
    """The value as a Python int, at least `minimum`."""
    expected = "an integer" + ("" if minimum is None else f" of at least {minimum}")
    try:
        number = operator.index(value)
    except TypeError:
        fail(argument, repr(value), expected, "pass a whole number", TypeError)
    if minimum is not None and number < minimum:
        fail(argument, str(number), expected, f"pass {minimum} or more")
    return number


def resolve_rows(rows: slice | None, batch_size: int) -> range:
    """The rows of the global batch that are asked for, never clipped silently."""
    if rows is None:
        return range(batch_size)
    start = 0 if rows.start is None else integer("rows.start", rows.start)
    stop = batch_size if rows.stop is None else integer("rows.stop", rows.stop)
    if not 0 <= start <= stop <= batch_size or rows.step not in (None, 1):
        fail(
            "rows",
            repr(rows),
            f"a slice of step 1 inside the {batch_size} rows of the global batch",
            "divide batch_size evenly among the hosts and pass each its own slice",
        )
    return range(start, stop)


def example_arguments(
    seed: int, step: int, batch_size: int, rows: slice | None
) -> tuple[int, int, range]:
    """The checked seed, step and rows that every source of batches takes."""
    batch_size = integer("batch_size", batch_size, minimum=1)
    return (
        integer("seed", seed),
        integer("step", step, minimum=0),
        resolve_rows(rows, batch_size),
    )
