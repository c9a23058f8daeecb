"""Time of calls, measured in rounds so that all share whatever the machine does."""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

Call = Callable[[], Any]
# Mean seconds of so many calls, one after the other.
Turn = Callable[[int], float]


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


def local(call: Call) -> Turn:
    """Turns of a call in this process."""
    return lambda count: sum(timed(call) for _ in range(count)) / count


def interleave(
    turns: Mapping[str, Turn],
    *,
    rounds: int,
    at_least: float = 0.02,
    pause: float = 0.005,
    known: Mapping[str, float] | None = None,
) -> dict[str, list[float]]:
    """Seconds a call, `rounds` of them for each, one round after the other.

    A round goes once over all, every other one backwards, so that neither a busy moment
    nor a neighbour falls on one of them alone. Each has a turn or two before, which
    aren't counted, unless it is known how long it takes. A call shorter than `at_least`
    is repeated within its turn, and its turn gives the mean.

    Args:
      turns: of calls that block until their result is there.
      rounds: counted turns of each.
      at_least: seconds of a turn.
      pause: seconds between turns, in which threads that spin go to sleep.
      known: seconds of calls that were made before.
    """
    seconds = dict(known or {})
    for name, turn in turns.items():
        if name not in seconds:
            first = turn(1)
            # The first call of a short one is mostly what happens once.
            seconds[name] = turn(1) if first < 1 else first
    counts = {
        name: max(1, round(at_least / max(seconds[name], 1e-9))) for name in turns
    }
    samples: dict[str, list[float]] = {name: [] for name in turns}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for n in range(rounds):
            for name in list(turns)[:: -1 if n % 2 else 1]:
                time.sleep(pause)
                samples[name].append(turns[name](counts[name]))
    finally:
        if collecting:
            gc.enable()
    return samples
