"""One decoder, trained on the pixels of images from where it was left."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx
from jaxtyping import PyTree

from attn_jax.data import Batch, ImageSet, image_batch, image_batches_in_order
from attn_jax.models import Decoder, DecoderConfig, count_parameters
from attn_jax.nn import MECHANISMS
from attn_jax.train import (
    Checkpointer,
    MetricLogger,
    TrainState,
    adamw,
    cosine_schedule,
    fit,
    init_train_state,
    make_train_step,
    read_metrics,
)
from experiments.common.runs import seconds_of_training
from experiments.common.workdir import Workdir
from experiments.linear_images.config import ImagesConfig
from experiments.linear_images.heads import make_head

BITS = "held_out_bits_per_dim"
# About as many pixels a batch as fill two cores; it changes no number.
EVALUATED_PIXELS = 16384
# Fewer layers run faster unrolled.
SCANNED_LAYERS = 5


def decoder_config(mechanism: str, config: ImagesConfig) -> DecoderConfig:
    """A decoder of pixels; its mechanism is all that differs from the others'."""
    return DecoderConfig(
        vocab_size=config.levels,
        max_length=config.num_pixels,
        num_layers=config.num_layers,
        d_model=config.d_model,
        num_heads=config.num_heads,
        d_ff=config.d_ff,
        mechanism=MECHANISMS[mechanism](),
        positions=config.positions,
        dropout_rate=config.dropout_rate,
        tie_embeddings=False,
        output_size=make_head(config).outputs,
        embedding_scale="sqrt",
        norm_placement=config.norm_placement,
        final_norm=True,
        use_bias=config.use_bias,
        activation=config.activation,
        scan_layers=config.num_layers >= SCANNED_LAYERS,
    )


class Program:
    """The compiled parts of a decoder's training."""

    def __init__(self, mechanism: str, config: ImagesConfig, images: ImageSet) -> None:
        self.mechanism, self.config, self.images = mechanism, config, images
        self.head = make_head(config)
        self.model = decoder_config(mechanism, config)
        self.graph, _ = nnx.split(
            nnx.eval_shape(lambda: Decoder(self.model, rngs=nnx.Rngs(0)))
        )
        schedule = cosine_schedule(
            config.learning_rate,
            num_steps=config.steps,
            warmup_steps=int(config.warmup_fraction * config.steps),
            final_fraction=config.final_fraction,
        )
        self.optimizer = adamw(schedule, weight_decay=config.weight_decay)
        self.train_step = make_train_step(self._loss, self.optimizer, schedule=schedule)
        self._sums = jax.jit(self._loss)

    def init(self) -> TrainState:
        seed = self.config.seed
        params = nnx.state(Decoder(self.model, rngs=nnx.Rngs(seed)), nnx.Param)
        return init_train_state(params, self.optimizer, seed=seed)

    def batch(self, step: int) -> Batch:
        return image_batch(
            self.images.train,
            seed=self.config.seed,
            step=step,
            batch_size=self.config.batch_size,
        )

    def bits_per_dim(self, params: PyTree, count: int) -> float:
        """-log2 p of a pixel, over all pixels of the first held-out images."""
        held_out = self.images.test[:count]
        rows = min(len(held_out), max(1, EVALUATED_PIXELS // held_out.shape[1]))
        sums = [
            self._sums(params, batch)
            for batch in image_batches_in_order(held_out, batch_size=rows)
        ]
        nats, pixels = (math.fsum(map(float, each)) for each in zip(*sums, strict=True))
        return nats / pixels / math.log(2)

    def _loss(self, params: PyTree, batch: Batch, rng: Any = None) -> Any:
        outputs = nnx.merge(self.graph, params)(batch.tokens, rng=rng)
        return self.head.losses(outputs, batch)


def train(program: Program, workdir: Workdir) -> tuple[PyTree, dict[str, Any]]:
    """Train what is left to train; the parameters, and the numbers of the training."""
    config, name = program.config, program.mechanism
    state = program.init()
    with (
        MetricLogger(workdir.path, name=name) as logger,
        Checkpointer(workdir.checkpoints(name)) as checkpointer,
    ):
        if checkpointer.latest_step() is not None:
            state = checkpointer.restore(state)
        result = fit(
            state,
            program.train_step,
            program.batch,
            num_steps=config.steps,
            evaluate=lambda params: {
                BITS: program.bits_per_dim(params, config.eval_images)
            },
            eval_every=config.eval_every,
            logger=logger,
            log_every=config.log_every,
            checkpointer=checkpointer,
            checkpoint_every=config.checkpoint_every,
        )
    lines = read_metrics(workdir.path, name=name)
    return result.state.params, {
        "steps": config.steps,
        "curve": [[line["step"], line[BITS]] for line in lines if BITS in line],
        "loss_curve": [[line["step"], line["loss"] / math.log(2)] for line in lines],
        "compile_seconds": _known(result.compile_seconds),
        "parameters": count_parameters(program.model),
        **_speed(lines, config),
    }


def _speed(lines: list[dict[str, Any]], config: ImagesConfig) -> Mapping[str, Any]:
    images = config.batch_size
    seconds = seconds_of_training(lines, images * config.num_pixels, config.steps)
    return {
        "images_per_second": seconds and images * config.steps / seconds,
        "training_seconds": seconds,
    }


def _known(seconds: float) -> float | None:
    """Seconds, None where nothing was compiled since all steps were done."""
    return None if np.isnan(seconds) else seconds
