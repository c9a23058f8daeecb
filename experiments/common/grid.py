"""Runs of rows and seeds side by side: each in a directory of its own.

    <root>/<row>-seed<n>/    a work directory, see `workdir`, of this run alone
    <root>/results.json      what is finished, joined
    <root>/figures/          drawn from results.json

Directories share nothing, so several processes may train different runs of one root.
"""

import contextlib
import fcntl
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.common.errors import fail
from experiments.common.workdir import InUseError, Workdir

RUN = "run"
NAME = re.compile(r"(?P<row>.+)-seed(?P<seed>\d+)")


def row_and_seed(path: Path) -> tuple[str, int] | None:
    """What a directory is the run of; None where it is no run of a grid."""
    found = NAME.fullmatch(path.name)
    return None if found is None else (found["row"], int(found["seed"]))


def numbers_of(path: Path) -> dict[str, Any] | None:
    """The numbers of the run in a directory, None while it isn't done."""
    return Workdir(path, ()).finished(RUN)


class Grid:
    """The runs in a directory, all of one config.

    Args:
      root: where the runs lie.
      config: what all of them have in common.
      may_differ: fields of the config that are not the same for all commands in here.
    """

    def __init__(
        self, root: Path, config: dict[str, Any], may_differ: Sequence[str]
    ) -> None:
        self.root, self.config = root, config
        self._may_differ = may_differ

    def __str__(self) -> str:
        return str(self.root)

    @contextlib.contextmanager
    def claim(self, config: dict[str, Any]) -> Iterator[None]:
        """Make the directory; nobody is kept out, since each run has one of its own."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            expected = "a directory that can be written to"
            got = f"{self.root} ({error.strerror})"
            fail("workdir", got, expected, "pass another --workdir")
        yield

    def of(self, row: str, seed: int) -> Workdir:
        """The work directory of a run."""
        return Workdir(self.root / f"{row}-seed{seed}", self._may_differ)

    def check(self) -> None:
        """Raise unless every run that is there is of this config."""
        for path in self._there():
            Workdir(path, self._may_differ).check(self._of_run(path))

    def train(
        self, row: str, seed: int, train: Callable[[Workdir], dict[str, Any]]
    ) -> dict[str, Any] | None:
        """The numbers of a run, which is trained unless it is finished.

        None where another process is at it.
        """
        workdir = self.of(row, seed)
        try:
            with workdir.claim(self._of_run(workdir.path)):
                numbers = workdir.finished(RUN)
                if numbers is None:
                    numbers = {"row": row, "seed": seed, **train(workdir)}
                    workdir.finish(RUN, numbers)
                return numbers
        except InUseError:
            return None

    @contextlib.contextmanager
    def joining(self) -> Iterator[None]:
        """One process at a time: the last one to join sees what all have finished."""
        with (self.root / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def finished(self, order: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
        """The numbers of all runs that are done, by row; a row's seeds in order.

        Args:
          order: in which rows come; others follow.
        """
        runs = [numbers_of(path) for path in self._there()]
        done = sorted((run for run in runs if run), key=lambda run: run["seed"])
        names = dict.fromkeys([*order, *sorted(run["row"] for run in done)])
        rows = {name: [run for run in done if run["row"] == name] for name in names}
        return {name: found for name, found in rows.items() if found}

    def _there(self) -> list[Path]:
        return sorted(path.parent for path in self.root.glob("*-seed*/config.json"))

    def _of_run(self, path: Path) -> dict[str, Any]:
        return {**self.config, "run": path.name}
