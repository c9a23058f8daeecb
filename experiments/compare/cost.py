"""What a model costs: operations a token, seconds to compile, bytes in use."""

import time
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from attn_jax.models import Decoder, DecoderConfig
from attn_jax.nn import Softmax
from attn_jax.train import TrainState, TrainStep

# Lengths at which every mechanism is one computation without loops.
COUNTED = (64, 128, 192)


class StepCost(NamedTuple):
    """What compiling the training step says.

    compile_seconds: tracing and compiling, without a cache on disk.
    memory_bytes: the most that the step has in use at once, by XLA's account:
        temporary arrays + arguments + results - what results take over from arguments.
        None where the platform gives no account.
    """

    compile_seconds: float
    memory_bytes: int | None


def compile_step(train_step: TrainStep, state: TrainState, batch: Any) -> StepCost:
    """Compile the training step, which the first call then finds compiled."""
    begin = time.perf_counter()
    compiled: Any = train_step.lower(state, batch).compile()
    seconds = time.perf_counter() - begin
    stats = compiled.memory_analysis()
    if stats is None:
        return StepCost(seconds, None)
    used = stats.temp_size_in_bytes + stats.argument_size_in_bytes
    given_back = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return StepCost(seconds, used + given_back)


def forward_flops_per_token(config: DecoderConfig, batch_size: int) -> float:
    """Operations of the forward pass a token, at full length and before the loss.

    XLA's count of the computation as it is written, so that platforms agree: two for a
    multiply-add, one for other arithmetic, none for exp and its like; masked slots
    count like others. The body of a loop would count once. So layers are unrolled here,
    softmax is its plain definition, and a length at which some mechanisms go through
    tiles is extrapolated, by the parabola on which the counts of shorter ones lie.
    """
    t = config.max_length
    if t < COUNTED[-1]:
        flops = _forward_flops(config, batch_size, t)
    else:
        counts = [_forward_flops(config, batch_size, n) for n in COUNTED]
        flops = float(np.polyval(np.polyfit(COUNTED, counts, 2), t))
    return flops / (batch_size * t)


def _forward_flops(config: DecoderConfig, batch_size: int, t: int) -> float:
    mechanism = config.mechanism
    if isinstance(mechanism, Softmax):
        mechanism = replace(mechanism, implementation="dense")
    config = replace(config, scan_layers=False, max_length=t, mechanism=mechanism)
    model = nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0)))
    graph, state = nnx.split(model)
    tokens = jax.ShapeDtypeStruct((batch_size, t), jnp.int32)

    def forward(state: Any, tokens: Any) -> Any:
        return nnx.merge(graph, state)(tokens)

    analysis: Any = jax.jit(forward).lower(state, tokens).cost_analysis()
    return float(analysis["flops"])
