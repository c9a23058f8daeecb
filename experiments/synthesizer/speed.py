"""The study of speed: one attention layer of each row, against the length."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import jax
from flax import nnx

from attn_jax.nn import Attention, AttentionConfig
from attn_jax.ops import masks
from attn_jax.train.trained import join, split
from benchmarks.config import BenchConfig
from benchmarks.extras import together
from benchmarks.problem import DIRECTIONS, Case, JaxProblem, Size
from experiments.synthesizer.config import SpeedStudy
from experiments.synthesizer.rows import Row, parse_rows, trained_parameters

CAUSAL = masks.causal()


def measure(config: SpeedStudy, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds and temporary bytes of every row at every length, as results."""
    rows = parse_rows(config.rows)
    cases = [Case(row.name, 2, partial(layer, row)) for row in rows]
    clocks = BenchConfig(rounds=config.rounds)
    measured = []
    for n in config.lengths:
        for direction in DIRECTIONS:
            size = size_of(config, n)
            measured += together(cases, clocks, size, direction)
            print(f"{n} tokens, {direction}: measured", flush=True)
    return {
        "experiment": "synthesizer",
        "study": config.kind,
        "preset": config.preset,
        **origin,
        "config": {**config.shared(), "seeds": [0]},
        "rows": [_row(row, config, measured) for row in rows],
    }


def check(rows: Sequence[Row], config: SpeedStudy) -> None:
    """Raise for a layer that can't be built."""
    for row in rows:
        _attention(row, size_of(config, max(config.lengths)))


def size_of(config: SpeedStudy, n: int) -> Size:
    """Rows of n tokens, as many as make up config.tokens."""
    width = config.d_model // config.num_heads
    return Size(n, max(1, config.tokens // n), config.num_heads, width)


def layer(row: Row, size: Size) -> JaxProblem:
    """The causal attention layer of a row, projections included."""
    config = _attention(row, size)
    graph, state = nnx.split(
        nnx.eval_shape(lambda: Attention(config, rngs=nnx.Rngs(0)))
    )
    leaves, tree = jax.tree.flatten(split(state))

    def attend(x: Any, *parameters: Any) -> Any:
        trained, kept = jax.tree.unflatten(tree, parameters)
        # As in training, what is fixed has no gradient.
        state = join(trained, jax.lax.stop_gradient(kept))
        return nnx.merge(graph, state)(x, mask=CAUSAL)

    tokens = (size.batch, size.n, size.d_model)
    small = size.d_model**-0.5
    shapes = ((tokens, 1.0), *((leaf.shape, small) for leaf in leaves))
    return JaxProblem(attend, shapes, tokens, size.dtype)


def _attention(row: Row, size: Size) -> AttentionConfig:
    return AttentionConfig(
        size.d_model,
        row.heads(size.heads),
        mechanism=row.build().for_length(size.n),
    )


def _row(row: Row, config: SpeedStudy, measured: list[dict[str, Any]]) -> Any:
    """What was measured of a row, a point a length and direction."""
    longest = _attention(row, size_of(config, max(config.lengths)))
    keys = ("n", "direction", "samples", "compile_seconds", "temporary_bytes")
    return {
        "row": row.name,
        "parameters": trained_parameters(lambda: Attention(longest, rngs=nnx.Rngs(0))),
        "points": [
            {key: point.get(key) for key in keys}
            for point in measured
            if point["name"] == row.name
        ],
    }


def milliseconds(row: Mapping[str, Any], direction: str) -> dict[int, float]:
    """Of a call, the median of all rounds, by length."""
    return {
        point["n"]: 1e3 * median(point["samples"])
        for point in row["points"]
        if point["direction"] == direction and point["samples"]
    }


def megabytes(row: Mapping[str, Any], direction: str) -> dict[int, float]:
    """Of temporary arrays, by length, where the platform says it."""
    return {
        point["n"]: point["temporary_bytes"] / 1e6
        for point in row["points"]
        if point["direction"] == direction and point["temporary_bytes"] is not None
    }
