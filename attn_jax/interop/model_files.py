"""Any model of this library, or a layer, as config.json and model.safetensors.

    save_model(model, "exported")
    model = load_model("exported")

The names in the file are those of the model's own parameters, the config is that of
`decoder_files.save_config`: nothing but NumPy is needed to read the weights elsewhere.
The same two functions read and write what other libraries do, see `ARCHITECTURES`.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict

from attn_jax.interop import _safetensors, huggingface
from attn_jax.interop._directory import existing, made, read_json, read_weights
from attn_jax.interop._family import CONFIG, WEIGHTS
from attn_jax.interop._safetensors import read as read_arrays
from attn_jax.interop._safetensors import write as write_arrays
from attn_jax.interop.decoder_files import (
    FORMAT,
    Config,
    read_config,
    restore,
    save_config,
)
from attn_jax.models import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
)
from attn_jax.nn import Attention, AttentionConfig
from attn_jax.nn._table import Table

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "load_checkpoint",
    "load_model",
    "read_arrays",
    "save_model",
    "write_arrays",
]

Model = Decoder | Encoder | EncoderDecoder | Attention
_MODELS: dict[type, Any] = {
    DecoderConfig: Decoder,
    EncoderConfig: Encoder,
    EncoderDecoderConfig: EncoderDecoder,
    AttentionConfig: Attention,
}


class Architecture(NamedTuple):
    """How a kind of directory is read and written."""

    load: Callable[..., Any]
    save: Callable[..., None]


def load_model(
    directory: str | PathLike[str], *, rngs: nnx.Rngs | None = None, **changes: Any
) -> Model:
    """The model of a directory, whoever wrote it.

    Args:
      directory: with config.json and model.safetensors.
      rngs: of what the files of other libraries do not have, see `load_encoder`.
      changes: fields of the config that are to differ from the file's.

    Raises:
      ValueError: files that are not there, an architecture that is not in
        `ARCHITECTURES`, or weights that do not fit the config.
    """
    path = existing(directory, CONFIG)
    given = read_json(path / CONFIG)
    ours = given.get("format") == FORMAT
    name = "attn_jax" if ours else given.get("model_type", "no model_type")
    return ARCHITECTURES[name].load(path, rngs=rngs, **changes)


def save_model(
    model: Model, directory: str | PathLike[str], *, architecture: str = "attn_jax"
) -> None:
    """Writes config.json and model.safetensors, for `load_model`.

    A checkpoint of a run is exported by

        save_model(load_checkpoint("runs/NAME/checkpoints/MODEL", config), "exported")

    Args:
      model: or an attention layer; with any mechanism, parameters of any dtype.
      directory: made where it is not there.
      architecture: a row of `ARCHITECTURES`; those of other libraries have no room for
        most models.

    Raises:
      TypeError: something else, such as a `Stack`, which no config alone describes.
      ValueError: an unknown architecture, or a model that it can't describe.
    """
    ARCHITECTURES[architecture].save(model, directory)


def load_checkpoint(
    checkpoints: str | PathLike[str], config: Config, *, step: int | None = None
) -> Model:
    """A model of any kind with the parameters of a run; see `load_decoder`.

    Args:
      checkpoints: the directory of a run's `Checkpointer`.
      config: of the model that was trained.
      step: of the checkpoint; None is the latest.

    Raises:
      FileNotFoundError, CheckpointMismatchError: as `load_decoder`.
    """
    return restore(checkpoints, lambda: _build(config), step=step)


def _build(config: Config) -> Any:
    if type(config) not in _MODELS:
        raise TypeError(
            f"config: got {type(config).__name__}; expected one of "
            f"{', '.join(kind.__name__ for kind in _MODELS)}; pass that of the model, "
            "model.config"
        )
    return _MODELS[type(config)](config, rngs=nnx.Rngs(0))


def _load(directory: Path, *, rngs: nnx.Rngs | None = None, **changes: Any) -> Any:
    """What `_save` wrote; everything is in the file, so that nothing is drawn."""
    config = replace(read_config(directory / CONFIG), **changes)
    arrays = read_weights(directory)
    graph, state = nnx.split(nnx.eval_shape(lambda: _build(config)))
    params: dict[Any, Any] = flatten_dict(nnx.to_pure_dict(state))
    wrong = _differences({_name(path): x for path, x in params.items()}, arrays)
    if wrong:
        raise ValueError(
            f"{os.fspath(directory / WEIGHTS)}: got {'; '.join(wrong[:5])}"
            f"{f' and {len(wrong) - 5} more' if len(wrong) > 5 else ''}; expected the "
            f"arrays of {CONFIG}; change no sizes of what the file has"
        )
    found = {
        path: jnp.asarray(arrays[_name(path)], value.dtype)
        for path, value in params.items()
    }
    nnx.replace_by_pure_dict(state, unflatten_dict(found))
    return nnx.merge(graph, state)


def _save(model: Any, directory: str | PathLike[str]) -> None:
    kind = _MODELS.get(type(getattr(model, "config", None)))
    if kind is None or not isinstance(model, kind):
        raise TypeError(
            f"model: got {type(model).__name__}; expected one of "
            f"{', '.join(kind.__name__ for kind in _MODELS.values())}, which "
            "load_model builds of their configs; write_arrays writes the arrays of "
            "anything else"
        )
    path = made(directory)
    params: dict[Any, Any] = flatten_dict(nnx.to_pure_dict(nnx.state(model)))
    arrays = {_name(path): np.asarray(value) for path, value in params.items()}
    # The config first: it raises for what it can't say.
    save_config(model.config, path / CONFIG)
    _safetensors.write(path / WEIGHTS, arrays)


def _name(path: tuple[Any, ...]) -> str:
    """A parameter's attributes with dots between."""
    return ".".join(map(str, path))


def _differences(expected: dict[str, Any], arrays: dict[str, Any]) -> list[str]:
    """What a file lacks, has besides, or has in another shape or kind of numbers."""
    lacking = [f"no {name}" for name in expected if name not in arrays]
    besides = [f"{name}, which has no place" for name in arrays if name not in expected]
    other = [
        f"{name} of shape {arrays[name].shape} in place of {value.shape}"
        for name, value in expected.items()
        if name in arrays and arrays[name].shape != value.shape
    ]
    kinds = [
        f"{name} of {arrays[name].dtype} in place of {value.dtype}"
        for name, value in expected.items()
        if name in arrays
        and jnp.issubdtype(arrays[name].dtype, jnp.floating)
        != jnp.issubdtype(value.dtype, jnp.floating)
    ]
    return lacking + besides + other + kinds


ARCHITECTURES: Table[Architecture] = Table(
    "architecture",
    {
        "attn_jax": Architecture(_load, _save),
        "bert": Architecture(huggingface.load_encoder, huggingface.save_encoder),
        "gpt2": Architecture(huggingface.load_decoder, huggingface.save_decoder),
    },
)
