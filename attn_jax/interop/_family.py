"""A family of models in other libraries' files: its names, its layouts, its config."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NoReturn

import numpy as np

from attn_jax.nn import Softmax

Path = tuple[Any, ...]
Arrays = dict[str, np.ndarray]

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
# model_type -> what reads it.
KNOWN = {"bert": "load_encoder", "gpt2": "load_decoder"}
ACTIVATIONS = {
    "gelu": "gelu_exact",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
}
# The first of those that are one function.
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
LEAVES = {"kernel": "weight", "scale": "weight", "bias": "bias"}
# How a model computes, which no file says.
COMPUTED = frozenset({"mechanism", "scan_layers", "remat", "dtype", "param_dtype"})


@dataclass(frozen=True, kw_only=True)
class Family:
    """Models that other libraries keep as config.json and model.safetensors.

    A part is written as its attributes with dots between.

    Attributes:
      title: what its models are called.
      noun: what ours is called, "encoder" or "decoder".
      features: what all its models have, in words.
      model, config: our classes.
      read_config: config.json and the names in the file -> our config.
      write_config: our config -> config.json.
      fixed: fields of our config that are the same in all models of the family.
      said: fields of our config that config.json says.
      layer: name of a layer in the file, with {} for its number.
      block: part of a block of ours -> its name in a layer of the file.
      parts: other parts -> their names.
      arrays: parameters that are in no such part -> their names.
      out_first: whether a kernel stands in the file as (out, in).
      heads: parts that a model may have and a file lack.
      unused: whether a file may have an array that our model lacks.
      unpack: the file's arrays by the names above, one a parameter.
      pack: the reverse.
    """

    title: str
    noun: str
    features: str
    model: type
    config: type
    read_config: Callable[[Mapping[str, Any], set[str]], Any]
    write_config: Callable[[Any], dict[str, Any]]
    fixed: Mapping[str, Any]
    said: frozenset[str]
    layer: str
    block: Mapping[str, str]
    parts: Mapping[str, str]
    arrays: Mapping[str, str]
    out_first: Callable[[Path], bool]
    heads: tuple[str, ...]
    unused: Callable[[str], bool]
    unpack: Callable[[Mapping[str, np.ndarray]], Arrays]
    pack: Callable[[Arrays, Any], Arrays]

    def places(self, path: Path, num_layers: int) -> tuple[list[str], bool]:
        """What a parameter is called in a file, and whether it stands for all layers.

        One name, one a layer, or none where a file has no such thing.
        """
        if path[:2] != ("stack", "blocks"):
            name = self._other(path)
            return [] if name is None else [name], False
        layer = path[2] if isinstance(path[2], int) else None
        inner = path[2:] if layer is None else path[3:]
        part = self.block.get(".".join(inner[:-1]))
        if part is None:
            return [], False
        name = f"{self.layer}.{part}.{LEAVES[inner[-1]]}"
        layers = range(num_layers) if layer is None else [layer]
        return [name.format(i) for i in layers], layer is None

    def is_head(self, path: Path) -> bool:
        return ".".join(map(str, path)).startswith(self.heads)

    def file_shape(self, path: Path, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that a parameter of this shape has in a file."""
        if path[-1] == "kernel":
            # Heads are inputs of the output projection, outputs of the others.
            inputs = 2 if path[-2] == "output" else 1
            plain = math.prod(shape[:inputs]), math.prod(shape[inputs:])
            return plain[::-1] if self.out_first(path) else plain
        if path[-1] == "bias":
            return (math.prod(shape),)
        return shape

    def from_file(
        self, array: np.ndarray, path: Path, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """An array of a file as our parameter; None where it does not fit."""
        if path[-1] == "positions" and array.shape[1:] == shape[1:]:
            # A shorter model has the first of them.
            array = array[: shape[0]]
        if array.shape != self.file_shape(path, shape):
            return None
        return (array.T if self._turned(path) else array).reshape(shape)

    def to_file(self, array: np.ndarray, path: Path) -> np.ndarray:
        """Our parameter as an array of a file."""
        shape = self.file_shape(path, array.shape)
        if self._turned(path):
            return array.reshape(shape[::-1]).T
        return array.reshape(shape)

    def check_described(self, config: Any) -> None:
        """Raises unless config.json can say all of a config."""
        wrong = [
            each.name
            for each in fields(self.config)
            if each.name not in self.said | COMPUTED
            and getattr(config, each.name) != self.fixed.get(each.name, each.default)
        ]
        if config.activation not in THEIR_ACTIVATIONS:
            wrong.append("activation")
        if config.mechanism != Softmax():
            wrong.append("mechanism")
        if wrong:
            what = ", ".join(f"{name} = {getattr(config, name)!r}" for name in wrong)
            raise ValueError(
                f"{self.noun}: got {what}; expected one of the {self.title} family, "
                f"which {CONFIG} can describe: {self.features}, softmax attention; "
                "save_model of attn_jax.interop.model_files writes any other"
            )

    def _other(self, path: Path) -> str | None:
        name = ".".join(map(str, path))
        if name in self.arrays:
            return self.arrays[name]
        part, leaf = self.parts.get(".".join(path[:-1])), LEAVES.get(path[-1])
        return None if part is None or leaf is None else f"{part}.{leaf}"

    def _turned(self, path: Path) -> bool:
        return path[-1] == "kernel" and self.out_first(path)


def check_type(config: Mapping[str, Any], wanted: str, title: str) -> None:
    """Raises for a model of another family than `title`, with what is known."""
    kind = config.get("model_type", wanted)
    if kind != wanted:
        refuse(
            f"model_type {kind!r}",
            f"{wanted!r}, of the {title} family; known are "
            + ", ".join(f"{name!r} ({reader})" for name, reader in KNOWN.items())
            + ", and what save_model wrote (load_model)",
        )


def sizes(
    config: Mapping[str, Any], names: Mapping[str, str], title: str
) -> dict[str, Any]:
    """Fields of our config from config.json: their name -> ours."""
    missing = [name for name in names if name not in config]
    if missing:
        refuse(f"none of {', '.join(missing)}", f"the sizes of a {title} model")
    return {ours: config[theirs] for theirs, ours in names.items()}


def activation(config: Mapping[str, Any], name: str, default: str) -> str:
    """Ours, of the field that names theirs."""
    theirs = config.get(name, default)
    if theirs not in ACTIVATIONS:
        known = ", ".join(map(repr, ACTIVATIONS))
        refuse(f"{name} {theirs!r}", f"one of {known}")
    return ACTIVATIONS[theirs]


def refuse(got: str, expected: str) -> NoReturn:
    raise ValueError(f"{CONFIG}: got {got}; expected {expected}")
