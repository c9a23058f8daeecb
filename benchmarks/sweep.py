"""Time and memory of every case over the lengths, forward, and forward and backward."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import clock
from benchmarks.compiling import prepare
from benchmarks.config import BenchConfig
from benchmarks.extras import size_of
from benchmarks.problem import DIRECTIONS, Case, Size, draw
from benchmarks.worker import Worker

MATMUL = "matmul"
TORCH = "benchmarks.peers.torch_attention:build"


@dataclass
class Sweep:
    """Rows of results, one for each case, direction and length.

    needed: (name, direction, n) of what a target is about: no limit of time leaves it
        out.
    worker: where the cases of PyTorch run; None where there are none.
    """

    config: BenchConfig
    needed: frozenset[tuple[str, str, int]]
    say: Callable[[str], None]
    worker: Worker | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)

    def run(self, cases: Sequence[Case]) -> list[dict[str, Any]]:
        for n in self.config.lengths:
            for direction in DIRECTIONS:
                self._group(cases, direction, n)
        return self.rows

    def _group(self, cases: Iterable[Case], direction: str, n: int) -> None:
        """All cases at one length, in turns with each other and with the matmul."""
        size = size_of(self.config, n)
        turns, rows = {MATMUL: clock.local(matmul(self.config))}, []
        for case in cases:
            row = {"name": case.name, "direction": direction, "n": n}
            row |= {"batch": size.batch, "flops": case.flops(size, direction)}
            turn = self._turn(case, row, size)
            if turn is not None:
                turns[case.name] = turn
            rows.append(row)
        flops = 2 * self.config.matmul**3
        rows.append({"name": MATMUL, "direction": direction, "n": n, "flops": flops})
        samples = clock.interleave(turns, rounds=self.config.rounds)
        for row in rows:
            if row["name"] in samples:
                row["samples"] = samples[row["name"]]
        self.rows += rows
        if self.worker is not None:
            self.worker.forget()
        rate = flops / median(samples[MATMUL]) / 1e9
        self.say(f"n = {n}, {direction}: {len(turns)} calls; matmul {rate:.0f} GFLOP/s")

    def _turn(self, case: Case, row: dict[str, Any], size: Size) -> clock.Turn | None:
        """Turns of a case, its memory noted; None where a rule leaves it out."""
        reason = self._too_long(case, row)
        turn = None
        if case.remote:
            if reason is None:
                turn = self._remote(case, row, size)
        else:
            # Compiled also where it isn't run: its memory is known then.
            call = prepare(case, size, row["direction"], row, self.config.max_bytes)
            if call is not None and reason is None:
                turn = clock.local(call)
        if turn is None:
            reason = row.setdefault("left_out", reason)
            what = f"{case.name}, {row['direction']}, n = {row['n']}"
            self.say(f"left out: {what}: {reason}")
        return turn

    def _remote(self, case: Case, row: dict[str, Any], size: Size) -> Any:
        """Turns of a case of PyTorch, which measures its memory by running it."""
        assert self.worker is not None
        arguments = (case.name, asdict(size), row["direction"], self.config.max_bytes)
        row |= self.worker.build(case.name, TORCH, *arguments)
        if "left_out" in row:
            return None
        return self.worker.turn(case.name)

    def _too_long(self, case: Case, row: dict[str, Any]) -> str | None:
        """Why a case would take too long, judged by the last length."""
        wanted = (case.name, row["direction"], row["n"])
        seconds = self._predicted(case, row)
        limit = self.config.max_seconds
        if wanted in self.needed or seconds <= limit:
            return None
        return f"predicted {seconds:.1f} s a call, over max_seconds = {limit:g}"

    def _predicted(self, case: Case, row: dict[str, Any]) -> float:
        """Seconds a call by the last measured length."""
        known = [
            past
            for past in self.rows
            if (past["name"], past["direction"]) == (case.name, row["direction"])
            and "samples" in past
        ]
        if not known:
            return 0.0
        past = known[-1]
        return case.longer(past, row) * median(past["samples"])


def matmul(config: BenchConfig) -> clock.Call:
    """A product of large square matrices, by which the machine is judged."""
    shape = (config.matmul, config.matmul)
    a, b = (jax.device_put(draw(shape, config.dtype, seed)) for seed in (0, 1))
    product = jax.jit(jnp.matmul).lower(a, b).compile()
    return lambda: jax.block_until_ready(product(a, b))
