"""A small text, a few images, and experiments run in this process."""

import contextlib
import functools
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from experiments.compare.main import main as compare_main
from experiments.exclusive.main import main as exclusive_main
from experiments.linear_images.main import main as images_main
from experiments.linear_scaling.main import main as scaling_main
from experiments.synthesizer.main import main as synthesizer_main
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
def synthesize() -> Callable[..., Outcome]:
    return functools.partial(run, synthesizer_main)


@pytest.fixture(scope="session")
def exclude() -> Callable[..., Outcome]:
    return functools.partial(run, exclusive_main)


@pytest.fixture(scope="session")
def draw() -> Callable[..., Outcome]:
    return functools.partial(run, images_main)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of idx files: slopes of grey, 4 x 4, 20 to train on and 5 held out."""
    folder = tmp_path_factory.mktemp("pictures")
    place = np.add.outer(np.arange(4), np.arange(4))
    for name, count in (("train", 20), ("t10k", 5)):
        images = (place + 9 * np.arange(count)[:, None, None]).astype(np.uint8)
        header = struct.pack(">HBB3I", 0, 8, 3, *images.shape)
        path = folder / f"{name}-images-idx3-ubyte"
        path.write_bytes(header + images.tobytes())
    return folder


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text whose bytes depend on those before them."""
    path = tmp_path_factory.mktemp("text") / "book.txt"
    lines = [
        f"{n} times {n + 1} is {n * (n + 1)}, as anybody knows.\n" for n in range(500)
    ]
    path.write_text("".join(lines))
    return path
