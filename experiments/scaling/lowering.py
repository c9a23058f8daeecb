"""A training step, compiled for a mesh: bytes a device and collectives."""

import math
import time
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from attn_jax.analysis.flops import model_flops
from attn_jax.data import Batch
from attn_jax.models import Decoder, DecoderConfig
from attn_jax.train import (
    adamw,
    cross_entropy,
    init_train_state,
    layout,
    make_mesh,
    make_train_step,
    shardings,
)
from attn_jax.train.sharding import ROWS, rows_over
from experiments.scaling.config import ScalingConfig
from experiments.scaling.estimate import estimate
from experiments.scaling.hlo import collectives
from experiments.scaling.rates import ACCELERATORS


def measure(config: ScalingConfig, line: str) -> dict[str, Any]:
    """A row of the results: what XLA says of the step on one mesh."""
    model, mesh = config.decoder(), make_mesh(line)
    pieces = rows_over(mesh.shape)
    accumulation = max(1, config.batch_size // (pieces * config.micro_rows))
    optimizer = adamw(1e-4)
    graph, _ = nnx.split(nnx.eval_shape(lambda: Decoder(model, rngs=nnx.Rngs(0))))

    def init() -> Any:
        params = nnx.state(Decoder(model, rngs=nnx.Rngs(0)))
        return init_train_state(params, optimizer, seed=0)

    def loss(params: Any, batch: Batch, rng: Any) -> Any:
        logits = nnx.merge(graph, params)(batch.tokens, rng=rng)
        return cross_entropy(logits, batch.targets, weights=batch.weights)

    shapes = jax.eval_shape(init)
    state = jax.tree.map(_at, shapes, shardings(shapes, mesh))
    train_step: Any = make_train_step(loss, optimizer, accumulation=accumulation)
    began = time.perf_counter()
    with jax.set_mesh(mesh):
        compiled = train_step.lower(state, _batch(config, mesh)).compile()
    seconds = time.perf_counter() - began
    stats = compiled.memory_analysis()
    found = collectives(compiled.as_text())
    flops = step_flops(config, model)
    placed = layout(shapes, mesh.shape)
    return {
        "mesh": line,
        "devices": mesh.size,
        "accumulation": accumulation,
        "parameters": sum(x.size for x in jax.tree.leaves(shapes.params)),
        "compile_seconds": round(seconds, 1),
        "state_bytes": sum(each.device_bytes for each in placed),
        "argument_bytes": stats.argument_size_in_bytes,
        "temporary_bytes": stats.temp_size_in_bytes,
        "estimated_temporary_bytes": estimate(config, placed, mesh.shape),
        "flops": flops,
        "collectives": [each._asdict() for each in found],
        "wire_bytes": sum(each.wire_bytes() for each in found),
        "seconds": {name: _seconds(name, flops, mesh, found) for name in ACCELERATORS},
    }


def step_flops(config: ScalingConfig, model: DecoderConfig) -> float:
    """Two for a multiply-add; the backward pass is twice the forward one.

    Blocks that are recomputed count once more. Scores above the diagonal count too.
    """
    cost = model_flops(model, config.length)
    logits = cost.logits.multiply_adds
    blocks = cost.total.multiply_adds - logits
    again = 3 if config.remat == "none" else 4
    return 2.0 * config.batch_size * (again * blocks + 3 * logits)


def _seconds(name: str, flops: float, mesh: Any, found: Any) -> dict[str, float]:
    """Of products and of exchanges, each as if the other took no time."""
    chip = ACCELERATORS[name]
    exchange = sum(each.wire_bytes() / chip.bandwidth(each.group) for each in found)
    return {"products": flops / mesh.size / chip.flops, "exchange": exchange}


def _batch(config: ScalingConfig, mesh: Any) -> Batch:
    shape = (config.batch_size, config.length)
    place = NamedSharding(mesh, PartitionSpec(ROWS, "sequence"))
    tokens, weights = (
        jax.ShapeDtypeStruct(shape, dtype, sharding=place)
        for dtype in (jnp.int32, jnp.float32)
    )
    return Batch(tokens, tokens, weights)  # pyright: ignore


def _at(x: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def most_devices(config: ScalingConfig) -> int:
    """Of the meshes, before JAX has made any device."""
    from attn_jax.train import parse_mesh

    return max(math.prod(parse_mesh(line).values()) for line in config.meshes)
