"""The study of sentences: the class of a text or of several, by an encoder."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import PyTree

from attn_jax.analysis.mixtures import mixture_metrics
from attn_jax.data import (
    LabelledBatch,
    LabelledBatches,
    LabelledText,
)
from attn_jax.models import Encoder, EncoderConfig
from attn_jax.ops import masks
from attn_jax.train import (
    TrainStep,
    adamw,
    cosine_schedule,
    cross_entropy,
    init_train_state,
    make_progress,
    make_train_step,
)
from experiments.common.compiling import StepCost, compile_step
from experiments.common.grid import RUN
from experiments.common.labelled import fingerprint, load_splits
from experiments.common.runs import seconds_of_training, train_run
from experiments.common.vocabulary import learn_vocabulary
from experiments.common.workdir import Workdir
from experiments.synthesizer.config import ClassificationStudy
from experiments.synthesizer.rows import Row, trained_parameters

SPLITS = ("training", "validation", "test")
LOSS, ACCURACY = "validation_loss", "validation_accuracy"


class Program(NamedTuple):
    """What the seeds of a row share.

    sums: (params, batch) -> sums of losses, of right answers and of weights.
    alphas: params -> the mean alphas of a mixture, nothing of other mechanisms.
    """

    model: EncoderConfig
    train_step: TrainStep
    optimizer: Any
    sums: Any
    alphas: Callable[[PyTree], dict[str, float]]
    cost: StepCost


class Classification:
    """Examples to learn, and how a row learns them."""

    def __init__(self, config: ClassificationStudy) -> None:
        self.config = config
        self.splits = load_splits(config, config.data)
        texts = [text for parts in self.splits[0].texts for text in parts]
        self.vocabulary = learn_vocabulary(texts, config.vocab_size)
        self.train_side, self.valid, self.test = map(self._encode, self.splits)

    def _encode(self, split: LabelledText) -> LabelledBatches:
        encode = self.vocabulary.encode_batch
        columns = [encode(column) for column in zip(*split.texts, strict=True)]
        return LabelledBatches(
            list(zip(*columns, strict=True)),
            split.labels,
            bos_id=self.vocabulary.bos_id,
            eos_id=self.vocabulary.eos_id,
            length=self.config.length,
        )

    def fingerprints(self) -> dict[str, Any]:
        """What the work directory has to keep to, beside the config."""
        return {
            "corpus_fingerprint": fingerprint(self.splits),
            "vocabulary_fingerprint": self.vocabulary.fingerprint,
        }

    def corpus(self) -> dict[str, Any]:
        """What results say of the examples."""
        data = self.config.data
        train, _, test = self.splits
        return {
            "name": train.name if data is None else data.name,
            "classes": list(train.classes),
            "examples": {
                name: len(split)
                for name, split in zip(SPLITS, self.splits, strict=True)
            },
            "cut": self.train_side.num_cut + self.valid.num_cut + self.test.num_cut,
            "largest_share": test.largest_share,
        }

    def model(self, row: Row) -> EncoderConfig:
        """The encoder of a row."""
        config, parts = self.config, self.splits[0].num_parts
        return EncoderConfig(
            vocab_size=self.vocabulary.size,
            max_length=config.length,
            num_layers=config.num_layers,
            d_model=config.d_model,
            num_heads=row.heads(config.num_heads),
            d_ff=config.d_ff,
            mechanism=row.build(),
            positions="learned",
            embedding_scale="sqrt",
            dropout_rate=config.dropout_rate,
            num_types=parts if parts > 1 else 0,
            pooling=config.pooling,
            num_classes=len(self.splits[0].classes),
            scan_layers=False,
        )

    def build(self, row: Row) -> Program:
        """What the seeds of a row share, with the training step compiled."""
        config, model = self.config, self.model(row)
        graph, _ = nnx.split(nnx.eval_shape(lambda: Encoder(model, rngs=nnx.Rngs(0))))
        schedule = cosine_schedule(
            config.learning_rate,
            num_steps=config.steps,
            warmup_steps=config.steps // 20,
        )
        optimizer = adamw(schedule, weight_decay=config.weight_decay)

        def logits(params: PyTree, batch: LabelledBatch, rng: Any) -> Any:
            first, second = (None, None) if rng is None else jax.random.split(rng)
            encoder = nnx.merge(graph, params)
            mask = masks.padding(batch.real, batch.real)
            types = batch.types if model.num_types else None
            x = encoder(batch.tokens, mask=mask, types=types, rng=first)
            return encoder.class_logits(x, mask=mask, rng=second)

        def loss(params: PyTree, batch: LabelledBatch, rng: Any = None) -> Any:
            scores = logits(params, batch, rng)
            return cross_entropy(scores, batch.labels, weights=batch.weights)

        @jax.jit
        def sums(params: PyTree, batch: LabelledBatch) -> Any:
            scores = logits(params, batch, None)
            total, weight = cross_entropy(scores, batch.labels, weights=batch.weights)
            right = jnp.argmax(scores, axis=-1) == batch.labels
            return total, jnp.sum(batch.weights * right), weight

        step = make_train_step(loss, optimizer, schedule=schedule)
        params = nnx.state(Encoder(model, rngs=nnx.Rngs(0)))
        batch = self.train_side.batch(0, seed=0, batch_size=config.batch_size)
        cost = compile_step(step, init_train_state(params, optimizer, seed=0), batch)
        return Program(
            model,
            step,
            optimizer,
            sums,
            lambda params: mixture_metrics(nnx.merge(graph, params)),
            cost,
        )

    def train(self, built: Program, seed: int, workdir: Workdir) -> dict[str, Any]:
        """The numbers of a run, trained from where it was left."""
        config, model = self.config, built.model
        params = nnx.state(Encoder(model, rngs=nnx.Rngs(seed)))
        trained = train_run(
            RUN,
            seed,
            init_train_state(params, built.optimizer, seed=seed),
            built.train_step,
            lambda step: self.train_side.batch(
                step, seed=seed, batch_size=config.batch_size
            ),
            evaluate=lambda params: {
                **self._judge(built, params, self.valid),
                **built.alphas(params),
            },
            measures=(LOSS, ACCURACY),
            pace=config,
            workdir=workdir,
            progress=make_progress(workdir.path.name),
        )
        test = self._judge(built, trained.params, self.test)
        seconds = seconds_of_training(trained.lines, config.batch_size, config.steps)
        return {
            "steps": config.steps,
            "parameters": trained_parameters(lambda: Encoder(model, rngs=nnx.Rngs(0))),
            "test_accuracy": test[ACCURACY],
            "test_loss": test[LOSS],
            "curve": [[point["step"], point[LOSS]] for point in trained.curve],
            "tokens_per_second": seconds and config.steps * config.batch_size / seconds,
            "training_seconds": seconds,
            "compile_seconds": built.cost.compile_seconds,
        }

    def _judge(
        self, built: Program, params: PyTree, split: LabelledBatches
    ) -> dict[str, float]:
        """Loss and accuracy on a split."""
        batches = split.in_order(batch_size=self.config.batch_size)
        sums = [built.sums(params, batch) for batch in batches]
        loss, right, weight = (
            math.fsum(map(float, each)) for each in zip(*sums, strict=True)
        )
        return {LOSS: loss / weight, ACCURACY: right / weight}
