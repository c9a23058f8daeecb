"""The bar and the lines, and the clock behind tokens per second."""

import io
import math
import time

import pytest

from attn_jax.train import Progress, ProgressBar, ProgressLines, make_progress
from attn_jax.train.progress import duration
from attn_jax.train.throughput import Throughput

VALUES = {"loss": 2.34567, "tokens_per_second": 12345.6}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar_and_a_file_lines():
    assert isinstance(make_progress("x", Terminal()), ProgressBar)
    assert isinstance(make_progress("x", io.StringIO()), ProgressLines)
    assert isinstance(make_progress("x", io.StringIO()), Progress)


def test_the_bar_shows_loss_rate_and_time_left(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    bar = ProgressBar("linear [x]", stream)
    bar.start(4, 10)
    bar.update(7, VALUES)
    bar.stop()
    text = stream.getvalue()
    for part in ("linear [x]", "7/10", "loss 2.3457", "12,346 tokens/s", ":"):
        assert part in text


def test_lines_come_at_the_start_now_and_then_and_at_the_end(monkeypatch):
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    stream = io.StringIO()
    lines = ProgressLines("linear", stream, seconds=10)
    lines.start(2, 9)
    for step in range(3, 10):
        lines.update(step, VALUES if step < 9 else {"loss": None})
    lines.stop()
    # Four seconds a step, counted from the end of the first one here.
    assert stream.getvalue().splitlines() == [
        "linear: step 3/9, loss 2.3457, 12,346 tokens/s",
        "linear: step 6/9, loss 2.3457, 12,346 tokens/s, 00:12 left",
        "linear: step 9/9, loss -, - tokens/s, 00:00 left",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "00:00"), (75, "01:15"), (3723.4, "1:02:03")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_the_clock_stands_while_something_else_is_done(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = Throughput()
    clock.count(1000)  # Before the start: not counted.
    assert math.isnan(clock.total())
    clock.start()
    now[0] += 2
    clock.count(10)
    assert clock.total() == 5
    assert clock.lap() == 5
    now[0] += 1
    clock.stop()
    now[0] += 1000
    clock.start()
    now[0] += 2
    clock.count(45)
    assert clock.total() == 11
    assert clock.lap() == 15
