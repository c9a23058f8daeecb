"""Time of calls, measured in rounds so that all share whatever the machine does."""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

Call = Callable[[], Any]


class NotBlockedError(RuntimeError):
    """A clock was stopped before the result was there."""


def timed(call: Call) -> float:
    """Seconds that a call takes which blocks until its result is there.

    Raises:
      NotBlockedError: the call returned arrays that were still being computed, so that
        the clock saw their dispatch alone.
    """
    begin = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - begin
    pending = [
        leaf
        for leaf in jax.tree.leaves(result)
        if hasattr(leaf, "is_ready") and not leaf.is_ready()
    ]
    if pending:
        raise NotBlockedError(
            f"call: got {len(pending)} arrays that were not ready when the clock was "
            "stopped; expected none; return jax.block_until_ready(result)"
        )
    return seconds


def interleave(
    calls: Mapping[str, Call],
    *,
    rounds: int,
    at_least: float = 0.02,
    pause: float = 0.002,
    repeats: Mapping[str, int] | None = None,
) -> dict[str, list[float]]:
    """Seconds a call, `rounds` of them for each, one round after the other.

    A round goes once over all calls, every other one backwards, so that neither a busy
    moment nor a neighbour falls on one of them alone. Each is called once before, which
    isn't counted. A call shorter than `at_least` is repeated within its turn, and its
    turn gives the mean.

    Args:
      calls: each blocks until its result is there.
      rounds: turns of each.
      at_least: seconds of a turn.
      pause: seconds between turns, in which threads that spin go to sleep.
      repeats: calls a turn, where they shall not follow from `at_least`.
    """
    times = {name: max(timed(call), 1e-9) for name, call in calls.items()}
    times = {name: min(times[name], timed(call)) for name, call in calls.items()}
    counts = {
        name: max(1, round(at_least / seconds)) for name, seconds in times.items()
    }
    counts |= repeats or {}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for n in range(rounds):
            for name in list(calls)[:: -1 if n % 2 else 1]:
                time.sleep(pause)
                turn = sum(timed(calls[name]) for _ in range(counts[name]))
                samples[name].append(turn / counts[name])
    finally:
        if collecting:
            gc.enable()
    return samples
