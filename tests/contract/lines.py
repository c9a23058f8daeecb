"""The promises and laws, as they are written down, and the tests they name."""

import ast
import functools
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# The numbers that promises are known by; those between them name none.
NUMBERS = (
    *(1, 2, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 22, 23, 25, 26, 27),
    *(28, 29, 30, 32, 33, 34, 35, 36, 37, 38, 39, 41, 42, 44, 45, 47, 49, 50, 51, 52),
    *(53, 55, 56, 58, 60, 61, 62, 63, 65, 66, 68, 70, 71, 72, 74, 76, 77, 79, 80, 81),
    *(83, 85, 86, 87, 88, 89, 90, 92, 94, 96, 97, 98, 99, 101, 103, 105, 107, 109),
    *(111, 113, 115, 116, 117, 118, 120, 122, 123, 124, 125, 127, 129),
)


def read(name: str) -> dict[int, dict[str, Any]]:
    """{number: entry} of `lines` or `laws`."""
    text = Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8")
    return {int(number): entry for number, entry in tomllib.loads(text).items()}


def missing(tests: Iterable[str]) -> list[str]:
    """The tests whose file has no function of that name; parameters aside."""
    return [
        test
        for test in tests
        if test.partition("::")[2].partition("[")[0]
        not in _functions(test.partition("::")[0])
    ]


@functools.cache
def _functions(path: str) -> frozenset[str]:
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    nodes = ast.parse(file.read_text(encoding="utf-8")).body
    return frozenset(x.name for x in nodes if isinstance(x, ast.FunctionDef))
