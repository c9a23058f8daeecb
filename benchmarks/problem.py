"""What is measured: a function, its inputs, and what it costs on paper."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

DIRECTIONS = ("forward", "both")


@dataclass(frozen=True)
class Size:
    """n tokens in each of `batch` rows; heads of `width` features; rank of factors."""

    n: int
    batch: int
    heads: int = 8
    width: int = 64
    rank: int = 8
    dtype: str = "float32"

    @property
    def d_model(self) -> int:
        return self.heads * self.width

    @property
    def qkv(self) -> tuple[int, int, int, int]:
        return (self.batch, self.n, self.heads, self.width)


class Case(NamedTuple):
    """An implementation of a mechanism.

    name: "softmax/attn_jax", as in the results.
    growth: the power of n that its time grows with, the number of tokens being fixed.
    build: makes its problem at a size; None where another process does.
    operations: of a forward pass, two for a multiply-add; None where nobody counts.
    backward: operations of the backward pass as a multiple of those.
    remote: whether it runs in the process of PyTorch.
    """

    name: str
    growth: int
    build: Callable[[Size], Any] | None
    operations: Callable[[Size], float] | None = None
    backward: float = 2.0
    remote: bool = False

    def flops(self, size: Size, direction: str) -> float | None:
        if self.operations is None:
            return None
        factor = 1.0 if direction == "forward" else 1.0 + self.backward
        return factor * self.operations(size)

    def longer(self, past: Mapping[str, Any], now: Mapping[str, Any]) -> float:
        """How many times the past call's time one of now takes, by n and batch."""
        return now["batch"] / past["batch"] * (now["n"] / past["n"]) ** self.growth


def draw(shape: tuple[int, ...], dtype: str, seed: int, scale: float = 1.0) -> Any:
    """Numbers from a normal distribution, the same for every library."""
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return (scale * values).astype(jnp.dtype(dtype))


@dataclass(frozen=True)
class JaxProblem:
    """A function of arrays and the shapes it is called with; every one has a gradient.

    shapes: (shape, scale) of each argument.
    output: shape of the result and of its cotangent.
    """

    function: Callable[..., Any]
    shapes: tuple[tuple[tuple[int, ...], float], ...]
    output: tuple[int, ...]
    dtype: str

    def program(self, direction: str) -> Any:
        """What is compiled: the function, or its value and all its gradients."""
        if direction == "forward":
            return lambda cotangent, *x: self.function(*x)

        def both(cotangent: Any, *x: Any) -> Any:
            out, pull = jax.vjp(self.function, *x)
            return out, pull(cotangent)

        return both

    @property
    def structs(self) -> list[jax.ShapeDtypeStruct]:
        shapes = [self.output, *(shape for shape, _ in self.shapes)]
        return [jax.ShapeDtypeStruct(shape, jnp.dtype(self.dtype)) for shape in shapes]

    @property
    def bytes(self) -> int:
        """Of all arguments and the cotangent."""
        return sum(math.prod(x.shape) * x.dtype.itemsize for x in self.structs)

    @cached_property
    def arguments(self) -> list[Any]:
        shapes = [(self.output, 1.0), *self.shapes]
        return [
            jax.device_put(draw(shape, self.dtype, seed, scale))
            for seed, (shape, scale) in enumerate(shapes)
        ]
