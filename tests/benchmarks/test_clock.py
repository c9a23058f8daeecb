"""The clock sees whole calls, in turns."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks import clock


class Pending:
    """An array that is still being computed, or is there."""

    def __init__(self, ready: bool):
        self.ready = ready

    def is_ready(self) -> bool:
        return self.ready


def test_a_result_that_was_not_blocked_on_is_refused():
    assert clock.timed(lambda: (Pending(True), 1.0, None)) >= 0
    with pytest.raises(clock.NotBlockedError, match="1 arrays that were not ready"):
        clock.timed(lambda: {"y": (Pending(True), Pending(False))})


def test_a_dispatched_computation_is_refused_and_a_blocked_one_is_not():
    x = jnp.ones((64, 64))
    # A second or so: longer than any dispatch.
    long = jax.jit(lambda x: jax.lax.fori_loop(0, 200_000, lambda _, y: y @ x / 64, x))
    compiled = long.lower(x).compile()
    with pytest.raises(clock.NotBlockedError, match="block_until_ready"):
        clock.timed(lambda: compiled(x))
    assert clock.timed(lambda: jax.block_until_ready(jnp.sum(x))) > 0


def test_turns_go_round_and_every_other_round_backwards():
    order = []

    def turn(name):
        def take(count):
            order.append(name)
            return 1.0 if name == "a" else 2.0

        return take

    turns = {name: turn(name) for name in "ab"}
    samples = clock.interleave(turns, rounds=3, pause=0)
    assert "".join(order[-6:]) == "abbaab"
    assert samples == {"a": [1.0] * 3, "b": [2.0] * 3}


def test_a_short_call_is_repeated_within_its_turn():
    counts = []

    def turn(count):
        counts.append(count)
        return 0.001

    clock.interleave({"a": turn}, rounds=2, at_least=0.02, pause=0)
    assert counts == [1, 1, 20, 20]


def test_a_call_that_was_made_before_needs_no_turn_to_warm_up():
    counts = {"a": [], "b": []}

    def turn(name):
        def take(count):
            counts[name].append(count)
            return 0.001

        return take

    turns = {name: turn(name) for name in counts}
    clock.interleave(turns, rounds=2, at_least=0.02, pause=0, known={"a": 0.004})
    assert counts == {"a": [5, 5], "b": [1, 1, 20, 20]}
