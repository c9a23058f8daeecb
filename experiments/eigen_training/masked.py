"""Masked pieces of a text, and a small encoder that learns to predict them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from attn_jax.data import Vocabulary, load_vocabulary
from attn_jax.models import Encoder, EncoderConfig
from attn_jax.ops import sinusoidal_positions
from attn_jax.train import cross_entropy
from experiments.common import provenance
from experiments.common.errors import fail
from experiments.common.text import read_text
from experiments.common.vocabulary import learn_vocabulary
from experiments.eigen_training.config import TrainingConfig

MEASURE = "masked_accuracy"
MASKED = 0.15
HIDDEN, OTHER = 0.8, 0.1  # of the masked; the rest is left as it is
HELD_OUT = 20  # every so manieth part of the text is held out
CHARACTERS = 20_000_000  # from which the vocabulary is learnt


class Batch(NamedTuple):
    """Sequences, and the pieces that stood at `places`, Int[b p], of each.

    weights: 1, or 0 in a sequence that only fills the batch.
    """

    tokens: np.ndarray
    places: np.ndarray
    targets: np.ndarray
    weights: np.ndarray


class Masked:
    """The task: batches, a loss and a measure."""

    measure = MEASURE

    def __init__(self, config: TrainingConfig, vocabulary: Path) -> None:
        self.config = config
        text, corpus = read_text(config.data, tagged=config.tagged)
        self.vocabulary = _vocabulary(text, config, vocabulary)
        ids = np.array(self.vocabulary.encode(text), np.int32)
        inner = config.length - 2
        rows = ids[: len(ids) // inner * inner].reshape(-1, inner)
        if len(rows) < 2 * HELD_OUT:
            expected = f"at least {2 * HELD_OUT * inner:,}"
            fail("--data", f"{len(ids):,} pieces", expected, "pass more text")
        ends = ((self.vocabulary.bos_id,) * 2, (self.vocabulary.eos_id,) * 2)
        rows = np.pad(
            rows, ((0, 0), (1, 1)), constant_values=((0, 0), (ends[0][0], ends[1][0]))
        )
        held = np.arange(len(rows)) % HELD_OUT == 0
        self.sides = {"train": rows[~held], "test": rows[held]}
        self.length = config.length
        self.summary = {
            "name": provenance.relative(corpus.name),
            "fingerprint": f"{corpus.fingerprint}-{self.vocabulary.fingerprint}",
            "texts": {name: len(side) for name, side in self.sides.items()},
            "most_frequent": float(np.bincount(ids).max() / len(ids)),
        }

    def encoder(self, mechanism: Any, rngs: Any) -> Encoder:
        """An encoder of the BERT family with random parameters.

        Its tables begin at d_model**-0.5. BERT's 0.02 looks the same behind the
        LayerNorm, but a few updates at the rate of a small model would replace it.
        Positions are learnt and begin as sinusoids, so that the next place looks alike
        from everywhere and need not be found for each.
        """
        model = Encoder(self._model(mechanism), rngs=rngs)
        tokens, places = model.embedding.embedding, model.embedding.positions
        n, m = places.shape
        tokens[...] = tokens[...] * (m**-0.5 / jnp.std(tokens[...]))
        # The third with the shortest waves: longer ones hardly move in a sequence.
        places[...] = sinusoidal_positions(n, 3 * m)[:, :m] * (2 / m) ** 0.5
        return model

    def _model(self, mechanism: Any) -> EncoderConfig:
        config = self.config
        return EncoderConfig(
            # One more than there are pieces, for what is hidden.
            vocab_size=self.vocabulary.size + 1,
            max_length=config.length,
            num_layers=config.num_layers,
            d_model=config.d_model,
            num_heads=config.num_heads,
            d_ff=config.d_ff,
            mechanism=mechanism,
            positions="learned",
            embedding_norm=True,
            masked_lm=True,
            dropout_rate=config.dropout_rate,
            use_bias=True,
            norm_placement="post",
            norm_epsilon=1e-12,
            activation="gelu_exact",
        )

    @property
    def targets_a_step(self) -> int:
        return self.config.batch_size * self._count

    @property
    def _count(self) -> int:
        return max(1, round(MASKED * (self.length - 2)))

    def batch(self, step: int, seed: int) -> Batch:
        rng = np.random.default_rng([seed, step])
        rows = rng.integers(len(self.sides["train"]), size=self.config.batch_size)
        return self._hidden(self.sides["train"][rows], rng)

    def held_out(self, side: str) -> Iterator[Batch]:
        """The first held-out sequences, always with the same pieces masked."""
        rows = self.sides["test"]
        if side != "test":
            rows = rows[: self.config.held_out]
        size = self.config.batch_size
        for begin in range(0, len(rows), size):
            rng = np.random.default_rng([begin, 1])
            at = np.arange(begin, begin + size)
            batch = self._hidden(rows[np.minimum(at, len(rows) - 1)], rng)
            counts = (at < len(rows)).astype(np.float32)
            yield batch._replace(weights=batch.weights * counts[:, None])

    def _hidden(self, tokens: np.ndarray, rng: np.random.Generator) -> Batch:
        """Some pieces of each row, hidden, changed or left."""
        count, vocab = self._count, self.vocabulary.size
        inner = np.tile(np.arange(1, self.length - 1), (len(tokens), 1))
        places = np.sort(rng.permuted(inner, axis=1)[:, :count], axis=1)
        targets = np.take_along_axis(tokens, places, axis=1)
        fate = rng.random(places.shape)
        others = rng.integers(3, vocab, size=places.shape)
        shown = np.where(fate < HIDDEN, vocab, targets)
        shown = np.where((fate >= HIDDEN) & (fate < HIDDEN + OTHER), others, shown)
        tokens = tokens.copy()
        np.put_along_axis(tokens, places, shown.astype(tokens.dtype), axis=1)
        weights = np.ones(targets.shape, np.float32)
        return Batch(tokens, places.astype(np.int32), targets, weights)

    def losses(self, model: Encoder, batch: Batch, rngs: Any) -> Any:
        """Sums of losses, of right answers, and of weights; of masked pieces alone."""
        x = model(batch.tokens, rng=rngs[0])
        picked = jnp.take_along_axis(x, batch.places[..., None], axis=1)
        logits = model.token_logits(picked)
        loss, weight = cross_entropy(logits, batch.targets, weights=batch.weights)
        right = (jnp.argmax(logits, axis=-1) == batch.targets) * batch.weights
        return loss, jnp.sum(right), weight


def _vocabulary(text: str, config: TrainingConfig, path: Path) -> Vocabulary:
    """The one in the work directory, or one learnt from the text."""
    if path.exists():
        found = load_vocabulary(path)
        if found.size == config.vocab_size:
            return found
        expected = f"{found.size}, as {path} has"
        fail("--vocab-size", config.vocab_size, expected, "pass another --workdir")
    return learn_vocabulary([text[:CHARACTERS]], config.vocab_size)
