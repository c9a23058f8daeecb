"""Time and memory of every case over the lengths, forward, and forward and backward."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks import clock
from benchmarks.compiling import Compiled, prepare
from benchmarks.config import BenchConfig
from benchmarks.problem import DIRECTIONS, Case, Size, draw

MATMUL = "matmul"


class Needed(NamedTuple):
    """A measurement that a target is about, so that no limit of time leaves it out."""

    name: str
    direction: str
    n: int


@dataclass
class Sweep:
    """Rows of results, one for each case, direction and length."""

    config: BenchConfig
    needed: frozenset[Needed]
    say: Callable[[str], None]
    rows: list[dict[str, Any]] = field(default_factory=list)

    def run(self, cases: Sequence[Case]) -> None:
        for n in self.config.lengths:
            for direction in DIRECTIONS:
                self._group(cases, direction, n)

    def _group(self, cases: Iterable[Case], direction: str, n: int) -> None:
        """All cases at one length, interleaved with each other and with the matmul."""
        size = size_of(self.config, n)
        calls, rows = {}, []
        for case in cases:
            row = {"name": case.name, "direction": direction, "n": n}
            row |= {"batch": size.batch, "flops": case.flops(size, direction)}
            compiled = self._prepare(case, row, size)
            if compiled is not None:
                calls[case.name] = compiled.call
            rows.append(row)
        calls[MATMUL] = matmul(self.config)
        samples = clock.interleave(calls, rounds=self.config.rounds)
        rows.append({"name": MATMUL, "direction": direction, "n": n})
        rows[-1]["flops"] = 2 * self.config.matmul**3
        for row in rows:
            if row["name"] in samples:
                row["samples"] = samples[row["name"]]
        self.rows += rows
        fastest = min(samples, key=lambda name: median(samples[name]))
        self.say(f"n = {n}, {direction}: {len(samples)} calls, {fastest} the fastest")

    def _prepare(self, case: Case, row: dict[str, Any], size: Size) -> Compiled | None:
        """The compiled case, with its memory noted; None where a rule leaves it out."""
        reason = self._too_long(case, row)
        compiled = prepare(case, size, row["direction"], row, self.config.max_bytes)
        if compiled is None:
            reason = row["left_out"]
        if reason is None:
            return compiled
        row["left_out"] = reason
        self.say(f"left out: {case.name}, {row['direction']}, n = {row['n']}: {reason}")
        return None

    def _too_long(self, case: Case, row: dict[str, Any]) -> str | None:
        """Why a case would take too long, judged by the last length."""
        wanted = Needed(case.name, row["direction"], row["n"])
        seconds = self._predicted(case, row)
        if wanted in self.needed or seconds <= self.config.max_seconds:
            return None
        limit = self.config.max_seconds
        return f"predicted {seconds:.1f} s a call, over max_seconds = {limit:g}"

    def _predicted(self, case: Case, row: dict[str, Any]) -> float:
        """Seconds a call by the last measured length; tokens a batch count once."""
        known = [
            (past["n"], past["batch"], median(past["samples"]))
            for past in self.rows
            if past["name"] == case.name
            and past["direction"] == row["direction"]
            and "samples" in past
        ]
        if not known:
            return 0.0
        n, batch, seconds = known[-1]
        rows = row["batch"] / batch
        return seconds * rows * (row["n"] / n) ** case.growth


def size_of(config: BenchConfig, n: int) -> Size:
    """n tokens a row, as many rows as make the batch."""
    batch = max(1, config.tokens // n)
    return Size(n, batch, config.heads, config.width, config.rank, config.dtype)


def matmul(config: BenchConfig) -> clock.Call:
    """A product of large square matrices, by which the machine is judged."""
    shape = (config.matmul, config.matmul)
    a, b = (jax.device_put(draw(shape, config.dtype, seed)) for seed in (0, 1))
    product = jax.jit(jnp.matmul).lower(a, b).compile()
    return lambda: jax.block_until_ready(product(a, b))
