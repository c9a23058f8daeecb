"""The model, its training step, and a run from where it was left to its end."""

import contextlib
import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from flax import nnx
from jaxtyping import PyTree

from attn_jax.analysis.mixtures import mixture_metrics
from attn_jax.data import PairBatch, PairBatches, Vocabulary, pair_batches
from attn_jax.models import EncoderDecoder, EncoderDecoderConfig
from attn_jax.nn import MECHANISMS
from attn_jax.ops import masks
from attn_jax.train import (
    Checkpointer,
    CheckpointWriteError,
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
from experiments.common.mechanisms import mechanism_named
from experiments.common.mesh import placed, placed_batch
from experiments.common.workdir import Workdir, read_json, write_json
from experiments.translation.config import TranslationConfig, scheduled_steps
from experiments.translation.corpus import Corpus
from experiments.translation.scores import score
from experiments.translation.translating import Translator

RUN = "translation"
CHUNK = 100_000
LOSS, BLEU, SECONDS = "validation_loss", "validation_bleu", "training_seconds"


class Data(NamedTuple):
    """The corpus in the pieces of a vocabulary."""

    corpus: Corpus
    vocabulary: Vocabulary
    train: PairBatches
    valid: PairBatches


class Trained(NamedTuple):
    """What a run leaves.

    params: the mean of the last checkpoints on the schedule, those of `averaged`.
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
        mechanism=mechanism_named(config.mechanism),
        encoder_mechanism=mechanism_named(encoder),
        cross_mechanism=MECHANISMS[config.cross_mechanism](),
        exclusive=config.exclusive,
        dropout_rate=config.dropout_rate,
        norm_placement=config.norm_placement,
    )


def encode(
    corpus: Corpus,
    vocabulary: Vocabulary,
    config: TranslationConfig,
    *,
    cut_sources: bool = False,
) -> Data:
    """The training and the validation pairs in batches of pieces.

    Args:
      cut_sources: whether sources that are too long are cut, as they are when they are
        translated; else their pairs are left out, like those with long targets.
    """
    room = config.max_length - 1 if cut_sources else None
    train, valid = (
        pair_batches(
            [ids[:room] for ids in _pieces(vocabulary, pairs.source)],
            _pieces(vocabulary, pairs.target),
            bos_id=vocabulary.bos_id,
            eos_id=vocabulary.eos_id,
            max_tokens=config.max_tokens,
            max_length=config.max_length,
        )
        for pairs in (corpus.train, corpus.valid)
    )
    return Data(corpus, vocabulary, train, valid)


def _pieces(vocabulary: Vocabulary, sentences: Sequence[str]) -> list[np.ndarray]:
    """The ids of each sentence; as Python ints, millions of sentences fill a memory."""
    return [
        np.asarray(ids, np.int32)
        for begin in range(0, len(sentences), CHUNK)
        for ids in vocabulary.encode_batch(sentences[begin : begin + CHUNK])
    ]


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
        params = nnx.state(EncoderDecoder(self.model, rngs=nnx.Rngs(seed)))
        return init_train_state(params, self.optimizer, seed=seed)

    def with_seed(self, seed: int) -> Self:
        """The same program for another run; what is compiled serves both."""
        other = copy.copy(self)
        other.config = replace(self.config, seed=seed)
        return other

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
        """Compile the step for the shape of every bucket; the seconds it took.

        The calls that follow find the executables in the cache of the jitted function.
        """
        begin = time.perf_counter()
        for rows, length in self.data.train.shapes:
            batch = placed_batch(_zeros(rows, length), fill=True)
            self.train_step.lower(state, batch).compile()
        return time.perf_counter() - begin

    def validation_loss(self, params: PyTree) -> float:
        """Nats a piece on the validation pairs."""
        sums = [self._sums(params, batch) for batch in self.data.valid.in_order()]
        loss, weight = (math.fsum(map(float, each)) for each in zip(*sums, strict=True))
        return loss / weight

    def evaluate(self, params: PyTree) -> dict[str, float]:
        """Nats a piece on the validation pairs, BLEU of the first of them, alphas."""
        pairs, count = self.data.corpus.valid, self.config.eval_sentences
        model = self.with_params(params)
        ours = self.translator.greedy(model, pairs.source[:count])
        texts = [translation.text for translation in ours]
        bleu = score(texts, pairs.target[:count])["bleu"]
        return {
            LOSS: self.validation_loss(params),
            BLEU: bleu,
            **mixture_metrics(model),
        }


def train(program: Program, workdir: Workdir) -> Trained:
    """Train from where the run was left, and average its last checkpoints."""
    config = program.config
    state = placed(program.init())
    clock = Clock(workdir)
    with (
        MetricLogger(workdir.path, name=RUN) as logger,
        _Checkpointer(workdir, clock, config) as checkpointer,
    ):
        if checkpointer.latest_step() is not None:
            state = checkpointer.restore(state)
        compile_seconds = (
            program.compile(state) if int(state.step) < config.steps else 0
        )
        clock.start(int(state.step))

        def evaluate(params: PyTree) -> dict[str, float]:
            jax.block_until_ready(params)
            with clock.stopped() as seconds:
                return {**program.evaluate(params), SECONDS: seconds}

        result = fit(
            state,
            program.train_step,
            # Rows of a bucket are as many as its tokens allow: some stay empty.
            lambda step: placed_batch(
                program.data.train.batch(step, seed=config.seed), fill=True
            ),
            num_steps=config.steps,
            evaluate=evaluate,
            eval_every=config.eval_every,
            logger=logger,
            log_every=config.log_every,
            checkpointer=checkpointer,
            checkpoint_every=config.checkpoint_every,
        )
        there = set(checkpointer.all_steps())
        steps = [step for step in scheduled_steps(asdict(config)) if step in there]
        params = average_checkpoints(
            checkpointer.restore(result.state, step=step).params for step in steps
        )
    lines = read_metrics(workdir.path, name=RUN)
    names = ("step", "loss", LOSS, BLEU, SECONDS)
    curve = [{name: line[name] for name in names} for line in lines if BLEU in line]
    if not curve or curve[-1]["step"] != config.steps:
        # Interrupted earlier after as many steps as are now asked for.
        last = {"step": config.steps, "loss": None, **evaluate(result.state.params)}
        curve.append({name: last[name] for name in names})
    rates = [line["tokens_per_second"] for line in lines if line["tokens_per_second"]]
    rate = len(rates) / math.fsum(1 / rate for rate in rates) if rates else None
    return Trained(params, steps, curve, rate, compile_seconds)


class Clock:
    """Seconds of training, of earlier sessions too, without evaluating and saving.

    seconds.json has those up to each checkpoint, so that what was trained after it,
    and is lost, doesn't count.
    """

    def __init__(self, workdir: Workdir) -> None:
        self._path = workdir.path / "seconds.json"
        self._at: dict[str, float] = {}
        self._spent = self._since = 0.0

    def start(self, step: int) -> None:
        """Go on after `step` steps."""
        self._at = (read_json(self._path) or {}) if step else {}
        self._spent = self._at.get(str(step), 0.0)
        self._since = time.perf_counter()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[float]:
        """Gives the seconds so far, and lets the clock stand meanwhile."""
        self._spent += time.perf_counter() - self._since
        try:
            yield self._spent
        finally:
            self._since = time.perf_counter()

    def keep(self, step: int, seconds: float) -> None:
        """Record the seconds up to a checkpoint."""
        self._at[str(step)] = seconds
        write_json(self._path, self._at)


class _Checkpointer(Checkpointer):
    """Records the seconds of training beside each state."""

    def __init__(
        self, workdir: Workdir, clock: Clock, config: TranslationConfig
    ) -> None:
        super().__init__(
            workdir.checkpoints(RUN), keep=config.average, every=config.checkpoint_every
        )
        self._clock = clock

    def save(
        self, step: int, state: PyTree, *, metrics: Mapping[str, Any] | None = None
    ) -> None:
        jax.block_until_ready(state)
        with self._clock.stopped() as seconds:
            try:
                # First, so that there is no state whose time is unknown.
                self._clock.keep(step, seconds)
            except OSError as error:
                raise CheckpointWriteError(f"seconds.json: {error}") from error
            super().save(step, state, metrics=metrics)


def _zeros(rows: int, length: int) -> PairBatch:
    """A batch of a shape, to compile for."""
    shape = (rows, length)
    return PairBatch(
        source=np.zeros(shape, np.int32),
        source_real=np.zeros(shape, bool),
        target_in=np.zeros(shape, np.int32),
        labels=np.zeros(shape, np.int32),
        weights=np.zeros(shape, np.float32),
        indices=np.zeros(rows, np.int32),
    )
