"""Tokens per second of training alone."""

import time


class Throughput:
    """Counts tokens against a clock that stops while something else runs.

    `total` is the rate since the first start, `lap` the rate since the lap before.
    Both are NaN while no time has passed.
    """

    def __init__(self) -> None:
        self._seconds = self._tokens = 0.0
        self._lap_seconds = self._lap_tokens = 0.0
        self._started: float | None = None

    def start(self) -> None:
        """Let the clock run."""
        if self._started is None:
            self._started = time.perf_counter()

    def stop(self) -> None:
        """Let the clock stand, for evaluation and saving."""
        self._read()
        self._started = None

    def count(self, tokens: float | int) -> None:
        """Add the tokens of a step that is done, unless the clock stood meanwhile."""
        if self._started is not None:
            self._read()
            self._tokens += tokens

    def lap(self) -> float:
        """The rate since the last call."""
        seconds = self._seconds - self._lap_seconds
        tokens = self._tokens - self._lap_tokens
        self._lap_seconds, self._lap_tokens = self._seconds, self._tokens
        return tokens / seconds if seconds > 0 else float("nan")

    def total(self) -> float:
        """The rate over everything counted."""
        return self._tokens / self._seconds if self._seconds > 0 else float("nan")

    def _read(self) -> None:
        if self._started is not None:
            now = time.perf_counter()
            self._seconds += now - self._started
            self._started = now
