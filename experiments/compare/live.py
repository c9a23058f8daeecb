"""What is shown while models train: a live table in a terminal, lines elsewhere."""

import math
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol, Self

from attn_jax.train import Progress, ProgressLines
from attn_jax.train.progress import duration
from experiments.compare.table import rate


class Display(Protocol):
    """Follows the runs of a comparison, one after the other."""

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


def make_display(runs: list[str], num_steps: int) -> Display:
    """A live table if standard output is a terminal, else lines."""
    if sys.stdout.isatty():
        return LiveTable(runs, num_steps)
    return Lines()


class Lines:
    """A line when something begins, every few seconds, and when it is done."""

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
            f"{run}: done, {numbers['validation_bits_per_byte']:.3f} bits per byte, "
            f"{rate(numbers)} tokens/s, compiled in "
            f"{numbers['compile_seconds']:.1f} s",
            flush=True,
        )


class LiveTable:
    """One line a run, the same from beginning to end."""

    def __init__(self, runs: list[str], num_steps: int) -> None:
        from rich.live import Live

        self._num_steps = num_steps
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
        return _LiveRow(self._cells[run])

    def finished(self, run: str, numbers: Mapping[str, Any]) -> None:
        bits = f"{numbers['validation_bits_per_byte']:.3f}"
        loss = self._cells[run][1]
        self._cells[run][:] = ["done", loss, rate(numbers), "", bits]

    def _table(self) -> Any:
        from rich.table import Table

        table = Table(title=f"{self._num_steps} steps each; losses in bits per byte")
        table.add_column("model")
        for name in ("step", "loss", "tokens/s", "time left", "validation"):
            table.add_column(name, justify="right")
        for run, cells in self._cells.items():
            table.add_row(run, *cells)
        return table


class _LiveRow:
    """Writes the progress of one run into its line of the table."""

    def __init__(self, cells: list[str]) -> None:
        self._cells = cells

    def start(self, step: int, num_steps: int) -> None:
        self._first, self._num_steps = step, num_steps
        self._began = time.monotonic()
        self._cells[0] = f"{step}"

    def update(self, step: int, values: Mapping[str, Any]) -> None:
        spent = time.monotonic() - self._began
        left = spent / (step - self._first) * (self._num_steps - step)
        bits = values["loss"] / math.log(2)
        self._cells[:4] = [f"{step}", f"{bits:.3f}", rate(values), duration(left)]

    def stop(self) -> None:
        self._cells[3] = "measuring"
