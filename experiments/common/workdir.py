"""What a work directory holds, and whether a run may go on in it.

    config.json            what all runs in here have in common
    metrics.jsonl          one object a line, of every run
    tensorboard/           the same as events
    checkpoints/<run>/     the latest states of a run
    finished/<run>.json    the numbers of a run that is done, where there are several
    results.json           what the last command found, see `results`
    figures/               drawn from results.json

A run is one model with one seed. An experiment may keep more in here.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from attn_jax.train.hosts import is_writer, meet
from experiments.common.errors import UserError, fail, of_the_system, option

# What Orbax writes into a step, which gets its name once it is complete.
STEP_FILE = "_CHECKPOINT_METADATA"
OURS = ("metrics.jsonl", "checkpoints", "finished", "results.json", "tensorboard")


class InUseError(UserError):
    """Another process is running in the directory."""


class Workdir:
    """A directory in which one experiment runs, however often it is interrupted.

    may_differ: fields of the config that are not the same for all commands in here.
    """

    def __init__(self, path: Path, may_differ: Sequence[str]) -> None:
        self.path = path
        # These two are no options of the command that goes on here.
        names = [name for name in may_differ if name not in ("preset", "workdir")]
        options = ", ".join(map(option, names))
        self._same = "the same config" + (f" ({options} may differ)" if names else "")

    def __str__(self) -> str:
        return str(self.path)

    @property
    def results(self) -> Path:
        return self.path / "results.json"

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    def checkpoints(self, run: str) -> Path:
        return self.path / "checkpoints" / run

    def finished(self, run: str) -> dict[str, Any] | None:
        """The numbers of a run that is done."""
        return read_json(self._finished(run))

    def all_finished(self) -> list[dict[str, Any]]:
        """The numbers of every run that is done, whichever command did it."""
        files = sorted((self.path / "finished").glob("*.json"))
        return [numbers for file in files if (numbers := read_json(file)) is not None]

    def finish(self, run: str, numbers: dict[str, Any]) -> None:
        write_json(self._finished(run), numbers)

    def _finished(self, run: str) -> Path:
        return self.path / "finished" / f"{run}.json"

    def latest_step(self, run: str) -> int:
        """How far a run has come: its complete steps, without opening them."""
        files = self.checkpoints(run).glob(f"*/{STEP_FILE}")
        names = [file.parent.name for file in files]
        return max((int(name) for name in names if name.isdigit()), default=0)

    def begun(self) -> bool:
        """Whether there is anything of a run but its config, and empty files."""
        places = [self.path / name for name in OURS if name != "tensorboard"]
        files = (
            file
            for place in places
            for file in ([place] if place.is_file() else place.rglob("*"))
        )
        return any(file.is_file() and file.stat().st_size for file in files)

    def config(self) -> dict[str, Any] | None:
        """What the runs in here have in common, None where there are none yet."""
        try:
            return read_json(self.path / "config.json")
        except (OSError, ValueError) as error:
            self._refuse(f"which cannot be read ({error})", "what a run left there")

    def check(self, config: dict[str, Any]) -> None:
        """Raise unless the directory is free, or holds runs of this config.

        A config beside which nothing has begun yet may be another.
        """
        there = self.config()
        try:
            for file in (self.path / "finished").glob("*.json"):
                read_json(file)
            foreign = [name for name in OURS if (self.path / name).exists()]
        except (OSError, ValueError) as error:
            self._refuse(f"which cannot be read ({error})", "what a run left there")
        if there is None and foreign:
            self._refuse(f"which has {foreign[0]} but no config.json", "a run's own")
        different = [] if there is None else differences(there, config)
        if different and self.begun():
            self._refuse(
                f"which holds a run with another config ({'; '.join(different)})",
                self._same,
            )

    def _refuse(self, why: str, expected: str) -> NoReturn:
        remedy = "pass another --workdir, or remove this one to begin anew"
        fail("workdir", f"{self.path}, {why}", expected, remedy)

    @contextlib.contextmanager
    def claim(self, config: dict[str, Any]) -> Iterator[None]:
        """Make the directory, write config.json, and keep other processes out.

        Of several hosts the first does so, for all of them.
        """
        if not is_writer():
            meet(f"the work directory {self.path.name}")
            yield
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("a")
        except OSError as error:
            remedy = "pass another --workdir"
            expected = "a directory that can be written to"
            fail("workdir", f"{self.path} ({error.strerror})", expected, remedy)
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InUseError(
                    f"workdir: got {self.path}, where another process is running; "
                    "expected one run at a time in a directory; wait for it, or pass "
                    "another --workdir"
                ) from None
            if not (self.path / "config.json").exists() or not self.begun():
                try:
                    write_json(self.path / "config.json", config)
                except OSError as error:
                    raise of_the_system(error, self.path) from error
            meet(f"the work directory {self.path.name}")
            yield


def differences(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """What differs between two configs, the first one read from JSON, in words."""
    here = json.loads(json.dumps(here))
    return [
        f"{name}: {there.get(name)} there, {here.get(name)} now"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file, None where there is no file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds {type(value).__name__}, not an object")
    return value


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a file whole or not at all, whoever else is writing it.

    Of several hosts the first writes it.
    """
    if not is_writer():
        return
    text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False)
    write_text(path, text + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all, whoever else is writing it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        scratch.write_text(text, encoding="utf-8", errors="replace")
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
