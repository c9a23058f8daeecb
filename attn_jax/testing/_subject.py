"""A function under test: where its arrays have time, how it is run and disturbed."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BIG_ID = np.iinfo(np.int32).max


class Subject:
    """A function and its inputs; what comes out of it is seen as rows x time x rest.

    A row is an index on the first axis of every array, where time stands behind it; in
    arrays without such an axis there is one row.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        inputs: Sequence[Any],
        *,
        axis: int | None,
        out_axis: int | None,
        jit: bool,
    ):
        _check_call(f, inputs)
        self.inputs = tuple(_as_array(i, x) for i, x in enumerate(inputs))
        self.floating = [i for i, x in enumerate(self.inputs) if _is_float(x)]
        vectors = -3 if len(self.floating) > 1 else -2
        self.axes = [
            _from_front(
                (vectors if _is_float(x) else -1) if axis is None else axis, x, "axis"
            )
            for x in self.inputs
        ]
        if out_axis is None:
            out_axis = -2 if not self.floating else vectors if axis is None else axis
        self.out_axis = out_axis
        self.t = _common_length(self.inputs, self.axes)
        self.rows = _common_rows(self.inputs, self.axes)
        self.random = np.random.default_rng(0)
        self.dtype: Any = None  # of the output, once there is one
        self._call = jax.jit(lambda *arrays: f(*arrays)) if jit else f
        self._pull = jax.jit(self._pullback) if jit else self._pullback

    def run(self, *arrays: Any) -> np.ndarray:
        """The output, rows x time x rest, in float64."""
        out = self.seen(self._output(*arrays))
        t = arrays[0].shape[self.axes[0]]
        if out.shape[1] != t:
            raise ValueError(
                f"f: returned {out.shape[1]} entries on axis {self.out_axis} for {t} "
                "tokens; expected as many; say where time stands with out_axis="
            )
        return out

    def seen(self, out: Any) -> np.ndarray:
        """An output of the function, or of its decoding, in the same way."""
        self.dtype = out.dtype
        return self._seen(out, self.out_axis, "out_axis")

    def gradients(self, where: np.ndarray, *arrays: Any) -> list[np.ndarray]:
        """Of a random sum of the outputs at `where`, for each floating input."""
        if not self.floating:
            return []
        out = self._output(*arrays)
        # Drawn anew from a seed of its own: the same sum at every call.
        weights = np.random.default_rng(1).normal(size=out.shape)
        at = _from_front(self.out_axis, out, "out_axis")
        cotangent = np.where(self._spread(where, out.ndim, at), weights, 0)
        grads = self._pull(jnp.asarray(cotangent, out.dtype), *arrays)
        return [
            self._seen(grad, self.axes[i], "axis")
            for i, grad in zip(self.floating, grads, strict=True)
        ]

    def changed(
        self, where: np.ndarray, scale: float, inputs: Sequence[Any] | None = None
    ) -> list[jax.Array]:
        """The inputs with other tokens at `where`: rows x time.

        Vectors are drawn anew, times the scale; an id becomes another one of those that
        the input holds, or one that no vocabulary has where the scale isn't finite.
        """
        return [
            jnp.where(
                self._spread(where, x.ndim, axis),
                self._vectors(x, scale) if _is_float(x) else self._ids(x, scale),
                x,
            )
            for x, axis in zip(inputs or self.inputs, self.axes, strict=True)
        ]

    def cut(self, start: int, stop: int) -> list[jax.Array]:
        """The inputs' tokens from start to stop."""
        return [
            jax.lax.slice_in_dim(x, start, stop, axis=axis)
            for x, axis in zip(self.inputs, self.axes, strict=True)
        ]

    def per_token(self, values: np.ndarray) -> jax.Array:
        """rows x time as an array with the first input's axes up to time."""
        shape = self.inputs[0].shape[: self.axes[0]] + values.shape[-1:]
        values = self._spread(values, len(shape), len(shape) - 1)
        return jnp.asarray(np.broadcast_to(values, shape))

    def _output(self, *arrays: Any) -> Any:
        out = self._call(*arrays)
        if not hasattr(out, "shape"):
            raise TypeError(
                f"f: returned {type(out).__name__}; expected one array; pick it out, "
                "e.g. lambda *arrays: f(*arrays)[0]"
            )
        return out

    def _pullback(self, cotangent: Any, *arrays: Any) -> Any:
        def of_floating(*floating: Any) -> Any:
            every = list(arrays)
            for i, x in zip(self.floating, floating, strict=True):
                every[i] = x
            return self._output(*every)

        return jax.vjp(of_floating, *(arrays[i] for i in self.floating))[1](cotangent)

    def _seen(self, x: Any, axis: int, name: str) -> np.ndarray:
        x = np.asarray(x).astype(np.float64)
        at = _from_front(axis, x, name)
        if self.rows > 1 and (at == 0 or x.shape[0] != self.rows):
            raise ValueError(
                f"f: returned shape {x.shape} for {self.rows} rows of inputs; expected "
                f"the rows on the first axis and time on axis {axis}; say where time "
                "stands with out_axis="
            )
        t = x.shape[at]
        x = np.moveaxis(x, at, 1 if self.rows > 1 else 0)
        return x.reshape(self.rows, t, -1)

    def _spread(self, values: np.ndarray, ndim: int, at: int) -> np.ndarray:
        """rows x time, with the axes of an array whose time stands on axis `at`."""
        shape = [1] * ndim
        shape[at] = values.shape[-1]
        if self.rows > 1:
            shape[0] = self.rows
        return values.reshape(shape)

    def _vectors(self, x: jax.Array, scale: float) -> np.ndarray:
        most = float(jnp.finfo(x.dtype).max)
        drawn = self.random.normal(size=x.shape) * scale
        return np.clip(drawn, -most, most).astype(x.dtype)

    def _ids(self, x: jax.Array, scale: float) -> np.ndarray:
        if not np.isfinite(scale):
            return np.full(x.shape, min(BIG_ID, jnp.iinfo(x.dtype).max), x.dtype)
        known = np.unique(np.asarray(x))
        if len(known) < 2:
            raise ValueError(
                f"tokens: got the id {known} alone; expected two ids at least, since "
                "one is changed into another"
            )
        # Up for one scale and down for another, so that two scales give two ids.
        step = 1 if scale == 1 else len(known) - 1
        return known[(np.searchsorted(known, np.asarray(x)) + step) % len(known)]


