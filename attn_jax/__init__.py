"""Attention mechanisms in JAX: one contract, one table, five papers.

`attn_jax.ops` holds pure functions on arrays and is imported at once; the other
packages load on first use, so that `import attn_jax` stays light.
"""

import importlib
from types import ModuleType

from attn_jax import ops
from attn_jax.ops.debugging import debug
from attn_jax.ops.masks import UnsupportedMaskError

__version__ = "0.1.0"

_LAZY = ("analysis", "data", "decoding", "interop", "models", "nn", "testing", "train")

__all__ = ["UnsupportedMaskError", "debug", "ops", *_LAZY]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY:
        return importlib.import_module(f"attn_jax.{name}")
    raise AttributeError(f"module 'attn_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
