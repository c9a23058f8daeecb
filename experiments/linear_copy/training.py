"""One model of the copy task: built once, trained for every seed."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import PyTree

from attn_jax.data import Batch, copy_batch
from attn_jax.decoding import greedy
from attn_jax.models import Decoder, DecoderConfig, count_parameters
from attn_jax.train import (
    Progress,
    TrainState,
    TrainStep,
    cross_entropy,
    init_train_state,
    make_train_step,
    radam,
)
from experiments.common.compiling import StepCost, compile_step
from experiments.common.runs import seconds_of_training, train_run
from experiments.common.workdir import Workdir
from experiments.linear_copy.config import CopyConfig

LOSS, SYMBOLS = "validation_loss", "validation_symbols_right"
# Streams of examples that no seed of a run is likely to be.
VALIDATION, GENERATION = 2**31, 2**31 + 1


class Program(NamedTuple):
    """What all seeds of a model share, compiled for the first of them.

    evaluate: params -> nats a target, and the share of copied symbols that are right.
    copies_right: params -> the share of sequences copied whole, token by token. None
        for a mechanism that can't decode.
    """

    init: Callable[[int], TrainState]
    train_step: TrainStep
    evaluate: Callable[[PyTree], dict[str, float]]
    copies_right: Callable[[PyTree], float] | None
    cost: StepCost
    parameters: int


def batch_at(config: CopyConfig, step: int, seed: int) -> Batch:
    """A batch of the task."""
    return copy_batch(
        seed=seed,
        step=step,
        batch_size=config.batch_size,
        length=config.length,
        num_symbols=config.num_symbols,
    )


def build(decoder: DecoderConfig, config: CopyConfig) -> Program:
    """Everything that a model needs, with the training step compiled."""
    graph, _ = nnx.split(nnx.eval_shape(lambda: Decoder(decoder, rngs=nnx.Rngs(0))))
    schedule = optax.piecewise_constant_schedule(
        config.learning_rate, {config.decay_after: 0.1}
    )
    optimizer = radam(schedule, weight_decay=config.weight_decay)

    def init(seed: int) -> TrainState:
        params = nnx.state(Decoder(decoder, rngs=nnx.Rngs(seed)))
        return init_train_state(params, optimizer, seed=seed)

    def loss(params: PyTree, batch: Batch, rng: Any) -> Any:
        logits = nnx.merge(graph, params)(batch.tokens, rng=rng)
        return cross_entropy(logits, batch.targets, weights=batch.weights)

    @jax.jit
    def sums(params: PyTree, batch: Batch) -> tuple[Any, ...]:
        logits = nnx.merge(graph, params)(batch.tokens)
        nats, targets = cross_entropy(logits, batch.targets, weights=batch.weights)
        # The separator, which is easy to predict, is no symbol.
        symbols = (batch.weights > 0) & (batch.targets > 0)
        right = symbols & (jnp.argmax(logits, axis=-1) == batch.targets)
        return nats, targets, right.sum(), symbols.sum()

    def evaluate(params: PyTree) -> dict[str, float]:
        found = [sums(params, batch) for batch in validation_batches(config)]
        nats, targets, right, symbols = (
            math.fsum(map(float, each)) for each in zip(*found, strict=True)
        )
        return {LOSS: nats / targets, SYMBOLS: right / symbols}

    def copies_right(params: PyTree) -> float:
        return generate(nnx.merge(graph, params), config)

    train_step = make_train_step(loss, optimizer, schedule=schedule)
    return Program(
        init,
        train_step,
        evaluate,
        None if decoder.mechanism.cannot_decode else copies_right,
        compile_step(train_step, init(0), batch_at(config, 0, 0)),
        count_parameters(decoder),
    )


def validation_batches(config: CopyConfig) -> Iterator[Batch]:
    """The examples that every model is validated on."""
    for step in range(config.validation_batches):
        yield batch_at(config, step, VALIDATION)


def generate(model: Decoder, config: CopyConfig) -> float:
    """The share of sequences that the model repeats whole, from what it wrote itself.

    The prompt is the sequence and the separator; what follows is written greedily.
    """
    tokens = copy_batch(
        seed=GENERATION,
        step=0,
        batch_size=config.generated_rows,
        length=config.length,
        num_symbols=config.num_symbols,
    ).tokens
    n = np.argmax(tokens == 0, axis=1)
    longest = int(n.max())
    place = np.arange(longest + 1)
    prompt = tokens[:, : longest + 1]
    valid = place <= n[:, None]
    written = np.asarray(greedy(model, prompt, max_length=longest, valid=valid))
    same = (written == tokens[:, :longest]) | (place[:-1] >= n[:, None])
    return float(same.all(axis=1).mean())


def train(
    model: str,
    seed: int,
    program: Program,
    config: CopyConfig,
    workdir: Workdir,
    progress: Progress,
) -> dict[str, Any]:
    """Train a model from where it was left, and return its numbers."""
    trained = train_run(
        model,
        seed,
        program.init(seed),
        program.train_step,
        lambda step: batch_at(config, step, seed),
        evaluate=program.evaluate,
        measures=(LOSS, SYMBOLS),
        pace=config,
        workdir=workdir,
        progress=progress,
    )
    seconds = seconds_of_training(trained.lines, _targets(config), config.steps)
    generates = program.copies_right
    return {
        "model": model,
        "seed": seed,
        "steps": config.steps,
        LOSS: trained.curve[-1][LOSS],
        SYMBOLS: trained.curve[-1][SYMBOLS],
        "generated_copies_right": generates and generates(trained.params),
        "curve": [[at["step"], at[LOSS], at[SYMBOLS]] for at in trained.curve],
        "training_seconds": seconds,
        "tokens_per_second": seconds and config.steps * _targets(config) / seconds,
        "compile_seconds": program.cost.compile_seconds,
        "memory_bytes": program.cost.memory_bytes,
        "parameters": program.parameters,
    }


def _targets(config: CopyConfig) -> float:
    """Targets of a batch, in the mean: n symbols and a separator a row."""
    shortest, longest = config.length // 4, (config.length - 1) // 2 - 1
    return config.batch_size * ((shortest + longest) / 2 + 1)