def _check_call(f: Any, inputs: Sequence[Any]) -> None:
    if not callable(f):
        raise TypeError(
            f"f: got {type(f).__name__}; expected a function that takes arrays and "
            "returns one; pass it first, then the arrays it is called with"
        )
    if not inputs:
        raise ValueError(
            "inputs: got none; expected the arrays that f is called with: q, k, v, or "
            "one array of tokens"
        )


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _as_array(i: int, x: Any) -> jax.Array:
    if not hasattr(x, "dtype"):
        raise TypeError(
            f"inputs: number {i} is {type(x).__name__}; expected an array; convert it "
            "with jnp.asarray"
        )
    return jnp.asarray(x)


def _from_front(axis: int, x: Any, name: str) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(
            f"{name}: {axis} is no axis of an array of shape {x.shape}; expected the "
            f"axis on which time stands; say which with {name}="
        )
    return axis % x.ndim


def _common_length(inputs: Sequence[Any], axes: Sequence[int]) -> int:
    lengths = [x.shape[axis] for x, axis in zip(inputs, axes, strict=True)]
    if len(set(lengths)) > 1 or lengths[0] < 2:
        raise ValueError(
            f"inputs: got {lengths} tokens on axes {list(axes)} of shapes "
            f"{[x.shape for x in inputs]}; expected the same number everywhere, 2 at "
            "least; say where time stands with axis="
        )
    return lengths[0]


def _common_rows(inputs: Sequence[Any], axes: Sequence[int]) -> int:
    rows = {x.shape[0] if axis else 1 for x, axis in zip(inputs, axes, strict=True)}
    return max(1, rows.pop()) if len(rows) == 1 else 1
