"""What exclusion costs: a block by its length and width, and a training step."""

from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from attn_jax.models import StackConfig
from attn_jax.models.block import Block
from attn_jax.ops import masks
from benchmarks import clock
from benchmarks.config import BenchConfig
from benchmarks.extras import together
from benchmarks.problem import DIRECTIONS, Case, JaxProblem, Size
from benchmarks.training import Training, TrainingSize
from experiments.exclusive.config import OverheadStudy

CAUSAL = masks.causal()
KINDS = ("sa", "xsa")


def measure(config: OverheadStudy, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds and temporary bytes of both at every size, as results."""
    clocks = BenchConfig(rounds=config.rounds)
    cases = [Case(kind, 2, partial(block, kind == "xsa")) for kind in KINDS]
    points = []
    for size in sizes(config):
        for direction in DIRECTIONS:
            measured = together(cases, clocks, size, direction)
            points += [{**point, "width": size.d_model} for point in measured]
        print(f"block of width {size.d_model}, {size.n} tokens: measured", flush=True)
    if config.step_length:
        points += training_step(config)
        print(f"training step, {config.step_length} tokens: measured", flush=True)
    return {
        "experiment": "exclusive",
        "study": config.kind,
        "preset": config.preset,
        **origin,
        "config": {**config.shared(), "rounds": config.rounds, "seeds": [0]},
        "points": [_kept(point) for point in points],
    }


def sizes(config: OverheadStudy) -> list[Size]:
    """Every length at the first width, then every other width at one length."""
    first, *others = config.widths
    long = [n for n in sorted(config.lengths) if n >= 1024]
    middle = long[0] if long else max(config.lengths)
    pairs = [(n, first) for n in config.lengths] + [(middle, m) for m in others]
    return [
        Size(
            n,
            max(1, config.tokens // n),
            width // config.head_dim,
            config.head_dim,
            dtype=config.dtype,
        )
        for n, width in pairs
    ]


def block(exclusive: bool, size: Size) -> JaxProblem:
    """A block of the paper's model: attention, then the feed-forward layer."""
    dtype = jnp.dtype(size.dtype)
    config = StackConfig(
        vocab_size=1,
        max_length=size.n,
        num_layers=1,
        d_model=size.d_model,
        num_heads=size.heads,
        exclusive=exclusive,
        activation="gelu_exact",
        dtype=dtype,
        param_dtype=dtype,
    )
    graph, state = nnx.split(nnx.eval_shape(lambda: Block(config, rngs=nnx.Rngs(0))))
    leaves, tree = jax.tree.flatten(state)

    def run(x: Any, *parameters: Any) -> Any:
        state = jax.tree.unflatten(tree, parameters)
        return nnx.merge(graph, state)(x, mask=CAUSAL)

    tokens = (size.batch, size.n, size.d_model)
    small = size.d_model**-0.5
    shapes = ((tokens, 1.0), *((leaf.shape, small) for leaf in leaves))
    return JaxProblem(run, shapes, tokens, size.dtype)


def training_step(config: OverheadStudy) -> list[dict[str, Any]]:
    """Seconds of a whole step of a byte-level decoder, both in turns."""
    width = config.widths[0]
    size = TrainingSize(
        num_layers=config.step_layers,
        d_model=width,
        num_heads=width // config.head_dim,
        d_ff=4 * width,
        batch=config.step_batch,
        length=config.step_length,
    )
    dtype = jnp.dtype(config.dtype)
    turns = {
        kind: clock.local(Training(size, exclusive=kind == "xsa", dtype=dtype))
        for kind in KINDS
    }
    samples = clock.interleave(turns, rounds=config.rounds)
    common = {"direction": "step", "n": size.length, "width": width}
    return [{"name": kind, "samples": samples[kind], **common} for kind in KINDS]


def _kept(point: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("name", "n", "width", "direction", "samples", "temporary_bytes")
    return {key: point.get(key) for key in keys}


def costs(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of each size and direction: milliseconds of both, and what exclusion adds.

    Least and median time of all rounds; as a share, of time and of temporary memory.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for point in results["points"]:
        key = (point["direction"], point["width"], point["n"])
        found.setdefault(key, {})[point["name"]] = point
    rows = []
    for (direction, width, n), both in found.items():
        samples = {kind: both[kind]["samples"] for kind in KINDS}
        least = {kind: min(samples[kind]) for kind in KINDS}
        middle = {kind: median(samples[kind]) for kind in KINDS}
        memory = [both[kind]["temporary_bytes"] for kind in KINDS]
        rows.append(
            {
                "direction": direction,
                "width": width,
                "n": n,
                "milliseconds": {kind: 1e3 * middle[kind] for kind in KINDS},
                "least": least["xsa"] / least["sa"] - 1,
                "median": middle["xsa"] / middle["sa"] - 1,
                "memory": memory[1] / memory[0] - 1 if all(memory) else None,
            }
        )
    return rows
