"""How far a run has come: a bar in a terminal, plain lines elsewhere."""

import math
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """What `fit` tells about its progress; any object with these methods will do."""

    def start(self, step: int, num_steps: int) -> None:
        """Called once, before the first step: steps done so far, steps in all."""
        ...

    def update(self, step: int, values: Mapping[str, Any]) -> None:
        """Called after each step with the metrics that are known by then."""
        ...

    def stop(self) -> None:
        """Called once at the end, also after an error."""
        ...


def make_progress(label: str, stream: Any = None) -> Progress:
    """A bar if the stream is a terminal, else plain lines.

    Args:
      label: what is trained.
      stream: where to write; None is standard error.

    Returns:
      A Progress.
    """
    stream = sys.stderr if stream is None else stream
    return (
        ProgressBar(label, stream) if stream.isatty() else ProgressLines(label, stream)
    )


class ProgressBar:
    """A bar with loss, tokens per second and time left, drawn with rich."""

    def __init__(self, label: str, stream: Any = None) -> None:
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[metrics]}", markup=False),
            progress.TimeRemainingColumn(),
            console=Console(file=sys.stderr if stream is None else stream),
            refresh_per_second=4,
        )
        self._label = label

    def start(self, step: int, num_steps: int) -> None:
        self._task = self._bar.add_task(self._label, total=num_steps, metrics="")
        self._bar.update(self._task, completed=step)
        self._bar.start()

    def update(self, step: int, values: Mapping[str, Any]) -> None:
        self._bar.update(self._task, completed=step, metrics=describe(values))

    def stop(self) -> None:
        self._bar.stop()


class ProgressLines:
    """One line now and then: at the start of the run, every few seconds, at the end.

    Args:
      label: what is trained.
      stream: where to write; None is standard error.
      seconds: between two lines.
    """

    def __init__(
        self, label: str, stream: Any = None, *, seconds: float | int = 10.0
    ) -> None:
        self._label = label
        self._stream = sys.stderr if stream is None else stream
        self._seconds = seconds

    def start(self, step: int, num_steps: int) -> None:
        self._num_steps = num_steps
        self._first: tuple[int, float] | None = None

    def update(self, step: int, values: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if self._first is None:
            # What was compiled before the first step says nothing about the others.
            self._first, left = (step, now), None
        elif now - self._printed < self._seconds and step != self._num_steps:
            return
        else:
            first, began = self._first
            left = (now - began) / (step - first) * (self._num_steps - step)
        self._printed = now
        print(
            f"{self._label}: step {step}/{self._num_steps}, {describe(values)}"
            + ("" if left is None else f", {duration(left)} left"),
            file=self._stream,
            flush=True,
        )

    def stop(self) -> None:
        self._stream.flush()


def describe(values: Mapping[str, Any]) -> str:
    """Loss and tokens per second in a few characters; a dash where not known."""
    loss, rate = values.get("loss"), values.get("tokens_per_second")
    known = rate is not None and math.isfinite(rate)
    return (
        f"loss {'-' if loss is None else format(loss, '.4f')}, "
        f"{format(rate, ',.0f') if known else '-'} tokens/s"
    )


def duration(seconds: float | int) -> str:
    """Seconds as 1:02:03, or 02:03 below an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"
