"""What the sweep over lengths doesn't show: short rows, decoding, one large state."""

import itertools
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from attn_jax.nn import Attention, AttentionConfig, Linear, Mechanism, Softmax
from benchmarks import clock, mechanisms, memory
from benchmarks.compiling import prepare
from benchmarks.config import BenchConfig
from benchmarks.problem import DIRECTIONS, Case, Size, draw

SHORT = (64, 128, 256, 512)
POSITIONS = (100, 8000)
ROOM = 8192
LARGE = 65536


def short_rows(config: BenchConfig) -> list[dict[str, Any]]:
    """Softmax by "auto" and by each implementation, where rows are short."""
    cases = [case for case in mechanisms.CASES if case.name in mechanisms.SOFTMAX]
    lengths = SHORT if config.preset == "full" else config.lengths[:1]
    return [
        row
        for n in lengths
        for direction in DIRECTIONS
        for row in together(cases, config, size_of(config, n), direction)
    ]


def per_batch(config: BenchConfig) -> list[dict[str, Any]]:
    """Factorized random logits, once for all rows of a batch and once for each."""
    rank = config.rank
    cases = [
        Case("factorized_random", 2, mechanisms.factorized_random),
        Case("per batch", 2, mechanisms.factorized_random_per_batch),
    ]
    n = 1024 if config.preset == "full" else config.lengths[0]
    size = Size(n, 8, config.heads, config.width, rank, config.dtype)
    return [row for way in DIRECTIONS for row in together(cases, config, size, way)]


def together(
    cases: list[Case], config: BenchConfig, size: Size, direction: str
) -> list[dict[str, Any]]:
    """Rows of cases of one size, measured in turns."""
    rows = [{"name": c.name, "direction": direction, "n": size.n} for c in cases]
    turns = {}
    for case, row in zip(cases, rows, strict=True):
        call = prepare(case, size, direction, row, config.max_bytes)
        if call is not None:
            turns[case.name] = clock.local(call)
    samples = clock.interleave(turns, rounds=config.rounds)
    return [row | {"samples": samples.get(row["name"], [])} for row in rows]


def decoding(config: BenchConfig) -> list[dict[str, Any]]:
    """Seconds a token of an attention layer whose cache is given away, by position."""
    room = ROOM if config.preset == "full" else config.lengths[-1]
    positions = POSITIONS if config.preset == "full" else (1, room - 2)
    turns = {}
    for name, mechanism in (("linear", Linear()), ("softmax", Softmax())):
        for position in positions:
            turns[f"{name} {position}"] = _decoder(mechanism, config, position, room)
    samples = clock.interleave(turns, rounds=config.rounds, pause=0.001)
    rows = []
    for key, seconds in samples.items():
        name, position = key.split()
        rows.append({"name": name, "position": int(position), "samples": seconds})
    return rows


def _decoder(
    mechanism: Mechanism, config: BenchConfig, position: int, room: int
) -> clock.Turn:
    """Turns of one token after so many; each turn starts at the position again.

    A turn may not run past the end, so the length is set back between turns.
    """
    m, dtype = config.heads * config.width, jnp.dtype(config.dtype)
    options = {"mechanism": mechanism, "dtype": dtype, "param_dtype": dtype}
    layer = Attention(AttentionConfig(m, config.heads, **options), rngs=nnx.Rngs(0))
    graph, state = nnx.split(layer)
    x = jax.device_put(draw((1, 1, m), config.dtype, 0))
    cache = jax.jit(lambda: layer.init_cache(1, room))()

    @partial(jax.jit, donate_argnums=2)
    def step(state: Any, x: Any, cache: Any) -> Any:
        return nnx.merge(graph, state).decode(x, cache)

    def turn(count: int) -> float:
        nonlocal cache
        start = jax.device_put(jnp.full((1,), position, jnp.int32))
        cache = jax.block_until_ready(cache._replace(length=start))

        def call() -> Any:
            nonlocal cache
            y, cache = step(state, x, cache)
            return jax.block_until_ready((y, cache))

        count = min(count, room - position - 1)
        return clock.local(call)(count)

    return turn


def large(config: BenchConfig) -> dict[str, Any]:
    """Peak memory of a fresh process: linear attention, forward and backward."""
    n = LARGE if config.preset == "full" else config.lengths[-1]
    sizes = (n, config.heads, config.width)
    return memory.of_fresh_process("benchmarks.extras", *map(str, sizes), config.dtype)


def memory_of_rows(config: BenchConfig) -> list[dict[str, Any]]:
    """Temporary memory of one row of tokens by its length; compiled, and not run."""
    rows: list[dict[str, Any]] = []
    cases = [case for case in mechanisms.CASES if case.name in ("linear", "softmax")]
    lengths = [n for n in config.lengths if n >= 2**11] or config.lengths
    for case, n, direction in itertools.product(cases, lengths, DIRECTIONS):
        size = Size(n, 1, config.heads, config.width, config.rank, config.dtype)
        rows.append({"name": case.name, "direction": direction, "n": n})
        prepare(case, size, direction, rows[-1], config.max_bytes)
    return rows


def _large(n: int, heads: int, width: int, dtype: str) -> dict[str, Any]:
    case = next(case for case in mechanisms.CASES if case.name == "linear")
    row: dict[str, Any] = {"n": n}
    size = Size(n, 1, heads, width, dtype=dtype)
    call = prepare(case, size, "both", row, float("inf"))
    seconds = clock.timed(call)
    return row | {"seconds": seconds, "bytes": memory.peak_of_this_process()}


def size_of(config: BenchConfig, n: int) -> Size:
    """n tokens a row, as many rows as make the batch."""
    batch = max(1, config.tokens // n)
    return Size(n, batch, config.heads, config.width, config.rank, config.dtype)


MEASURED: dict[str, Callable[[BenchConfig], Any]] = {
    "short": short_rows,
    "per_batch": per_batch,
    "decoding": decoding,
    "large": large,
}

if __name__ == "__main__":
    n_, heads_, width_, dtype_ = sys.argv[1:]
    print(json.dumps(_large(int(n_), int(heads_), int(width_), dtype_)))
