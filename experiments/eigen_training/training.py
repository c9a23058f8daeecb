"""One model: built once, trained for every seed, and judged."""

import math
from pathlib import Path
from typing import Any

import jax
import optax
from flax import nnx
from jaxtyping import PyTree

from attn_jax.interop import huggingface
from attn_jax.models import count_parameters
from attn_jax.train import (
    Progress,
    TrainState,
    adamw,
    cosine_schedule,
    init_train_state,
    make_train_step,
)
from attn_jax.train.names import leaf_names
from experiments.common.compiling import compile_step
from experiments.common.runs import run_name, seconds_of_training, train_run
from experiments.common.workdir import Workdir
from experiments.eigen_training import maps
from experiments.eigen_training.classification import Classification
from experiments.eigen_training.config import TrainingConfig
from experiments.eigen_training.masked import Masked

Task = Classification | Masked
MAP = ("reconstruction", "offset", "mean")


class Program:
    """What all seeds of a model share, with the training step compiled."""

    def __init__(
        self, name: str, config: TrainingConfig, task: Task, start: maps.Start | None
    ) -> None:
        self.name, self.config, self.task, self.start = name, config, task, start
        self.mechanism = maps.mechanism(name, task.length, start)
        model = self.model(0)
        self.graph, _, self.rest = nnx.split(model, nnx.Param, ...)
        self.parameters = count_parameters(model.config)
        schedule = cosine_schedule(
            config.learning_rate,
            num_steps=config.steps,
            warmup_steps=int(config.warmup_fraction * config.steps),
        )
        self.optimizer = optax.chain(
            adamw(schedule, weight_decay=config.weight_decay),
            _scaled_maps(config.map_learning_rate),
        )
        self.train_step = make_train_step(self._loss, self.optimizer, schedule=schedule)
        self._sums = jax.jit(self._losses)
        self.cost = compile_step(self.train_step, self.init(0), task.batch(0, 0))

    def model(self, seed: int) -> Any:
        """The model before the first step."""
        model = self.task.encoder(self.mechanism, nnx.Rngs(seed))
        if self.start is not None:
            maps.begin(model, self.name, self.start)
        return model

    def init(self, seed: int) -> TrainState:
        params = nnx.state(self.model(seed), nnx.Param)
        return init_train_state(params, self.optimizer, seed=seed)

    def merged(self, params: PyTree) -> Any:
        return nnx.merge(self.graph, params, self.rest)

    def judge(self, params: PyTree, side: str) -> dict[str, float]:
        """Mean loss and share of right answers on a held-out side."""
        found = [self._sums(params, batch) for batch in self.task.held_out(side)]
        loss, right, weight = (
            math.fsum(map(float, each)) for each in zip(*found, strict=True)
        )
        return {"held_out_loss": loss / weight, self.task.measure: right / weight}

    def _losses(self, params: PyTree, batch: Any, rngs: Any = (None, None)) -> Any:
        return self.task.losses(self.merged(params), batch, rngs)

    def _loss(self, params: PyTree, batch: Any, rng: Any) -> Any:
        loss, _, weight = self._losses(params, batch, jax.random.split(rng))
        return loss, weight


def train(
    program: Program, seed: int, progress: Progress, workdir: Workdir
) -> dict[str, Any]:
    """Train a model from where it was left, and return its numbers."""
    config, task, name = program.config, program.task, program.name
    trained = train_run(
        name,
        seed,
        program.init(seed),
        program.train_step,
        lambda step: task.batch(step, seed),
        evaluate=lambda params: program.judge(params, "validation"),
        measures=("held_out_loss", task.measure),
        pace=config,
        workdir=workdir,
        progress=progress,
    )
    judged = program.judge(trained.params, "test")
    if isinstance(task, Masked) and name == "full":
        _keep(program.merged(trained.params), task, _encoders(workdir, name, seed))
    seconds = seconds_of_training(trained.lines, task.targets_a_step, config.steps)
    tokens = config.batch_size * task.length
    return {
        "model": name,
        "seed": seed,
        "steps": config.steps,
        "parameters": program.parameters,
        "curve": [list(point.values()) for point in trained.curve],
        "test": judged,
        "compile_seconds": program.cost.compile_seconds,
        "memory_bytes": program.cost.memory_bytes,
        "training_seconds": seconds,
        "tokens_per_second": seconds and tokens * config.steps / seconds,
    }


def _encoders(workdir: Workdir, name: str, seed: int) -> Path:
    return workdir.path / "encoders" / run_name(name, seed)


def _keep(model: Any, task: Masked, folder: Path) -> None:
    """An encoder and its vocabulary, for experiments.eigen."""
    huggingface.save_encoder(model, folder)
    task.vocabulary.save(folder / "vocabulary.json")


def _scaled_maps(factor: float) -> optax.GradientTransformation:
    """Updates of maps, times a factor."""

    def update(updates: PyTree, state: Any, params: Any = None) -> tuple[PyTree, Any]:
        names = leaf_names(updates)
        leaves, structure = jax.tree.flatten(updates)
        scaled = [
            leaf * factor if name[-1] in MAP else leaf
            for name, leaf in zip(names, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, scaled), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
