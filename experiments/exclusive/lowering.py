r"""The paper's training step, compiled for a cluster that isn't there.

    python -m experiments.exclusive.lowering
    python -m experiments.exclusive.lowering xsa-2.7b --hosts 16

A process of its own stands in for hosts x devices accelerators: XLA partitions the step
for that many, says how much memory each of them needs, and nothing runs. Parameters and
optimizer state lie in pieces over all devices, the batch in rows (docs/scaling.md).
Blocks are recomputed in the backward pass, and micro-batches are taken one after the
other, since the logits of one sequence are 0.4 GB. Bytes are those of XLA's CPU
program: the kernels of an accelerator keep less of attention.
"""

import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import tyro
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from attn_jax.data import Batch
from attn_jax.models import Decoder, DecoderConfig, presets
from attn_jax.train import (
    adamw,
    cosine_schedule,
    cross_entropy,
    init_train_state,
    make_mesh,
    make_train_step,
    shardings,
)
from attn_jax.train.sharding import ROWS

# Peak learning rates of the paper's table 1; 3e-4 is GPT-2's habit elsewhere.
RATES = {"xsa-0.7b": 5e-4, "xsa-1.4b": 4e-4, "xsa-2.7b": 3e-4}


@dataclass(frozen=True, kw_only=True)
class LoweringConfig:
    """Compiles a training step for a mesh of simulated devices.

    Attributes:
      preset: of `attn_jax.models.presets`, a decoder.
      hosts, devices: of the mesh, devices being those of a host.
      batch_size: sequences of a step.
      accumulation: micro-batches of a step.
      length: tokens of a sequence; None is the preset's.
      num_layers, vocab_size: blocks and tokens; None is the preset's.
      steps, warmup_steps: of the schedule.
      dtype: of computation; parameters are float32.
      remat: whether blocks are recomputed in the backward pass.
    """

    preset: Annotated[str, tyro.conf.Positional] = "xsa-1.4b"
    hosts: int = 8
    devices: int = 4
    batch_size: int = 256
    accumulation: int = 4
    length: int | None = None
    num_layers: int | None = None
    vocab_size: int | None = None
    steps: int = 200_000
    warmup_steps: int = 2000
    dtype: str = "bfloat16"
    remat: bool = True


def lower(config: LoweringConfig) -> dict[str, Any]:
    """Compile the step, and what each device needs for it, in bytes."""
    mesh = make_mesh(f"fsdp={config.hosts * config.devices}")
    model = decoder_of(config)
    schedule = cosine_schedule(
        RATES.get(config.preset.removesuffix("-baseline"), 3e-4),
        num_steps=config.steps,
        warmup_steps=config.warmup_steps,
    )
    optimizer = adamw(schedule)
    graph, params = nnx.split(nnx.eval_shape(lambda: Decoder(model, rngs=nnx.Rngs(0))))

    def loss(params: Any, batch: Batch, rng: Any) -> Any:
        logits = nnx.merge(graph, params)(batch.tokens, rng=rng)
        return cross_entropy(logits, batch.targets, weights=batch.weights)

    state = jax.eval_shape(lambda p: init_train_state(p, optimizer, seed=0), params)
    shape = (config.batch_size, model.max_length)
    tokens = jax.ShapeDtypeStruct(shape, jnp.int32)
    batch = Batch(tokens, tokens, jax.ShapeDtypeStruct(shape, jnp.float32))
    train_step: Any = make_train_step(
        loss, optimizer, schedule=schedule, accumulation=config.accumulation
    )
    begin = time.perf_counter()
    with jax.set_mesh(mesh):
        rows = jax.tree.map(lambda _: NamedSharding(mesh, PartitionSpec(ROWS)), batch)
        placed = _placed(state, shardings(state, mesh)), _placed(batch, rows)
        lowered = train_step.lower(*placed)
        compiled = lowered.compile()
    stats = compiled.memory_analysis()
    arguments, temporary = stats.argument_size_in_bytes, stats.temp_size_in_bytes
    given_back = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return {
        **asdict(config),
        "parameters": sum(x.size for x in jax.tree.leaves(params)),
        "seconds": round(time.perf_counter() - begin, 1),
        "bytes_per_device": {
            "state and batch": arguments,
            "temporary": temporary,
            "in all": arguments + temporary + given_back,
        },
    }


def decoder_of(config: LoweringConfig) -> DecoderConfig:
    """The preset, computed in config.dtype."""
    model = presets[config.preset]
    if not isinstance(model, DecoderConfig):
        raise TypeError(
            f"preset: got {config.preset}, a {type(model).__name__}; expected that of "
            "a decoder, such as xsa-1.4b"
        )
    return replace(
        model,
        max_length=config.length or model.max_length,
        num_layers=config.num_layers or model.num_layers,
        vocab_size=config.vocab_size or model.vocab_size,
        dtype=jnp.dtype(config.dtype),
        remat=config.remat,
    )


def _placed(tree: Any, places: Any) -> Any:
    return jax.tree.map(
        lambda x, at: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=at), tree, places
    )


def main(arguments: list[str] | None = None) -> None:
    """Compile and print what was found, as JSON."""
    config = tyro.cli(LoweringConfig, args=arguments, description=__doc__)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", config.hosts * config.devices)
    print(json.dumps(lower(config), indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
