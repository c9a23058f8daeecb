"""What is shown while models train: a live table in a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, Self

from attn_jax.train import Progress, ProgressLines
from attn_jax.train.progress import duration


class Measure(NamedTuple):
    """How numbers are said.

    unit, scale: of losses while training, and how many of them a nat is.
    reached: what a run that is done came to, unit included, from its numbers.
    """

    unit: str
    scale: float
    reached: Callable[[Mapping[str, Any]], str]


class Display(Protocol):
    """Follows the runs of an experiment, one after the other."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def compiling(self, run: str) -> None:
        """Called before a run is built or restored."""
        ...

    def progress(self, run: str) -> Progress:
        """What `fit` tells how far the run has come."""
        ...

    def finished(self, run: str, numbers: Mapping[str, Any]) -> None:
        """Called with the numbers of a run that is done, now or earlier."""
        ...


def make_display(runs: list[str], measure: Measure) -> Display:
    """A live table if standard output is a terminal, else lines."""
    if sys.stdout.isatty():
        return LiveTable(runs, measure)
    return Lines(measure)


def rate(values: Mapping[str, Any]) -> str:
    """Tokens a second, a dash where not known."""
    known = values.get("tokens_per_second")
    return "-" if known is None or known != known else f"{known:,.0f}"


class Lines:
    """A line when something begins, every few seconds, and when it is done."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def compiling(self, run: str) -> None:
        print(f"{run}: compiling", flush=True)

    def progress(self, run: str) -> Progress:
        return ProgressLines(run, sys.stdout)

    def finished(self, run: str, numbers: Mapping[str, Any]) -> None:
        print(
            f"{run}: done, {self._measure.reached(numbers)}, "
            f"{rate(numbers)} tokens/s, compiled in "
            f"{numbers['compile_seconds']:.1f} s",
            flush=True,
        )


class LiveTable:
    """One line a run, the same from beginning to end."""

    def __init__(self, runs: list[str], measure: Measure) -> None:
        from rich.live import Live

        self._measure = measure
        self._cells = {run: ["waiting", "", "", "", ""] for run in runs}
        self._live = Live(
            get_renderable=self._table, refresh_per_second=2, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def compiling(self, run: str) -> None:
        self._cells[run][0] = "compiling"

    def progress(self, run: str) -> Progress:
        return _LiveRow(self._cells[run], self._measure.scale)

    def finished(self, run: str, numbers: Mapping[str, Any]) -> None:
        loss, reached = self._cells[run][1], self._measure.reached(numbers)
        self._cells[run][:] = ["done", loss, rate(numbers), "", reached]

    def _table(self) -> Any:
        from rich.table import Table

        table = Table(title=f"losses in {self._measure.unit}")
        table.add_column("model")
        for name in ("step", "loss", "tokens/s", "time left", "validation"):
            table.add_column(name, justify="right")
        for run, cells in self._cells.items():
            table.add_row(run, *cells)
        return table


class _LiveRow:
    """Writes the progress of one run into its line of the table."""

    def __init__(self, cells: list[str], scale: float) -> None:
        self._cells, self._scale = cells, scale

    def start(self, step: int, num_steps: int) -> None:
        self._first, self._num_steps = step, num_steps
        self._began = time.monotonic()
        self._cells[0] = f"{step}/{num_steps}"

    def update(self, step: int, values: Mapping[str, Any]) -> None:
        spent = time.monotonic() - self._began
        left = spent / (step - self._first) * (self._num_steps - step)
        loss = values["loss"] * self._scale
        of_all = f"{step}/{self._num_steps}"
        self._cells[:4] = [of_all, f"{loss:.3f}", rate(values), duration(left)]

    def stop(self) -> None:
        self._cells[3] = "measuring"
