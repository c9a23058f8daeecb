"""A small text, and experiments run in this process."""

import contextlib
import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.compare.main import main as compare_main
from experiments.linear_scaling.main import main as scaling_main
from experiments.translation.main import main as translation_main


class Outcome(NamedTuple):
    """What a command left: exit code and what it printed."""

    code: int
    out: str
    err: str


def run(main: Callable[[list[str]], int], *arguments: str | Path) -> Outcome:
    """`python -m experiments.<name> ...`, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def compare() -> Callable[..., Outcome]:
    return functools.partial(run, compare_main)


@pytest.fixture(scope="session")
def translate() -> Callable[..., Outcome]:
    return functools.partial(run, translation_main)


@pytest.fixture(scope="session")
def scale() -> Callable[..., Outcome]:
    return functools.partial(run, scaling_main)


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text whose bytes depend on those before them."""
    path = tmp_path_factory.mktemp("text") / "book.txt"
    lines = [
        f"{n} times {n + 1} is {n * (n + 1)}, as anybody knows.\n" for n in range(500)
    ]
    path.write_text("".join(lines))
    return path
