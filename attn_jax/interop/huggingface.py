"""Models that other libraries read, in a local directory: BERT's and GPT-2's family.

    config.json         sizes
    model.safetensors   weights
    tokenizer.json      the tokenizer, for which the package `tokenizers` is needed

Nothing is downloaded.
"""

from collections.abc import Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from flax import nnx
from jaxtyping import Bool, Int32

from attn_jax.data.vocabulary import import_tokenizers
from attn_jax.interop import _directory
from attn_jax.interop._bert import BERT
from attn_jax.interop._directory import TOKENIZER, existing, made
from attn_jax.interop._family import CONFIG, WEIGHTS
from attn_jax.interop._gpt2 import GPT2
from attn_jax.models import Decoder, Encoder
from attn_jax.nn._checks import check_sizes

__all__ = [
    "CONFIG",
    "TOKENIZER",
    "WEIGHTS",
    "Encoded",
    "Tokenizer",
    "load_decoder",
    "load_encoder",
    "load_tokenizer",
    "save_decoder",
    "save_encoder",
]


def load_encoder(
    directory: str | PathLike[str], *, rngs: nnx.Rngs | None = None, **changes: Any
) -> Encoder:
    """An `Encoder` of the BERT family with the weights of a directory.

        encoder = load_encoder("minilm")
        classifier = load_encoder("minilm", max_length=128, num_classes=2)
        mechanism = Partial(causal=False)
        partial = load_encoder("minilm", max_length=128, mechanism=mechanism)

    Dropout of attention weights, which such models are trained with, is left out: an
    `Encoder` drops the outputs of its layers.

    Args:
      directory: with config.json and model.safetensors, or the parts that
        model.safetensors.index.json names.
      rngs: of what the file does not have: a head that was asked for, a mechanism's own
        parameters; None is `nnx.Rngs(0)`. What these are is logged at level INFO by the
        logger "attn_jax".
      changes: fields of `EncoderConfig` that are to differ from the file's. A shorter
        max_length takes the first positions. Parameters are of `param_dtype`, float32
        unless it is changed, whatever the file's are.

    Raises:
      ValueError: files that are not there, are of another kind of model, or do not fit
        the config.
    """
    return _directory.load(BERT, directory, rngs, changes)


def save_encoder(encoder: Encoder, directory: str | PathLike[str]) -> None:
    """Writes config.json and model.safetensors, for `load_encoder` and other libraries.

    Args:
      encoder: one of the BERT family: learned positions, post-norm, biases, softmax.
      directory: made where it is not there.

    Raises:
      ValueError: an encoder that such a file can't describe, with the fields.
    """
    _directory.save(BERT, encoder, directory)


def load_decoder(
    directory: str | PathLike[str], *, rngs: nnx.Rngs | None = None, **changes: Any
) -> Decoder:
    """A `Decoder` of the GPT-2 family with the weights of a directory.

        decoder = load_decoder("gpt2")
        linear = load_decoder("gpt2", max_length=256, mechanism=Linear())

    Dropout of attention weights is left out, as in `load_encoder`.

    Args:
      directory, rngs: as of `load_encoder`.
      changes: fields of `DecoderConfig` that are to differ from the file's, likewise.

    Raises:
      ValueError: files that are not there, are of another kind of model, or do not fit
        the config.
    """
    return _directory.load(GPT2, directory, rngs, changes)


def save_decoder(decoder: Decoder, directory: str | PathLike[str]) -> None:
    """Writes config.json and model.safetensors, for `load_decoder` and other libraries.

    Args:
      decoder: one of the GPT-2 family: learned positions, pre-norm, biases, softmax.
      directory: made where it is not there.

    Raises:
      ValueError: a decoder that such a file can't describe, with the fields.
    """
    _directory.save(GPT2, decoder, directory)


class Encoded(NamedTuple):
    """Texts as an `Encoder` takes them, padded on the right.

    tokens: ids; 0 at padding.
    types: 0, and 1 in the second text of a pair.
    real: True where there is a token.
    """

    tokens: Int32[np.ndarray, "N t"]
    types: Int32[np.ndarray, "N t"]
    real: Bool[np.ndarray, "N t"]


class Tokenizer:
    """A tokenizer.json: texts to ids, with the special tokens of its model.

    Attributes:
      vocab_size: ids that there are.
      mask_id: what stands for a token to predict; None where there is none.
      special_ids: those of special tokens, none of which is text.
    """

    def __init__(self, tokenizer: Any) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self.vocab_size: int = tokenizer.get_vocab_size()
        self.mask_id: int | None = tokenizer.token_to_id("[MASK]")
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids = tuple(sorted(i for i, one in added.items() if one.special))

    def encode(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        length: int,
    ) -> Encoded:
        """Texts, or pairs of texts, as rows of `length` tokens; longer ones are cut.

        Args:
          texts: one a row.
          pairs: the second text of each row; the longer of the two is cut first.
          length: tokens of a row, special ones included.

        Raises:
          ValueError: another number of second texts, or no room for special tokens.
        """
        check_sizes(length=length)
        least = self._tokenizer.num_special_tokens_to_add(pairs is not None)
        if length <= least:
            raise ValueError(
                f"length: got {length}; expected at least {least + 1}, since {least} "
                "tokens of a row are special"
            )
        if pairs is not None and len(pairs) != len(texts):
            raise ValueError(
                f"pairs: got {len(pairs)} for {len(texts)} texts; expected one a text"
            )
        self._tokenizer.enable_truncation(length)
        inputs = list(texts)
        if pairs is not None:
            inputs = list(zip(texts, pairs, strict=True))
        encoded = self._tokenizer.encode_batch(inputs)
        self._tokenizer.no_truncation()
        tokens = np.zeros((len(encoded), length), np.int32)
        types, real = np.zeros_like(tokens), np.zeros(tokens.shape, bool)
        for row, one in enumerate(encoded):
            n = len(one.ids)
            tokens[row, :n], types[row, :n], real[row, :n] = one.ids, one.type_ids, True
        return Encoded(tokens, types, real)

    def ids(self, text: str) -> list[int]:
        """The ids of a text of any length, without special tokens."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        return self._tokenizer.decode([int(i) for i in ids])

    def save(self, directory: str | PathLike[str]) -> None:
        """Writes tokenizer.json."""
        self._tokenizer.save(str(made(directory) / TOKENIZER))


def load_tokenizer(directory: str | PathLike[str]) -> Tokenizer:
    """The tokenizer of a directory.

    Raises:
      ImportError: without the package tokenizers, which is in the extra "text".
      ValueError: no tokenizer.json, or one that can't be read.
    """
    tokenizers = import_tokenizers()
    path = existing(directory, TOKENIZER) / TOKENIZER
    try:
        return Tokenizer(tokenizers.Tokenizer.from_file(str(path)))
    # The package raises nothing narrower.
    except Exception as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
