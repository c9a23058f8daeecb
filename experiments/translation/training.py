"""The model, its training step, and a run from where it was left to its end."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
from flax import nnx
from jaxtyping import PyTree

from attn_jax.data import PairBatch, PairBatches, Vocabulary, pair_batches
from attn_jax.models import EncoderDecoder, EncoderDecoderConfig
from attn_jax.nn import MECHANISMS
from attn_jax.ops import masks
from attn_jax.train import (
    Checkpointer,
    MetricLogger,
    TrainState,
    TrainStep,
    adam,
    average_checkpoints,
    cross_entropy,
    fit,
    init_train_state,
    make_train_step,
    noam_schedule,
    read_metrics,
)
from experiments.common.workdir import Workdir
from experiments.translation.config import TranslationConfig
from experiments.translation.corpus import Corpus
from experiments.translation.scores import score
from experiments.translation.translating import Translator

RUN = "translation"
LOSS, BLEU, SECONDS = "validation_loss", "validation_bleu", "training_seconds"


class Data(NamedTuple):
    """The corpus in the pieces of a vocabulary."""

    corpus: Corpus
    vocabulary: Vocabulary
    train: PairBatches
    valid: PairBatches


class Trained(NamedTuple):
    """What a run leaves.

    params: the mean of the last checkpoints, of which there were `averaged`.
    curve: one line an evaluation, the first one first.
    """

    params: PyTree
    averaged: list[int]
    curve: list[dict[str, Any]]
    tokens_per_second: float | None
    compile_seconds: float


def model_config(config: TranslationConfig) -> EncoderDecoderConfig:
    """The paper's model at the sizes and with the mechanisms of a config."""
    encoder = config.encoder_mechanism or config.mechanism
    return EncoderDecoderConfig(
        vocab_size=config.vocab_size,
        # A translation may be longer than its source, and begins with bos.
        max_length=config.max_length + config.extra_length + 1,
        num_layers=config.num_layers,
        d_model=config.d_model,
        num_heads=config.num_heads,
        d_ff=config.d_ff,
        mechanism=MECHANISMS[config.mechanism](),
        encoder_mechanism=MECHANISMS[encoder](),
        cross_mechanism=MECHANISMS[config.cross_mechanism](),
        exclusive=config.exclusive,
        dropout_rate=config.dropout_rate,
        norm_placement=config.norm_placement,
    )


def encode(corpus: Corpus, vocabulary: Vocabulary, config: TranslationConfig) -> Data:
    """The training and the validation pairs in batches of pieces."""
    train, valid = (
        pair_batches(
            vocabulary.encode_batch(pairs.source),
            vocabulary.encode_batch(pairs.target),
            bos_id=vocabulary.bos_id,
            eos_id=vocabulary.eos_id,
            max_tokens=config.max_tokens,
            max_length=config.max_length,
        )
        for pairs in (corpus.train, corpus.valid)
    )
    return Data(corpus, vocabulary, train, valid)


