"""Encoders of the BERT family: weights, config and tokenizer in a local directory.

    config.json         sizes
    model.safetensors   weights
    tokenizer.json      the tokenizer, for which the package `tokenizers` is needed

Nothing is downloaded.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array, Bool, Int32

from attn_jax.data.vocabulary import import_tokenizers
from attn_jax.interop import _bert, _safetensors
from attn_jax.models import Encoder, EncoderConfig
from attn_jax.nn import Softmax
from attn_jax.nn._checks import check_sizes

LOG = logging.getLogger("attn_jax")
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
# What config.json says of an encoder, and how it computes, which no file says.
SAID = {
    *_bert.SIZES.values(),
    *("num_types", "norm_epsilon", "activation", "dropout_rate"),
    *("pooling", "num_classes", "masked_lm"),
    *("mechanism", "scan_layers", "remat", "dtype", "param_dtype"),
}


def load_encoder(
    directory: str | PathLike[str], *, rngs: nnx.Rngs | None = None, **changes: Any
) -> Encoder:
    """An `Encoder` with the weights of a directory.

        encoder = load_encoder("minilm")
        classifier = load_encoder("minilm", max_length=128, num_classes=2)
        mechanism = Partial(causal=False)
        partial = load_encoder("minilm", max_length=128, mechanism=mechanism)

    Dropout of attention weights, which such models are trained with, is left out: an
    `Encoder` drops the outputs of its layers.

    Args:
      directory: with config.json and model.safetensors.
      rngs: of what the file does not have: a head that was asked for, a mechanism's own
        parameters; None is `nnx.Rngs(0)`. What these are is logged at level INFO by the
        logger "attn_jax".
      changes: fields of `EncoderConfig` that are to differ from the file's. A shorter
        max_length takes the first positions.

    Raises:
      ValueError: files that are not there, are of another kind of model, or do not fit
        the config.
    """
    directory = _directory(directory, CONFIG, WEIGHTS)
    there = _safetensors.read(directory / WEIGHTS)
    arrays = {_bert.plain_name(name): array for name, array in there.items()}
    given = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
    config = replace(_bert.encoder_config(given, set(arrays)), **changes)
    key = (nnx.Rngs(0) if rngs is None else rngs).params()

    def build() -> Encoder:
        return Encoder(config, rngs=nnx.Rngs(key))

    graph, state = nnx.split(nnx.eval_shape(build))
    params: dict[Any, Any] = flatten_dict(nnx.to_pure_dict(state))
    found, used, initial = {}, set(), []
    for path, value in params.items():
        names, stacked = _places(path, config.num_layers)
        absent = [name for name in names if name not in arrays]
        if not names or (absent and path[0] in _bert.HEADS):
            initial.append(path)
            continue
        if absent:
            raise ValueError(
                f"{directory / WEIGHTS}: got no {absent[0]}; expected the weights of "
                f"{CONFIG}: {config.num_layers} layers, num_types = {config.num_types}"
            )
        shape = value.shape[1:] if stacked else value.shape
        parts = [_fitting(arrays[name], name, path, shape) for name in names]
        whole = np.stack(parts).reshape(value.shape)
        found[path] = jnp.asarray(whole, value.dtype)
        used |= set(names)
    _check_used(directory, set(arrays) - used)
    if initial:
        names = [".".join(map(str, path)) for path in initial]
        LOG.info("load_encoder: initial values in %s", ", ".join(names))
        found |= zip(initial, _initial_values(build, initial), strict=True)
    nnx.replace_by_pure_dict(state, unflatten_dict(found))
    return nnx.merge(graph, state)


def save_encoder(encoder: Encoder, directory: str | PathLike[str]) -> None:
    """Writes config.json and model.safetensors, for `load_encoder` and other libraries.

    Args:
      encoder: one of the BERT family: learned positions, post-norm, biases, softmax.
      directory: made where it is not there.

    Raises:
      ValueError: an encoder that such a file can't describe, with the fields.
    """
    params: dict[Any, Any] = flatten_dict(nnx.to_pure_dict(nnx.state(encoder)))
    config = encoder.config
    _check_family(config)
    arrays = {}
    for path, value in params.items():
        names, stacked = _places(path, config.num_layers)
        layers = np.asarray(value) if stacked else [np.asarray(value)]
        for name, one in zip(names, layers, strict=True):
            arrays[name] = _bert.to_file(one, path)
    if config.masked_lm or config.num_classes is not None:
        inner = {name for name in arrays if not name.startswith(_bert.HEAD_NAMES[1:])}
        arrays = {("bert." + n if n in inner else n): x for n, x in arrays.items()}
    directory = Path(directory).expanduser()
    directory.mkdir(parents=True, exist_ok=True)
    _safetensors.write(directory / WEIGHTS, arrays)
    text = json.dumps(_bert.bert_config(config), indent=2)
    (directory / CONFIG).write_text(text + "\n", encoding="utf-8")


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
        directory = Path(directory).expanduser()
        directory.mkdir(parents=True, exist_ok=True)
        self._tokenizer.save(str(directory / TOKENIZER))


def load_tokenizer(directory: str | PathLike[str]) -> Tokenizer:
    """The tokenizer of a directory.

    Raises:
      ImportError: without the package tokenizers, which is in the extra "text".
      ValueError: no tokenizer.json, or one that can't be read.
    """
    tokenizers = import_tokenizers()
    path = _directory(directory, TOKENIZER) / TOKENIZER
    try:
        return Tokenizer(tokenizers.Tokenizer.from_file(str(path)))
    # The package raises nothing narrower.
    except Exception as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error


def _initial_values(
    build: Callable[[], Encoder], paths: Sequence[tuple[Any, ...]]
) -> Sequence[Array]:
    """Those parameters of a new encoder; compiled, so that no others are drawn."""

    @jax.jit
    def draw() -> list[Array]:
        params: dict[Any, Any] = flatten_dict(nnx.to_pure_dict(nnx.state(build())))
        return [params[path] for path in paths]

    return draw()


def _directory(directory: str | PathLike[str], *names: str) -> Path:
    """A directory that has these files."""
    path = Path(directory).expanduser()
    for name in names:
        if not (path / name).is_file():
            raise ValueError(
                f"directory: got {path}, which has no {name}; expected one with "
                f"{CONFIG}, {WEIGHTS} and, for the tokenizer, {TOKENIZER}; nothing is "
                "downloaded here, unpack the model's files first"
            )
    return path


def _places(path: tuple[Any, ...], num_layers: int) -> tuple[list[str], bool]:
    """What a parameter is called in a file, and whether it stands for all layers.

    One name, one a layer, or none where a file has no such thing.
    """
    place = _bert.source(path)
    if place is None:
        return [], False
    name, layer = place
    stacked = "{}" in name and layer is None
    layers = range(num_layers) if stacked else [layer]
    return [name.format(i) for i in layers], stacked


def _fitting(
    array: np.ndarray, name: str, path: tuple[Any, ...], shape: tuple[int, ...]
) -> np.ndarray:
    found = _bert.from_file(array, path, shape)
    if found is None:
        raise ValueError(
            f"{name}: got shape {array.shape}; expected "
            f"{_bert.file_shape(path, shape)}, as the config says; change no sizes of "
            "parts that the file has"
        )
    return found


def _check_used(directory: Path, rest: set[str]) -> None:
    """All weights but those of heads have a place in the encoder."""
    left = sorted(
        name for name in rest - {_bert.COUNTED} if not name.startswith(_bert.HEAD_NAMES)
    )
    if left:
        raise ValueError(
            f"{directory / WEIGHTS}: got {', '.join(left[:3])} and {len(left)} such "
            "weights in all that this encoder has no place for; expected those of a "
            "BERT encoder with as many layers and types, and a mechanism with queries "
            "and keys"
        )


def _check_family(config: EncoderConfig) -> None:
    """Raises unless config.json can say all of a config."""
    wrong = [
        each.name
        for each in fields(EncoderConfig)
        if each.name not in SAID
        and getattr(config, each.name) != _bert.FAMILY.get(each.name, each.default)
    ]
    if config.activation not in _bert.ACTIVATIONS.values():
        wrong.append("activation")
    if config.mechanism != Softmax():
        wrong.append("mechanism")
    if wrong:
        what = ", ".join(f"{name} = {getattr(config, name)!r}" for name in wrong)
        raise ValueError(
            f"encoder: got {what}; expected an encoder of the BERT family, which "
            f"{CONFIG} can describe: learned positions, norms after the layers, "
            "biases, softmax attention"
        )
