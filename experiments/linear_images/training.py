"""One decoder of pixels: its model, its training, how good it is."""

import math
from typing import Any

import jax
from flax import nnx
from jaxtyping import PyTree

from attn_jax.data import Batch, ImageSet, image_batch, image_batches_in_order
from attn_jax.models import Decoder, DecoderConfig
from attn_jax.train import (
    TrainState,
    adamw,
    cosine_schedule,
    init_train_state,
    make_train_step,
    radam,
)
from experiments.common.compiling import StepCost, compile_step
from experiments.common.lsh import named_mechanism
from experiments.common.runs import Trained, train_run
from experiments.common.workdir import Workdir
from experiments.linear_images.config import ImagesConfig
from experiments.linear_images.heads import make_head

BITS = "held_out_bits_per_dim"
OPTIMIZERS = {"adamw": adamw, "radam": radam}
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
        mechanism=named_mechanism(mechanism, config.bucket_size),
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
    """The parts of a decoder's training, compiled when they are first used."""

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
        make = OPTIMIZERS[config.optimizer]
        self.optimizer = make(schedule, weight_decay=config.weight_decay)
        self.train_step = make_train_step(self._loss, self.optimizer, schedule=schedule)
        self._sums = jax.jit(self._loss)

    def init(self) -> TrainState:
        seed = self.config.seed
        params = nnx.state(Decoder(self.model, rngs=nnx.Rngs(seed)))
        return init_train_state(params, self.optimizer, seed=seed)

    def compile(self) -> StepCost:
        """Compile the training step; what that took and what the step takes."""
        return compile_step(self.train_step, self.init(), self.batch(0))

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

    def train(self, workdir: Workdir, progress: Any = None) -> Trained:
        """Train what is left to train."""
        config = self.config
        return train_run(
            self.mechanism,
            config.seed,
            self.init(),
            self.train_step,
            self.batch,
            evaluate=lambda params: {
                BITS: self.bits_per_dim(params, config.eval_images)
            },
            measures=(BITS,),
            pace=config,
            workdir=workdir,
            progress=progress,
        )

    def _loss(self, params: PyTree, batch: Batch, rng: Any = None) -> Any:
        outputs = nnx.merge(self.graph, params)(batch.tokens, rng=rng)
        return self.head.losses(outputs, batch)