class Program:
    """The compiled parts of a run: its step, its loss, its translations."""

    def __init__(self, config: TranslationConfig, data: Data) -> None:
        self.config, self.data = config, data
        self.model = model_config(config)
        self.graph, _ = nnx.split(
            nnx.eval_shape(lambda: EncoderDecoder(self.model, rngs=nnx.Rngs(0)))
        )
        schedule = noam_schedule(
            config.d_model, config.warmup_steps, config.learning_rate
        )
        self.optimizer = adam(schedule)
        self.train_step: TrainStep = make_train_step(
            self._loss(config.label_smoothing), self.optimizer, schedule=schedule
        )
        self._sums = jax.jit(self._loss(0.0))
        self.translator = Translator(data.vocabulary, config)

    def init(self) -> TrainState:
        seed = self.config.seed
        params = nnx.state(EncoderDecoder(self.model, rngs=nnx.Rngs(seed)), nnx.Param)
        return init_train_state(params, self.optimizer, seed=seed)

    def with_params(self, params: PyTree) -> EncoderDecoder:
        return nnx.merge(self.graph, params)

    def _loss(self, smoothing: float) -> Callable[..., Any]:
        def loss(params: PyTree, batch: PairBatch, rng: Any = None) -> Any:
            target = batch.weights > 0
            logits = nnx.merge(self.graph, params)(
                batch.source,
                batch.target_in,
                source_mask=masks.padding(batch.source_real, batch.source_real),
                target_mask=masks.padding(target, target),
                rng=rng,
            )
            return cross_entropy(
                logits, batch.labels, weights=batch.weights, label_smoothing=smoothing
            )

        return loss

    def compile(self, state: TrainState) -> float:
        """Compile the step for the shape of every bucket; the seconds it took."""
        begin = time.perf_counter()
        for batch in _one_of_each_shape(self.data.train):
            self.train_step.lower(state, batch).compile()
        return time.perf_counter() - begin

    def evaluate(self, params: PyTree) -> dict[str, float]:
        """Nats a piece on the validation pairs, and BLEU of the first of them."""
        sums = [self._sums(params, batch) for batch in self.data.valid.in_order()]
        loss, weight = (math.fsum(map(float, each)) for each in zip(*sums, strict=True))
        pairs, count = self.data.corpus.valid, self.config.eval_sentences
        model = self.with_params(params)
        ours = self.translator.greedy(model, pairs.source[:count])
        bleu = score(ours, pairs.target[:count])["bleu"]
        return {LOSS: loss / weight, BLEU: bleu}


def train(program: Program, workdir: Workdir) -> Trained:
    """Train from where the run was left, and average its last checkpoints."""
    config = program.config
    state = program.init()
    with (
        MetricLogger(workdir.path, name=RUN) as logger,
        Checkpointer(workdir.checkpoints(RUN), keep=config.average) as checkpointer,
    ):
        if checkpointer.latest_step() is not None:
            state = checkpointer.restore(state)
        compile_seconds = (
            program.compile(state) if int(state.step) < config.steps else 0
        )
        evaluate = _Clock(program.evaluate, _seconds_so_far(workdir, int(state.step)))
        result = fit(
            state,
            program.train_step,
            lambda step: program.data.train.batch(step, seed=config.seed),
            num_steps=config.steps,
            evaluate=evaluate,
            eval_every=config.eval_every,
            logger=logger,
            log_every=config.log_every,
            checkpointer=checkpointer,
            checkpoint_every=config.checkpoint_every,
        )
        steps = checkpointer.all_steps()[-config.average :]
        params = average_checkpoints(
            checkpointer.restore(result.state, step=step).params for step in steps
        )
    lines = read_metrics(workdir.path, name=RUN)
    names = ("step", "loss", LOSS, BLEU, SECONDS)
    curve = [{name: line[name] for name in names} for line in lines if BLEU in line]
    rates = [line["tokens_per_second"] for line in lines if line["tokens_per_second"]]
    rate = len(rates) / math.fsum(1 / rate for rate in rates) if rates else None
    return Trained(params, steps, curve, rate, compile_seconds)


class _Clock:
    """Evaluations that also say how long was trained, without the time they take."""

    def __init__(self, evaluate: Callable[[PyTree], Any], earlier: float) -> None:
        self._evaluate, self._spent = evaluate, earlier
        self._since = time.perf_counter()

    def __call__(self, params: PyTree) -> dict[str, float]:
        jax.block_until_ready(params)
        self._spent += time.perf_counter() - self._since
        found = self._evaluate(params)
        self._since = time.perf_counter()
        return {**found, SECONDS: self._spent}


def _seconds_so_far(workdir: Workdir, step: int) -> float:
    """Training seconds of earlier sessions, by the last evaluation up to a step."""
    lines = read_metrics(workdir.path, name=RUN) if step else []
    spent = [
        line[SECONDS] for line in lines if SECONDS in line and line["step"] <= step
    ]
    return max(spent, default=0.0)


def _one_of_each_shape(batches: PairBatches) -> Iterator[PairBatch]:
    seen = set()
    for batch in batches.in_order():
        if batch.source.shape not in seen:
            seen.add(batch.source.shape)
            yield batch
