"""The study of language: the next byte or piece, by a decoder."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from flax import nnx

from attn_jax.data import (
    ByteCorpus,
    Vocabulary,
    load_tfds_texts,
)
from attn_jax.data.windows import check_batch_fits
from attn_jax.models import Decoder, DecoderConfig
from attn_jax.train import make_progress
from experiments.common.vocabulary import learn_vocabulary
from experiments.common.workdir import Workdir
from experiments.compare import training
from experiments.compare.rows import Row as Model
from experiments.compare.rows import decoder_config
from experiments.compare.text import Text, cut, load_text
from experiments.synthesizer.config import LanguageStudy
from experiments.synthesizer.rows import Row, trained_parameters

BLOCK = 1 << 16


class Language:
    """Text to learn, and how a row learns it."""

    def __init__(self, config: LanguageStudy) -> None:
        self.config = config
        text = load_text(config) if config.tfds is None else cut(of_set(config), config)
        self.text = into_pieces(text, config) if config.vocab_size else text

    def fingerprints(self) -> dict[str, Any]:
        """What the work directory has to keep to, beside the config."""
        vocabulary = self.text.vocabulary
        return {
            "corpus_fingerprint": self.text.corpus.fingerprint,
            "vocabulary_fingerprint": vocabulary and vocabulary.fingerprint,
        }

    def corpus(self) -> dict[str, Any]:
        """What results say of the text."""
        text = self.text
        return {
            "name": text.corpus.name,
            "training_bytes": len(text.corpus.train),
            "training_tokens": len(text.train),
            "validation_tokens": len(text.validation),
            "bytes_per_token": text.bytes_per_token,
        }

    def model(self, row: Row) -> DecoderConfig:
        """The decoder of a row."""
        return replace(
            decoder_config(self.config, row.build()),
            vocab_size=self.text.vocab_size,
            num_heads=row.heads(self.config.num_heads),
        )

    def build(self, row: Row) -> tuple[Model, training.Program]:
        """What the seeds of a row share, compiled."""
        decoder = self.model(row)
        count = trained_parameters(lambda: Decoder(decoder, rngs=nnx.Rngs(0)))
        model = Model(row.name, decoder, count)
        return model, training.build(model, self.config, self.text)

    def train(
        self, built: tuple[Model, training.Program], seed: int, workdir: Workdir
    ) -> dict[str, Any]:
        """The numbers of a run, trained from where it was left."""
        model, program = built
        progress = make_progress(workdir.path.name)
        _, numbers = training.train_on(
            model, seed, program, self.config, self.text, workdir, progress
        )
        bits = numbers[training.BITS]
        perplexity = 2 ** (bits * self.text.bytes_per_token)
        return {**numbers, "validation_perplexity": perplexity}


def of_set(config: LanguageStudy) -> ByteCorpus:
    """The texts of a prepared data set, a line each."""
    name, where = config.tfds, config.tfds_dir
    assert name is not None
    texts = [load_tfds_texts(name, split, data_dir=where) for split in config.splits]
    sides = ["\n".join(lines).encode() for lines in texts]
    train, validation = (np.frombuffer(side, np.uint8) for side in sides)
    names = [f"{name}[{split}]" for split in config.splits]
    return ByteCorpus(
        name=names[0],
        train=train,
        validation=validation,
        train_files=(names[0],),
        validation_files=(names[1],),
        split="file",
        num_files=2,
        fingerprint=hashlib.sha256(b"\0".join(sides)).hexdigest(),
    )


def into_pieces(text: Text, config: LanguageStudy) -> Text:
    """The text in pieces of a vocabulary that is learnt from its training side."""
    blocks = list(_blocks(text.train))
    vocabulary = learn_vocabulary(blocks, config.vocab_size)
    train = _encode(vocabulary, blocks)
    held_out = list(_blocks(text.validation))
    validation = _encode(vocabulary, held_out)
    check_batch_fits(
        f"data (training pieces of {text.corpus.name})",
        len(train),
        batch_size=config.batch_size,
        length=config.length,
    )
    size = sum(len(block.encode()) for block in held_out)
    return replace(
        text,
        train=train,
        validation=validation,
        bytes_per_token=size / len(validation),
        vocabulary=vocabulary,
    )


def _encode(vocabulary: Vocabulary, blocks: list[str]) -> np.ndarray:
    pieces = vocabulary.encode_batch(blocks)
    return np.concatenate([np.asarray(ids, np.int32) for ids in pieces])


def _blocks(tokens: np.ndarray) -> Iterator[str]:
    """The text of bytes in blocks of whole lines; what is no UTF-8 becomes U+FFFD."""
    data, begin = tokens.tobytes(), 0
    while begin < len(data):
        end = data.rfind(b"\n", begin, begin + BLOCK) + 1 or begin + BLOCK
        yield data[begin:end].decode(errors="replace")
        begin = end
