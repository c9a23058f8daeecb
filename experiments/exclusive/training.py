"""What is learnt: the next byte of text, by the paper's model."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx

from attn_jax.analysis.similarity import layer_similarity
from attn_jax.models import Decoder, DecoderConfig, count_parameters
from attn_jax.train import make_progress
from experiments.common.errors import fail
from experiments.common.workdir import Workdir
from experiments.compare import training
from experiments.compare.rows import Row as Model
from experiments.compare.text import Text, cut, load_text
from experiments.exclusive.config import TrainingStudy
from experiments.exclusive.rows import Row, decoder_of
from experiments.exclusive.text import with_sinks


class Built(NamedTuple):
    """What the seeds of a row share, compiled."""

    model: Model
    config: TrainingStudy
    text: Text
    program: training.Program


class Language:
    """Text to learn, and how a row learns it."""

    def __init__(self, config: TrainingStudy) -> None:
        self.config = config
        self.text = load_text(config)

    def fingerprints(self) -> dict[str, Any]:
        """What the work directory has to keep to, beside the config."""
        return {"corpus_fingerprint": self.text.corpus.fingerprint}

    def corpus(self) -> dict[str, Any]:
        """What results say of the text."""
        text = self.text
        return {
            "name": text.corpus.name,
            "training_bytes": len(text.train),
            "validation_bytes": len(text.validation),
        }

    def model(self, row: Row) -> DecoderConfig:
        """The decoder of a row."""
        config = self._config(row)
        text, sinks = self._text(row), int(row.options.get("sinks", 0))
        return decoder_of(row, config.size, config.length + sinks, text.vocab_size)

    def build(self, row: Row) -> Built:
        """What the seeds of a row share, compiled."""
        config, decoder, text = self._config(row), self.model(row), self._text(row)
        count = count_parameters(decoder, embeddings=False)
        model = Model(row.name, decoder, count)
        return Built(model, config, text, training.build(model, config, text))

    def train(self, built: Built, seed: int, workdir: Workdir) -> dict[str, Any]:
        """The numbers of a run, trained from where it was left."""
        model, config, text, program = built
        progress = make_progress(workdir.path.name)
        params, numbers = training.train_on(
            model, seed, program, config, text, workdir, progress
        )
        decoder = Decoder(model.decoder, rngs=nnx.Rngs(seed))
        nnx.update(decoder, params)
        found = {"gates": gates(decoder), "similarity": None}
        if config.similarity:
            found["similarity"] = similarity(decoder, text, config.similarity)
        return {**numbers, **found}

    def _config(self, row: Row) -> TrainingStudy:
        """The study's config with what a row says."""
        config, options = self.config, row.options
        length = int(options.get("length", config.length))
        tokens = config.batch_size * config.length
        if length > tokens:
            expected = f"at most the {tokens} tokens of a batch"
            fail("--rows", repr(row.name), expected, "pass a greater --batch-size")
        return replace(
            config,
            length=length,
            batch_size=tokens // length,
            learning_rate=float(options.get("rate", config.learning_rate)),
        )

    def _text(self, row: Row) -> Text:
        text = cut(self.text.corpus, self._config(row))
        return with_sinks(text, int(row.options.get("sinks", 0)))


def similarity(decoder: Decoder, text: Text, windows: int) -> dict[str, Any]:
    """Figure 1 of a trained model: a number a layer, plain and without the mean."""
    rows: list[np.ndarray] = []
    for batch in text.validation_batches():
        rows += list(batch.tokens[batch.weights[:, -1] > 0])
        if len(rows) >= windows:
            break
    tokens = jnp.asarray(np.stack(rows[:windows]))
    plain = layer_similarity(decoder, tokens)
    centred = layer_similarity(decoder, tokens, center=True)
    named = {
        **plain._asdict(),
        "centred_value_cosine": centred.value_cosine,
        "centred_output_cosine": centred.output_cosine,
    }
    return {key: [round(float(x), 4) for x in each] for key, each in named.items()}


def gates(decoder: Decoder) -> list[list[float]] | None:
    """How much each head of each exclusive layer takes out, where that is learnt."""
    attentions = [layer.attention for layer in decoder.stack.unstacked()]
    found = [
        np.asarray(attention.exclusive_strength(), np.float64)[:, 0].round(4).tolist()
        for attention in attentions
        if attention.config.exclusive_gate is not None
    ]
    return found or None
