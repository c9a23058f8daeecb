"""A Decoder on disk: its config as JSON, its parameters in the checkpoints of a run."""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from flax import nnx

from attn_jax import models, nn, ops
from attn_jax.data._checks import fail
from attn_jax.data._files import read_file, write_whole
from attn_jax.models import Decoder, DecoderConfig, StackConfig, presets
from attn_jax.train import Checkpointer

FORMAT = "attn_jax config, version 1"
Config = StackConfig | nn.AttentionConfig


def save_config(config: Config, path: str | os.PathLike[str]) -> None:
    """Write the config of a model or a layer as JSON, whole or not at all.

    Configs are written field by field; one inside another, such as a mechanism, with
    the name of its class, a function, such as a feature map, by its name in
    `attn_jax.ops`.

    Raises:
      ValueError: a field holds what has no name there, such as a function of yours.
    """
    content = {"format": FORMAT, "config": _encoded("config", config)}
    write_whole(Path(path).expanduser(), json.dumps(content, indent=1) + "\n")


def load_config(name: str | os.PathLike[str]) -> DecoderConfig:
    """The config of a Decoder: a preset by its name, or what `save_config` wrote.

    Args:
      name: a row of `attn_jax.models.presets`, or the path of a file.

    Raises:
      FileNotFoundError: there is neither such a preset nor such a file.
      ValueError: it isn't the config of a Decoder.
    """
    if os.fspath(name) in presets:
        return _checked(name, presets[os.fspath(name)])
    path = Path(name).expanduser()
    if not path.is_file():
        expected = f"a file that save_config wrote, or one of {', '.join(presets)}"
        fail("config", repr(os.fspath(name)), expected, "pass one", FileNotFoundError)
    return _checked(name, read_config(path))


def read_config(path: str | os.PathLike[str]) -> Config:
    """The config of a model of any kind, from a file that `save_config` wrote.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it isn't the config of a model or an attention layer.
    """
    path = Path(path).expanduser()
    try:
        content = json.loads(read_file("config", path))
        form, config = content["format"], content["config"]
        if form != FORMAT:
            raise ValueError(f"format {form!r}")
        found = _decoded(config)
        if not isinstance(found, Config):
            raise TypeError(f"a {type(found).__name__}")
        return found
    except (ValueError, KeyError, TypeError) as error:
        got = f"no config ({type(error).__name__}: {error})"
        remedy = "write it anew with save_config, with this version of attn_jax"
        fail(f"config ({path})", got, "what save_config wrote", remedy)


def load_decoder(
    checkpoints: str | os.PathLike[str],
    config: DecoderConfig,
    *,
    step: int | None = None,
) -> Decoder:
    """A Decoder with the parameters of a run; its optimizer's state is not read.

    Args:
      checkpoints: the directory of a run's `Checkpointer`, whose states are those of
        `attn_jax.train.init_train_state(nnx.state(decoder), ...)`.
      config: of the Decoder that was trained.
      step: of the checkpoint; None is the latest.

    Raises:
      FileNotFoundError: there is no such directory or step.
      CheckpointMismatchError: the parameters are not those of such a Decoder; all that
        differs is listed.
    """
    return restore(checkpoints, lambda: Decoder(config, rngs=nnx.Rngs(0)), step=step)


def restore(
    checkpoints: str | os.PathLike[str],
    build: Callable[[], Any],
    *,
    step: int | None = None,
) -> Any:
    """What `build` makes, with the parameters of a run; no initial value is drawn."""
    directory = os.fspath(checkpoints)
    if "://" not in directory and not Path(directory).expanduser().is_dir():
        expected = "a directory with numbered checkpoints"
        remedy = "pass that of a run, such as runs/NAME/checkpoints/MODEL"
        fail("checkpoints", repr(directory), expected, remedy, FileNotFoundError)
    graph, params = nnx.split(nnx.eval_shape(build))
    with Checkpointer(os.path.expanduser(directory)) as checkpointer:
        return nnx.merge(graph, checkpointer.restore_params(params, step=step))


def _checked(name: str | os.PathLike[str], config: Any) -> DecoderConfig:
    if not isinstance(config, DecoderConfig):
        got = f"{os.fspath(name)!r}, a {type(config).__name__}"
        fail("config", got, "a DecoderConfig", "pass that of a causal language model")
    return config


def _encoded(where: str, value: Any) -> Any:
    """A value of a config as JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [_encoded(f"{where}[{i}]", each) for i, each in enumerate(value)]
    kind = type(value)
    if _config_class(kind.__name__) is kind:
        named = {
            each.name: _encoded(f"{where}.{each.name}", getattr(value, each.name))
            for each in dataclasses.fields(kind)
        }
        return {"class": kind.__name__, **named}
    function = getattr(value, "__name__", "")
    if function and getattr(ops, function, None) is value:
        return {"function": function}
    try:
        return {"dtype": jnp.dtype(value).name}
    except TypeError:
        expected = "a number, text, a dtype, a config, or a function of attn_jax.ops"
        fail(where, repr(value), expected, "keep such a config in your own program")


def _decoded(value: Any) -> Any:
    """What `_encoded` made JSON of."""
    if isinstance(value, list):
        return tuple(map(_decoded, value))
    if not isinstance(value, dict):
        return value
    if "dtype" in value and len(value) == 1:
        return getattr(jnp, value["dtype"])
    if "function" in value:
        return getattr(ops, value["function"])
    named = {name: _decoded(each) for name, each in value.items() if name != "class"}
    found = _config_class(value["class"])
    if found is None:
        raise ValueError(f"no config is called {value['class']!r}")
    return found(**named)


def _config_class(name: str) -> Any:
    """A public config by the name of its class; None where there is none."""
    found = getattr(nn, name, None) or getattr(models, name, None)
    return found if dataclasses.is_dataclass(found) else None
