"""What compiling a training step says: seconds, and bytes in use."""

import time
from typing import Any, NamedTuple

from attn_jax.train import TrainState, TrainStep
from experiments.common.mesh import placed, placed_batch


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
    state, batch = placed(state), placed_batch(batch)
    begin = time.perf_counter()
    compiled: Any = train_step.lower(state, batch).compile()
    seconds = time.perf_counter() - begin
    stats = compiled.memory_analysis()
    if stats is None:
        return StepCost(seconds, None)
    used = stats.temp_size_in_bytes + stats.argument_size_in_bytes
    given_back = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return StepCost(seconds, used + given_back)
