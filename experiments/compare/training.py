"""One model of the comparison: built once, trained for every seed."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jaxtyping import PyTree

from attn_jax.analysis.mixtures import mixture_metrics
from attn_jax.data import Batch
from attn_jax.models import Decoder
from attn_jax.train import (
    Progress,
    TrainState,
    TrainStep,
    adamw,
    cosine_schedule,
    cross_entropy,
    init_train_state,
    make_train_step,
)
from experiments.common.compiling import StepCost, compile_step
from experiments.common.mesh import initial, placed_batch
from experiments.common.runs import seconds_of_training, train_run
from experiments.common.workdir import Workdir
from experiments.compare.config import CompareConfig
from experiments.compare.cost import forward_flops_per_token
from experiments.compare.rows import Row
from experiments.compare.sampling import make_writer, write_text
from experiments.compare.text import Text

WINDOWS_OF_SAMPLE = 3
BITS = "validation_bits_per_byte"


class Program(NamedTuple):
    """What all seeds of a row share, compiled for the first of them.

    init: seed -> the state before the first step.
    train_step: as `fit` takes it.
    bits_per_byte: params -> the loss on the validation bytes.
    alphas: params -> the mean alphas of a mixture, nothing of other mechanisms.
    write: params -> the bytes that the model continues the prompt with.
    """

    init: Callable[[int], TrainState]
    train_step: TrainStep
    bits_per_byte: Callable[[PyTree], float]
    alphas: Callable[[PyTree], dict[str, float]]
    write: Callable[[PyTree], np.ndarray]
    cost: StepCost
    forward_flops_per_token: float


def build(row: Row, config: CompareConfig, text: Text) -> Program:
    """Everything that a row needs, with the training step compiled."""
    graph, _ = nnx.split(nnx.eval_shape(lambda: Decoder(row.decoder, rngs=nnx.Rngs(0))))
    schedule = cosine_schedule(
        config.learning_rate,
        num_steps=config.steps,
        warmup_steps=int(config.warmup_fraction * config.steps),
    )
    optimizer = adamw(schedule, weight_decay=config.weight_decay)

    def init(seed: int) -> TrainState:
        def state() -> TrainState:
            model = Decoder(row.decoder, rngs=nnx.Rngs(seed))
            return init_train_state(nnx.state(model), optimizer, seed=seed)

        return initial(state)

    def loss(params: PyTree, batch: Batch, rng: Any = None) -> Any:
        logits = nnx.merge(graph, params)(batch.tokens, rng=rng)
        return cross_entropy(logits, batch.targets, weights=batch.weights)

    train_step = make_train_step(loss, optimizer, schedule=schedule)
    sums = jax.jit(loss)
    write = make_writer(graph, config.length, config.temperature)

    def bits_per_byte(params: PyTree) -> float:
        losses, weights = zip(
            *(
                sums(params, placed_batch(batch, fill=True))
                for batch in text.validation_batches()
            ),
            strict=True,
        )
        nats = math.fsum(map(float, losses)) / math.fsum(map(float, weights))
        return nats / math.log(2) / text.bytes_per_token

    def sample(params: PyTree) -> np.ndarray:
        prompt = text.prompt()
        return write_text(write, params, prompt, num_windows=WINDOWS_OF_SAMPLE)

    return Program(
        init,
        train_step,
        bits_per_byte,
        lambda params: mixture_metrics(nnx.merge(graph, params)),
        sample,
        compile_step(train_step, init(0), text.training_batch(0, 0)),
        forward_flops_per_token(row.decoder, config.batch_size),
    )


def train(
    row: Row,
    seed: int,
    program: Program,
    config: CompareConfig,
    text: Text,
    workdir: Workdir,
    progress: Progress,
) -> dict[str, Any]:
    """Train a model from where it was left, and return its numbers and its text."""
    params, numbers = train_on(row, seed, program, config, text, workdir, progress)
    return {**numbers, "sample": text.decode(program.write(params))}


def train_on(
    row: Row,
    seed: int,
    program: Program,
    config: CompareConfig,
    text: Text,
    workdir: Workdir,
    progress: Progress,
) -> tuple[PyTree, dict[str, Any]]:
    """Train a model from where it was left: its parameters and its numbers."""
    trained = train_run(
        row.name,
        seed,
        program.init(seed),
        program.train_step,
        lambda step: text.training_batch(step, seed),
        evaluate=lambda params: {
            BITS: program.bits_per_byte(params),
            **program.alphas(params),
        },
        measures=(BITS,),
        pace=config,
        workdir=workdir,
        progress=progress,
    )
    curve = [[point["step"], point[BITS]] for point in trained.curve]
    tokens = config.batch_size * config.length
    seconds = seconds_of_training(trained.lines, tokens, config.steps)
    numbers = {
        "seed": seed,
        "steps": config.steps,
        BITS: curve[-1][1],
        "curve": curve,
        "tokens_per_second": seconds and config.steps * tokens / seconds,
        "training_seconds": seconds,
        "compile_seconds": program.cost.compile_seconds,
        "memory_bytes": program.cost.memory_bytes,
        "forward_flops_per_token": program.forward_flops_per_token,
        "parameters": row.parameters,
        "d_ff": row.decoder.feed_forward_width,
    }
    return trained.params, numbers
