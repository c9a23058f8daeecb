"""How an op is entered: what JAX would refuse in its own words is refused in ours."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from attn_jax.ops._shapes import check_array, check_rng, check_sizes, is_traced
from attn_jax.ops.masks import as_mask

F = TypeVar("F", bound=Callable[..., Any])

# Numbers among the keyword arguments, and what they have to be.
NUMBERS = {
    "base": "> 0",
    "eps": ">= 0",
    "logit_cap": "> 0",
    "scale": "",
    "strength": "",
}
# Ints >= 1 among them.
SIZES = ("bucket_size", "num_rounds")


def op(
    *static_argnames: str,
    optional: tuple[str, ...] = (),
    others: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """jit, after checks of what is no array, no mask and no number.

    Args:
      static_argnames: as in `jax.jit`.
      optional: arrays that may be None.
      others: positional arguments that are no arrays.
    """

    def decorate(function: F) -> F:
        compiled = jax.jit(function, static_argnames=static_argnames)
        names = [
            name
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name not in others
        ]
        every = tuple(inspect.signature(function).parameters)

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            given = dict(zip(every, args, strict=False)) | options
            for name in names:
                absent = name in optional and given.get(name) is None
                if name in given and not absent:
                    check_array(name, given[name])
            check_options(options)
            return compiled(*args, **options)

        for name in ("lower", "_cache_size"):
            setattr(call, name, getattr(compiled, name))
        return call  # pyright: ignore[reportReturnType]

    return decorate


def check_options(options: dict[str, Any]) -> None:
    """The keyword arguments that ops share: mask, bias, rng and numbers."""
    as_mask(options.get("mask"))
    if "rng" in options:
        check_rng(options["rng"])
    check_sizes(**{name: options[name] for name in SIZES if name in options})
    if options.get("bias") is not None:
        check_array("bias", options["bias"])
    for name in NUMBERS.keys() & options.keys():
        _check_number(name, options[name])


def _check_number(name: str, x: Any) -> None:
    """None, or a number, within its bound where its value is known."""
    if x is None or is_traced(x):
        return
    bound = NUMBERS[name]
    kind = f"a number {bound}".rstrip()
    if not hasattr(x, "dtype") and not isinstance(x, int | float):
        raise TypeError(f"{name}: got {type(x).__name__}; expected {kind}, or an array")
    if not bound:
        return
    values = np.asarray(x).astype(np.float64)
    if not np.all(values > 0 if bound == "> 0" else values >= 0):
        raise ValueError(
            f"{name}: got {values.min():g}; expected {kind}, or none at all"
        )
