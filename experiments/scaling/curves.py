r"""Loss curves on simulated devices, beside those of a single one.

    python -m experiments.scaling.curves
    python -m experiments.scaling.curves --mechanisms linear lsh --steps 20

Every mechanism trains on each mesh and without one, from the same seed, on the same
batches. A curve differs by the greatest relative difference of two losses of one step;
the exit code is 1 where that exceeds the bound.
"""

import json
import sys
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from flax import nnx
from jax.sharding import Mesh

from attn_jax.data import Batch
from attn_jax.models import Decoder, DecoderConfig
from attn_jax.nn import MECHANISMS
from attn_jax.train import (
    adamw,
    cross_entropy,
    init_on,
    init_train_state,
    make_mesh,
    make_train_step,
    shard_batch,
)

MESHES = ("data=8", "data=2,fsdp=4", "fsdp=2,tensor=2,data=2")
# Attention of which a device computes the share of its own tokens.
LONG = ("linear", "softmax")


@dataclass(frozen=True, kw_only=True)
class CurvesConfig:
    """Trains on simulated devices and compares losses with those of one device.

    Attributes:
      mechanisms: names of the mechanism table.
      meshes: for each mechanism.
      long: mechanisms that also train on `sequence` devices along tokens.
      sequence: of them.
      steps: of each curve.
      length, long_length: tokens of a row, on `meshes` and along tokens.
      bound: on the relative difference.
      x64: float64 throughout, where rounding can't be what differs.
    """

    mechanisms: tuple[str, ...] = tuple(MECHANISMS)
    meshes: tuple[str, ...] = MESHES
    long: tuple[str, ...] = LONG
    sequence: int = 8
    steps: int = 50
    length: int = 64
    long_length: int = 1024
    bound: float = 1e-5
    x64: bool = False


def decoder(name: str, length: int, dtype: Any = jnp.float32) -> DecoderConfig:
    """A small model that every mesh of the list divides; exclusive, to cover that."""
    options = {"bucket_size": 16} if name == "lsh" else {}
    return DecoderConfig(
        vocab_size=64,
        max_length=length,
        num_layers=2,
        d_model=32,
        num_heads=4,
        num_kv_heads=None if name == "lsh" else 2,
        d_ff=64,
        mechanism=MECHANISMS[name](**options),
        exclusive=True,
        dropout_rate=0.1,
        dtype=dtype,
        param_dtype=dtype,
    )


def curve(
    config: DecoderConfig,
    mesh: Mesh | None,
    *,
    steps: int,
    rows: int,
    rate: float = 1e-3,
) -> np.ndarray:
    """The losses of a few steps on tokens that are easy to predict."""
    graph, _ = nnx.split(nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0))))
    optimizer, traced = adamw(rate), []

    def init() -> Any:
        model = Decoder(config, rngs=nnx.Rngs(0))
        return init_train_state(nnx.state(model), optimizer, seed=0)

    def loss(params: Any, batch: Batch, rng: Any) -> Any:
        traced.append(rng)
        logits = nnx.merge(graph, params)(batch.tokens, rng=rng)
        return cross_entropy(logits, batch.targets, weights=batch.weights)

    state, train_step = init_on(mesh, init), make_train_step(loss, optimizer)
    losses = []
    with jax.set_mesh(mesh) if mesh is not None else jax.default_device(None):
        for step in range(steps):
            batch = shard_batch(tokens(step, rows, config.max_length), mesh)
            state, metrics = train_step(state, batch)
            losses.append(metrics.loss)
    assert len(traced) == 1, "a step was traced twice"
    return np.asarray([float(loss) for loss in losses])


def tokens(step: int, rows: int, length: int) -> Batch:
    """Counting up from anywhere, one, two or three at a time."""
    rng = np.random.default_rng(step)
    start, stride = rng.integers(0, 64, (rows, 1)), rng.integers(1, 4, (rows, 1))
    items = ((start + stride * np.arange(length + 1)) % 64).astype(np.int32)
    weights = rng.integers(0, 2, (rows, length)).astype(np.float32)
    return Batch(items[:, :-1], items[:, 1:], weights)


def compare(config: CurvesConfig) -> list[dict[str, Any]]:
    """One line for each mechanism and mesh."""
    lines = []
    dtype = jnp.float64 if config.x64 else jnp.float32
    for name in dict.fromkeys((*config.mechanisms, *config.long)):
        tasks = [(config.meshes, config.length, 8)] * (name in config.mechanisms)
        along = f"sequence={config.sequence}"
        tasks += [((along,), config.long_length, 2)] * (name in config.long)
        for meshes, length, rows in tasks:
            model = decoder(name, length, dtype)
            options = {"steps": config.steps, "rows": rows}
            alone = curve(model, None, **options)
            for line in meshes:
                losses = curve(model, make_mesh(line), **options)
                difference = float(np.max(np.abs(losses - alone) / alone))
                lines.append(
                    {
                        "mechanism": name,
                        "mesh": line,
                        "length": length,
                        "first": float(alone[0]),
                        "last": float(alone[-1]),
                        "difference": difference,
                        "held": difference <= config.bound,
                    }
                )
                print(json.dumps(lines[-1]), flush=True)
    return lines


def main(arguments: list[str] | None = None) -> int:
    config = tyro.cli(CurvesConfig, args=arguments, description=__doc__)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", max(8, config.sequence))
    jax.config.update("jax_enable_x64", config.x64)
    return 0 if all(line["held"] for line in compare(config)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
