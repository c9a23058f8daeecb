"""The encoders that are analysed, each with the sequences that it reads."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from flax import nnx

from attn_jax.data import ByteCorpus
from attn_jax.interop import huggingface
from attn_jax.models import Encoder, EncoderConfig
from experiments.common.errors import fail
from experiments.common.reader import VOCABULARY, Reader, load_reader
from experiments.common.text import read_text
from experiments.eigen.command_line import RANDOM, named_models
from experiments.eigen.config import EigenConfig

# The encoder of the smoke test: bytes, begin and end.
_BYTES = EncoderConfig(
    vocab_size=258,
    max_length=512,
    num_layers=2,
    d_model=32,
    num_heads=4,
    positions="learned",
    embedding_norm=True,
    use_bias=True,
    norm_placement="post",
)
FILES = (huggingface.CONFIG, huggingface.WEIGHTS, huggingface.TOKENIZER, VOCABULARY)
# More bytes than a token is likely to have.
BYTES_A_TOKEN = 16


class Model(NamedTuple):
    """An encoder that is asked for.

    digest: of its files; of a random one, of the files of the encoder that it is like.
    """

    name: str
    digest: str
    load: Callable[[], "Subject"]


class Subject(NamedTuple):
    """An encoder and its sequences.

    sequences, held_out: token ids, N n, none of which is padding.
    """

    name: str
    encoder: Encoder
    sequences: np.ndarray
    held_out: np.ndarray


def load_text(config: EigenConfig) -> tuple[str, ByteCorpus]:
    """As much of the text as is needed, and where it is from."""
    text, corpus = read_text(config.data, tagged=config.tagged)
    needed = BYTES_A_TOKEN * config.length * (config.sequences + config.held_out)
    return text[:needed], corpus


def find_models(config: EigenConfig, text: str) -> list[Model]:
    """Those that are asked for, and a random one; what is missing raises at once."""
    folders = named_models(config)
    if not folders:

        def small() -> Subject:
            return _subject(RANDOM, _random(_BYTES, config), _BYTE, config, text)

        return [Model(RANDOM, "bytes", small)]
    readers = {name: load_reader(folder) for name, folder in folders.items()}
    for name, reader in readers.items():
        _cut(reader, text, config, name)
    digests = {name: _digest(folder) for name, folder in folders.items()}

    def load(name: str) -> Subject:
        encoder = huggingface.load_encoder(folders[name])
        return _subject(name, encoder, readers[name], config, text)

    first = next(iter(folders))

    def control() -> Subject:
        like = huggingface.load_encoder(folders[first]).config
        return _subject(RANDOM, _random(like, config), readers[first], config, text)

    models = [Model(name, digests[name], partial(load, name)) for name in folders]
    return [*models, Model(RANDOM, digests[first], control)]


def _digest(folder: Path) -> str:
    """Of the files of an encoder."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name in FILES:
            found.update(path.read_bytes())
    return found.hexdigest()


def _random(like: EncoderConfig, config: EigenConfig) -> Encoder:
    return Encoder(like, rngs=nnx.Rngs(config.seed))


def _byte_ids(text: str) -> list[int]:
    return list(text.encode())


_BYTE = Reader(_byte_ids, 256, 257)


def _subject(
    name: str, encoder: Encoder, reader: Reader, config: EigenConfig, text: str
) -> Subject:
    rows = _cut(reader, text, config, name)
    if encoder.config.max_length < config.length:
        expected = f"at most {encoder.config.max_length}, the positions of {name}"
        fail("--length", config.length, expected, "pass a smaller one")
    return Subject(name, encoder, rows[: config.sequences], rows[config.sequences :])


def _cut(reader: Reader, text: str, config: EigenConfig, name: str) -> np.ndarray:
    """Sequences one after the other, each between the two ends."""
    count, inner = config.sequences + config.held_out, config.length - 2
    ids = reader.ids(text)
    if len(ids) < count * inner:
        fail(
            "--data",
            f"{len(ids):,} tokens of {name}",
            f"at least {count * inner:,}, for {count:,} sequences",
            "pass more text, or fewer --sequences and --held-out",
        )
    rows = np.asarray(ids[: count * inner], np.int32).reshape(count, inner)
    return np.pad(
        rows, ((0, 0), (1, 1)), constant_values=((0, 0), (reader.first, reader.last))
    )
