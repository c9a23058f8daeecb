"""Seconds and bytes of every mechanism at every length."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from benchmarks import clock, memory
from benchmarks.compiling import compiled
from benchmarks.problem import Case, Size, draw
from experiments.linear_scaling.cases import make_case
from experiments.linear_scaling.config import ScalingConfig

Row = dict[str, Any]
# Seconds under which a call is made once before it counts, and of a turn at least.
SHORT, TURN = 1.0, 0.5


def measure(config: ScalingConfig, say: Callable[[str], None]) -> list[Row]:
    """One row a length and mechanism, with its samples or why there are none.

    From the shortest length to the longest everything is compiled and called once; so
    what would take too long is known before it is called. Then all calls take turns.
    """
    cases = [make_case(name, config) for name in config.mechanisms]
    rows: list[Row] = []
    turns: dict[str, clock.Turn] = {}
    for n in config.lengths:
        batch = max(1, config.tokens // n)
        size = Size(n, batch, config.num_heads, config.head_dim)
        # The cotangent, then q, k and v: all mechanisms of a length share them.
        arrays = [jax.device_put(draw(size.qkv, size.dtype, seed)) for seed in range(4)]
        for case in cases:
            row = {"model": case.name, "n": n, "batch": batch}
            call = _ready(case, size, arrays, row, rows, config)
            if call is not None:
                turns[str(len(rows))] = turn_of(call, row["first_seconds"])
            rows.append(row)
            say(_line(row))
    known = {number: rows[int(number)]["first_seconds"] for number in turns}
    about = f"about {sum(known.values()):.0f} s a round"
    say(f"{config.rounds} rounds of {len(turns)} calls, {about}")
    samples = clock.interleave(turns, rounds=config.rounds, at_least=TURN, known=known)
    for number, seconds in samples.items():
        rows[int(number)]["samples"] = seconds
    return rows


def turn_of(call: clock.Call, seconds: float) -> clock.Turn:
    """Turns of a call that takes about so many seconds.

    A neighbour that gave much memory back leaves it to be touched for the first time
    again, which doubled the time of short calls. So these are made once before.
    """
    counted = clock.local(call)
    if seconds >= SHORT:
        return counted

    def turn(count: int) -> float:
        call()
        return counted(count)

    return turn


def _ready(
    case: Case,
    size: Size,
    arrays: Sequence[jax.Array],
    row: Row,
    earlier: Sequence[Row],
    config: ScalingConfig,
) -> clock.Call | None:
    """The compiled call, made once; None where memory or time leaves it out.

    The row gets its bytes also where it is left out, as far as compiling tells.
    """
    problem = case.build(size)
    program = compiled(problem, "both", row, config.max_bytes)
    if row.get("temporary_bytes") is not None:
        # Results, the value and a gradient for each input, are as large as the inputs.
        row["result_bytes"] = problem.bytes
        row["bytes"] = row["temporary_bytes"] + 2 * problem.bytes
    if program is None:
        return None
    seconds = _predicted(case, row, earlier)
    if seconds > config.max_seconds:
        limit = f"max_seconds = {config.max_seconds:g}"
        row["left_out"] = f"would take about {seconds:.0f} s, over {limit}"
        return None
    inputs = arrays[: len(problem.structs)]

    def call() -> Any:
        return jax.block_until_ready(program(*inputs))

    def first() -> None:
        row["first_seconds"] = clock.timed(call)

    if jax.default_backend() == "cpu":
        row["resident_bytes"] = memory.growth(first)
    else:
        first()
    return call


def _predicted(case: Case, row: Row, earlier: Sequence[Row]) -> float:
    """Seconds a call, by the longest that was called before; 0 for the first one."""
    known = [
        past
        for past in earlier
        if past["model"] == case.name and "first_seconds" in past
    ]
    return case.longer(known[-1], row) * known[-1]["first_seconds"] if known else 0.0


def _line(row: Row) -> str:
    """What is said of a row once it is ready."""
    what = f"{row['model']}, N = {row['n']:,}"
    if "left_out" in row:
        return f"{what}: left out: {row['left_out']}"
    return (
        f"{what}: compiled in {row['compile_seconds']:.1f} s, first call "
        f"{row['first_seconds']:.2f} s"
    )
