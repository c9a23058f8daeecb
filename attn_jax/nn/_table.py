"""A table of names that answers a misspelt one with the nearest."""

import difflib
from typing import Generic, TypeVar

T = TypeVar("T")


class Table(dict[str, T], Generic[T]):
    """A dict whose missing key says what was expected and what may have been meant."""

    def __init__(self, what: str, rows: dict[str, T]):
        super().__init__(rows)
        self.what = what

    def __missing__(self, name: str) -> T:
        near = difflib.get_close_matches(str(name), self, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UnknownNameError(
            f"{self.what}: got {name!r}; {hint}expected one of {', '.join(self)}"
        )


class UnknownNameError(KeyError, ValueError):
    """A name that is in no table."""

    def __str__(self) -> str:
        return str(self.args[0])
