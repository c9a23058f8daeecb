"""The study of translation: help pages, by an encoder-decoder."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flax import nnx

from attn_jax.data import ParallelText
from attn_jax.models import EncoderDecoder
from experiments.common.errors import fail
from experiments.common.vocabulary import learn_vocabulary
from experiments.common.workdir import Workdir
from experiments.synthesizer.config import TranslationStudy
from experiments.synthesizer.rows import Row, trained_parameters
from experiments.synthesizer.weights import of_translation
from experiments.translation.corpus import load_corpus
from experiments.translation.results import judge
from experiments.translation.scores import evenly_spaced
from experiments.translation.training import (
    LOSS,
    SECONDS,
    Program,
    encode,
    model_config,
    train,
)


class Translation:
    """Sentence pairs to learn, and how a row learns them."""

    def __init__(self, config: TranslationStudy) -> None:
        self.config = config
        corpus = load_corpus(config)
        texts = [*corpus.train.source, *corpus.train.target]
        vocabulary = learn_vocabulary(texts, config.vocab_size)
        self.data = encode(corpus, vocabulary, config, cut_sources=config.cut_sources)
        self.test = self._short(corpus.test)

    def _short(self, pairs: ParallelText) -> ParallelText:
        """Test pairs as short as those of training, the wanted number of them."""
        room = self.config.max_length - 1
        sides = [
            self.data.vocabulary.encode_batch(side)
            for side in (pairs.source, pairs.target)
        ]
        cut = self.config.cut_sources
        fits = [
            (cut or len(source) <= room) and len(target) <= room
            for source, target in zip(*sides, strict=True)
        ]
        kept = [i for i, good in enumerate(fits) if good]
        if not kept:
            fail(
                "--max-length",
                f"{self.config.max_length}, while every test pair is longer",
                "one that some have",
                "pass a greater one",
            )
        source, target = (
            [side[i] for i in kept] for side in (pairs.source, pairs.target)
        )
        short = ParallelText(source, target, pairs.names)
        return evenly_spaced(short, self.config.test_sentences)

    def fingerprints(self) -> dict[str, Any]:
        """What the work directory has to keep to, beside the config."""
        return {
            "corpus_fingerprint": self.data.corpus.fingerprint,
            "vocabulary_fingerprint": self.data.vocabulary.fingerprint,
        }

    def corpus(self) -> dict[str, Any]:
        """What results say of the sentences."""
        train, valid = self.data.train, self.data.valid
        return {
            "name": self.data.corpus.name,
            "training_pairs": train.num_pairs,
            "validation_pairs": valid.num_pairs,
            "test_pairs": len(self.test),
            "pairs_left_out": train.num_dropped + valid.num_dropped,
            "batches": train.summary,
            "epochs": self.config.steps / train.batches_per_epoch,
        }

    def row_config(self, row: Row) -> TranslationStudy:
        """The config of a row: its mechanism in both stacks, cross-attention as is."""
        heads = row.heads(self.config.num_heads)
        return replace(self.config, mechanism=row.mechanism, num_heads=heads)

    def model(self, row: Row) -> Any:
        """The model of a row."""
        if row.build().cannot_decode:
            expected = "ones that decode token by token, as translations are written"
            fail("--rows", row.name, expected, "leave it out")
        return model_config(self.row_config(row))

    def build(self, row: Row) -> Program:
        """What the seeds of a row share, compiled when it is first needed."""
        return Program(self.row_config(row), self.data)

    def train(self, built: Program, seed: int, workdir: Workdir) -> dict[str, Any]:
        """The numbers of a run, trained from where it was left."""
        program = built.with_seed(seed)
        self.data.vocabulary.save(workdir.path / "vocabulary.json")
        trained = train(program, workdir)
        model = program.with_params(trained.params)
        loss = program.validation_loss(trained.params)
        ours = program.translator.greedy(model, self.test.source)
        texts = [translation.text for translation in ours]
        scores = judge(texts, self.test.target)
        decoder = model.config
        return {
            "steps": self.config.steps,
            "parameters": trained_parameters(
                lambda: EncoderDecoder(decoder, rngs=nnx.Rngs(0))
            ),
            "validation_loss": loss,
            "validation_perplexity": float(np.exp(loss)),
            "bleu": scores["bleu"],
            "bleu_signature": scores["bleu_signature"],
            "chrf": scores["chrf"],
            # Of every evaluation while training, before parameters are averaged.
            "curve": [[point["step"], point[LOSS]] for point in trained.curve],
            "averaged_steps": trained.averaged,
            "tokens_per_second": trained.tokens_per_second,
            "training_seconds": trained.curve[-1][SECONDS],
            "compile_seconds": trained.compile_seconds,
            "samples": _samples(self.test, texts),
            "weights": of_translation(model, self.data.valid) if seed == 0 else None,
        }


def _samples(test: ParallelText, texts: Sequence[str]) -> list[dict[str, str]]:
    """Three test sentences, evenly spaced, so that nobody chose them."""
    places = [i * len(texts) // 3 for i in range(min(3, len(texts)))]
    return [
        {
            "source": test.source[i],
            "reference": test.target[i],
            "translation": texts[i],
        }
        for i in places
    ]
