"""Models of a `Family` in a directory: config.json and model.safetensors."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array

from attn_jax.interop import _safetensors
from attn_jax.interop._family import CONFIG, WEIGHTS, Arrays, Family

LOG = logging.getLogger("attn_jax")
INDEX = f"{WEIGHTS}.index.json"
TOKENIZER = "tokenizer.json"


def load(
    family: Family,
    directory: str | PathLike[str],
    rngs: nnx.Rngs | None,
    changes: dict[str, Any],
) -> Any:
    """A model with the weights of a directory, see `load_encoder`."""
    path = existing(directory, CONFIG)
    arrays = family.unpack(read_weights(path))
    given = read_json(path / CONFIG)
    config = replace(family.read_config(given, set(arrays)), **changes)
    key = (nnx.Rngs(0) if rngs is None else rngs).params()

    def build() -> Any:
        return family.model(config, rngs=nnx.Rngs(key))

    graph, state = nnx.split(nnx.eval_shape(build))
    params: dict[Any, Any] = flatten_dict(nnx.to_pure_dict(state))
    found, used, initial = {}, set(), []
    for place, value in params.items():
        names, stacked = family.places(place, config.num_layers)
        absent = [name for name in names if name not in arrays]
        if not names or (absent and family.is_head(place)):
            initial.append(place)
            continue
        if absent:
            raise ValueError(
                f"{path / WEIGHTS}: got no {absent[0]}; expected the weights of "
                f"{CONFIG}, {config.num_layers} layers, and of what was asked for "
                "besides"
            )
        shape = value.shape[1:] if stacked else value.shape
        parts = [_fitting(family, arrays[name], name, place, shape) for name in names]
        whole = np.stack(parts).reshape(value.shape)
        found[place] = jnp.asarray(whole, value.dtype)
        used |= set(names)
    _check_used(family, path, set(arrays) - used)
    if initial:
        names = [".".join(map(str, place)) for place in initial]
        what = f"load_{family.noun}"
        LOG.info("%s: initial values in %s", what, ", ".join(names))
        found |= zip(initial, _initial_values(build, initial), strict=True)
    nnx.replace_by_pure_dict(state, unflatten_dict(found))
    return nnx.merge(graph, state)


def save(family: Family, model: Any, directory: str | PathLike[str]) -> None:
    """Writes config.json and model.safetensors, see `save_encoder`."""
    if not isinstance(model, family.model):
        raise TypeError(
            f"{family.noun}: got {type(model).__name__}; expected one of class "
            f"{family.model.__name__}, which files of the {family.title} family "
            "describe; save_model of attn_jax.interop.model_files writes others"
        )
    config = model.config
    family.check_described(config)
    arrays: Arrays = {}
    for place, value in flatten_dict(nnx.to_pure_dict(nnx.state(model))).items():
        names, stacked = family.places(place, config.num_layers)
        layers = np.asarray(value) if stacked else [np.asarray(value)]
        for name, one in zip(names, layers, strict=True):
            arrays[name] = family.to_file(one, place)
    path = made(directory)
    _safetensors.write(path / WEIGHTS, family.pack(arrays, config))
    text = json.dumps(family.write_config(config), indent=2)
    (path / CONFIG).write_text(text + "\n", encoding="utf-8")


def existing(directory: str | PathLike[str], *names: str) -> Path:
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


def made(directory: str | PathLike[str]) -> Path:
    """A directory, which is made where it is not there."""
    path = Path(directory).expanduser()
    path.mkdir(parents=True, exist_ok=True)
    return path


def read_weights(directory: Path) -> Arrays:
    """All arrays of a directory: of one file, or of those that an index names."""
    if (directory / WEIGHTS).is_file() or not (directory / INDEX).is_file():
        return _safetensors.read(existing(directory, WEIGHTS) / WEIGHTS)
    try:
        files = set(read_json(directory / INDEX)["weight_map"].values())
    except (KeyError, AttributeError) as error:
        raise ValueError(
            f"{directory / INDEX}: got no weight_map; expected one that says in which "
            "file each array is"
        ) from error
    arrays: Arrays = {}
    for name in sorted(files):
        arrays |= _safetensors.read(existing(directory, name) / name)
    return arrays


def read_json(path: Path) -> dict[str, Any]:
    """The object that a file of JSON holds."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{path}: got no JSON ({error}); expected an object"
        ) from error
    if not isinstance(found, dict):
        raise ValueError(f"{path}: got {type(found).__name__}; expected an object")
    return found


def _initial_values(
    build: Callable[[], Any], paths: Sequence[tuple[Any, ...]]
) -> Sequence[Array]:
    """Those parameters of a new model; compiled, so that no others are drawn."""

    @jax.jit
    def draw() -> list[Array]:
        params: dict[Any, Any] = flatten_dict(nnx.to_pure_dict(nnx.state(build())))
        return [params[path] for path in paths]

    return draw()


def _fitting(
    family: Family,
    array: np.ndarray,
    name: str,
    place: tuple[Any, ...],
    shape: tuple[int, ...],
) -> np.ndarray:
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(
            f"{name}: got {array.dtype}; expected floating numbers, as weights are; "
            "take the file of the model itself, not one of quantised weights"
        )
    found = family.from_file(array, place, shape)
    if found is None:
        raise ValueError(
            f"{name}: got shape {array.shape}; expected "
            f"{family.file_shape(place, shape)}, as the config says; change no sizes "
            "of parts that the file has"
        )
    return found


def _check_used(family: Family, directory: Path, rest: set[str]) -> None:
    """All weights but those of heads have a place in the model."""
    left = sorted(name for name in rest if not family.unused(name))
    if left:
        raise ValueError(
            f"{directory / WEIGHTS}: got {', '.join(left[:3])} and {len(left)} such "
            f"weights in all that this {family.noun} has no place for; expected those "
            f"of a {family.title} {family.noun} with as many layers and the parts that "
            f"{CONFIG} says, and a mechanism with queries and keys"
        )
