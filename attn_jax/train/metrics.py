"""Metrics of a run on disk: one JSON object a line, and TensorBoard beside it."""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from attn_jax.train._checks import fail
from attn_jax.train.hosts import is_writer

FILE_NAME = "metrics.jsonl"
_RESERVED = frozenset({"name", "step", "nonfinite"})
_EVENTS = 1000  # that wait to be written: more than a line has


class MetricsWriteError(RuntimeError):
    """What a run records could not be written."""


class MetricLogger:
    """Appends metrics to `metrics.jsonl` and to TensorBoard events.

    A line is `{"name": ..., "step": ..., "loss": ..., ...}` in strict JSON. Where a
    number is not finite the line holds null, and an entry "nonfinite" says what it
    was: `{"loss": null, "nonfinite": {"loss": "nan"}}`. Several runs may share a file;
    their lines differ by name. A line is on its way to the disk when `log` returns.
    TensorBoard events lie in `tensorboard/<name>/`. Of several hosts the first writes,
    and the others check what they are given.

    Args:
      directory: where metrics.jsonl lies; made if needed.
      name: of the model or run, in every line.
      tensorboard: whether to write TensorBoard events, which takes tensorboardX.

    Raises:
      ImportError: tensorboardX is asked for and not installed.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, name: str, tensorboard: bool = True
    ) -> None:
        if not name:
            remedy = "name the model or the run"
            fail("name", repr(name), "a name that tells runs apart", remedy)
        self.name = name
        self.path = Path(directory) / FILE_NAME
        self._writes = is_writer()
        if self._writes:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self._events = self.path.parent / "tensorboard" / name
        self._make_writer = _tensorboard_writer() if tensorboard else None
        self._writer: Any = None
        self._purge: int | None = None
        self._resumed = False

    def resume(self, step: int) -> None:
        """Take up a run after `step` steps, 0 for a new one.

        Lines of this name from later steps, written by a run that was interrupted
        after its last checkpoint, are dropped, and so is a half-written last line;
        TensorBoard is told to forget those steps. Lines of other names stay.

        Raises:
          MetricsWriteError: the file could not be written.
        """
        if not self._writes:
            return
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        lines = _complete_lines(text, self.path)
        kept = [
            line
            for line, entry in lines
            if entry.get("name") != self.name or entry.get("step", 0) <= step
        ]
        if (rest := "".join(kept)) != text:
            # Renamed over the old file, so that no moment has half of the lines.
            scratch = self.path.with_name(f"{FILE_NAME}.{os.getpid()}.tmp")
            with self._writing():
                scratch.write_text(rest, encoding="utf-8")
                os.replace(scratch, self.path)
        self._purge = step + 1 if step or len(kept) < len(lines) else None
        self._resumed = True

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Write one line.

        Args:
          step: steps done.
          values: names and numbers, strings, booleans or None; arrays of one element
            count as numbers.

        Raises:
          TypeError, ValueError: a value that is none of these, or one of the names
            "name", "step" and "nonfinite".
          MetricsWriteError: the disk is full, or the like.
        """
        entry, nonfinite = {"name": self.name, "step": int(step)}, {}
        for key, value in values.items():
            if key in _RESERVED:
                fail("values", repr(key), "other names", "rename this metric")
            entry[key] = _plain(key, value)
            if isinstance(entry[key], float) and not math.isfinite(entry[key]):
                nonfinite[key], entry[key] = str(entry[key]), None
        if nonfinite:
            entry["nonfinite"] = nonfinite
        line = json.dumps(entry, allow_nan=False, ensure_ascii=False)
        if not self._writes:
            return
        if not self._resumed:
            self._end_last_line()
        with self._writing():
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            self._log_events(entry)

    def flush(self) -> None:
        """Hand TensorBoard events to the operating system; lines are there already."""
        if self._writer is not None:
            with self._writing():
                self._writer.flush()

    def close(self) -> None:
        """Write out what TensorBoard events are left."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._writing():
                writer.close()

    def __enter__(self) -> "MetricLogger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn an error of the file system into one that says what to do."""
        try:
            yield
        except OSError as error:
            raise MetricsWriteError(
                f"metrics of {self.name} could not be written to {self.path.parent}: "
                f"{error}; expected a directory with room that can be written to; put "
                "that right, then run the same command again, which goes on from the "
                "latest checkpoint"
            ) from error

    def _log_events(self, entry: Mapping[str, Any]) -> None:
        if self._make_writer is None:
            return
        if self._writer is None:
            self._writer = self._make_writer(
                str(self._events), purge_step=self._purge, max_queue=_EVENTS
            )
        if not _is_writing(self._writer):
            raise OSError("the thread that writes TensorBoard events has ended")
        for key, value in entry.items():
            if key != "step" and isinstance(value, int | float):
                self._writer.add_scalar(key, value, entry["step"])

    def _end_last_line(self) -> None:
        """Drop a half-written last line, which the next one would be glued to."""
        self._resumed = True
        if self.path.exists():
            text = self.path.read_text(encoding="utf-8")
            kept = "".join(line for line, _ in _complete_lines(text, self.path))
            if kept != text:
                os.truncate(self.path, len(kept.encode()))


def read_metrics(
    path: str | os.PathLike[str], *, name: str | None = None
) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl.

    Args:
      path: the file, or the directory it lies in.
      name: of the run whose lines to return; None returns all.

    Returns:
      One dict a line, without a half-written last line.
    """
    path = Path(path)
    path = path / FILE_NAME if path.is_dir() else path
    lines = _complete_lines(path.read_text(encoding="utf-8"), path)
    return [entry for _, entry in lines if name is None or entry.get("name") == name]


def _complete_lines(text: str, path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Each line with its newline, and parsed, without a half-written last one."""
    lines = text.split("\n")[:-1]
    complete = []
    for number, line in enumerate(lines, 1):
        try:
            entry = dict(json.loads(line))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{path}, line {number}: got {line[:60]!r}; expected one JSON object; "
                "repair or remove this line, or choose another directory"
            ) from error
        complete.append((line + "\n", entry))
    return complete


def _plain(key: str, value: Any) -> int | float | bool | str | None:
    """A value that JSON knows."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    array = np.asarray(value)
    if jnp.issubdtype(array.dtype, jnp.floating):
        array = array.astype(np.float64)
    if array.size != 1 or array.dtype.kind not in "biuf":
        fail(
            f"values[{key!r}]",
            f"{type(value).__name__} of shape {array.shape} and dtype {array.dtype}",
            "a number, a string, a boolean or None",
            "log a mean, or several metrics with a name each",
            TypeError,
        )
    return array.item()


def _is_writing(writer: Any) -> bool:
    """Whether the thread of a SummaryWriter is there still.

    A full disk ends it, and whoever hands events to nobody waits for ever.
    """
    events = getattr(writer.file_writer, "event_writer", None)
    thread = getattr(events, "_worker", None)
    return thread is None or thread.is_alive()


def _tensorboard_writer() -> Any:
    """The class that writes TensorBoard events."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError(
            "tensorboard=True: tensorboardX is not installed; expected it for writing "
            "TensorBoard events; pip install 'attn_jax[experiments]', or pass "
            "tensorboard=False"
        ) from error
    return SummaryWriter
