"""The encoders that are analysed, each with the sequences that it reads."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from flax import nnx

from attn_jax.data import ByteCorpus
from attn_jax.interop import huggingface
from attn_jax.models import Encoder, EncoderConfig
from experiments.common.errors import fail
from experiments.common.reader import Reader, load_reader
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
# More bytes than a token is likely to have.
BYTES_A_TOKEN = 16


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


def load_subjects(config: EigenConfig, text: str) -> list[Callable[[], Subject]]:
    """One function a model, the random one last; what is missing raises at once."""
    folders = named_models(config)
    if not folders:
        return [lambda: _subject(RANDOM, _random(_BYTES, config), _BYTE, config, text)]
    readers = {name: load_reader(folder) for name, folder in folders.items()}
    for name, reader in readers.items():
        _cut(reader, text, config, name)

    def load(name: str) -> Callable[[], Subject]:
        return lambda: _subject(
            name,
            huggingface.load_encoder(folders[name]),
            readers[name],
            config,
            text,
        )

    first = next(iter(folders))

    def control() -> Subject:
        like = huggingface.load_encoder(folders[first]).config
        return _subject(RANDOM, _random(like, config), readers[first], config, text)

    return [*map(load, folders), control]


def model_names(config: EigenConfig) -> list[str]:
    """Those of `load_subjects`."""
    return [*named_models(config), RANDOM]


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
