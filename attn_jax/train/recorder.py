"""Turns what steps report into lines, one step late."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from attn_jax.train.metrics import MetricLogger
from attn_jax.train.progress import Progress
from attn_jax.train.step import StepMetrics
from attn_jax.train.throughput import Throughput


class NonFiniteError(FloatingPointError):
    """Too many steps in a row had a loss, gradient or update that is not finite."""


class Recorder:
    """Keeps the metrics of the last step until the next one is on the device.

    A step is recorded every log_every steps, after the last step, and where it was
    skipped or evaluated.
    """

    def __init__(
        self,
        logger: MetricLogger | None,
        progress: Progress | None,
        *,
        log_every: int,
        num_steps: int,
        max_consecutive_skips: int,
    ) -> None:
        self.clock = Throughput()
        self.history: list[dict[str, Any]] = []
        self._logger = logger
        self._progress = progress
        self._log_every = log_every
        self._num_steps = num_steps
        self._max_skips = max_consecutive_skips
        self._pending: tuple[int, StepMetrics] | None = None
        self._values: StepMetrics | None = None
        self._warm = False

    def start(self, step: int) -> None:
        """Begin after `step` steps."""
        if self._logger is not None:
            self._logger.resume(step)
        if self._progress is not None:
            self._progress.start(step, self._num_steps)

    def push(self, step: int, metrics: StepMetrics) -> None:
        """Record the step before, and keep this one, which may still be running.

        The first step is waited for and not counted, since what is compiled still
        takes longer at its first call; the clock starts after it.
        """
        self.flush()
        self._pending = (step, metrics)
        if not self._warm:
            self._fetch()
            self._warm = True
            self.clock.start()

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Wait for the device and stop the clock while something else is done."""
        self._fetch()
        self.clock.stop()
        try:
            yield
        finally:
            self.clock.start()

    def flush(
        self, extra: Mapping[str, Any] | None = None, *, strict: bool = True
    ) -> None:
        """Record the step that is kept, if it is due.

        Args:
          extra: more metrics of that step; with them it is always due.
          strict: whether to raise NonFiniteError.
        """
        values = self._fetch()
        if self._pending is None or values is None:
            return
        step = self._pending[0]
        self._pending = self._values = None
        line = self._line(step, values, extra)
        if self._progress is not None:
            rate = self.clock.total()
            self._progress.update(step, {**line, "tokens_per_second": rate})
        due = step % self._log_every == 0 or step == self._num_steps
        if due or extra is not None or values.skipped:
            rate = self.clock.lap()
            line["tokens_per_second"] = rate if math.isfinite(rate) else None
            self.history.append(line)
            if self._logger is not None:
                self._logger.log(step, {k: v for k, v in line.items() if k != "step"})
        if strict and int(values.consecutive_skips) >= self._max_skips:
            raise NonFiniteError(_complaint(step, values))

    def save(self) -> None:
        """Record the step that is kept and hand all lines to the operating system."""
        self.flush()
        if self._logger is not None:
            self._logger.flush()

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _fetch(self) -> StepMetrics | None:
        """The values of the step that is kept, once the device has them."""
        if self._values is None and self._pending is not None:
            values: StepMetrics = jax.device_get(self._pending[1])
            self.clock.count(float(values.weight))
            self._values = values
        return self._values

    def _line(
        self, step: int, values: StepMetrics, extra: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        rate = float(values.learning_rate)
        return {
            "step": step,
            "loss": float(values.loss),
            "learning_rate": None if math.isnan(rate) else rate,
            "tokens_per_second": None,
            "tokens": float(values.weight),
            "gradient_norm": float(values.gradient_norm),
            "parameter_norm": float(values.parameter_norm),
            "update_norm": float(values.update_norm),
            "skipped": bool(values.skipped),
            "skipped_steps": int(values.total_skips),
            **(extra or {}),
        }


def _complaint(step: int, values: StepMetrics) -> str:
    """Why the run ends, what was seen, and what can be done about it."""
    skips = int(values.consecutive_skips)
    return (
        f"steps {step - skips + 1} to {step} were not finite: at step {step} the loss "
        f"is {float(values.loss)}, the norm of the gradient "
        f"{float(values.gradient_norm)}, that of the update "
        f"{float(values.update_norm)}, the sum of weights {float(values.weight)}. "
        f"Expected fewer than {skips} such steps in a row, as max_consecutive_skips "
        "says. They were skipped, so the parameters are finite still. Look at the "
        f"batch of step {step - 1} (labels of vocab or more? weights that sum to 0?), "
        "lower the learning rate, lengthen its warm-up or clip the gradient"
    )
