"""What the papers measure, each part imported on first use."""

import importlib
from types import ModuleType

_LAZY = (
    "complexity",
    "eigen",
    "flops",
    "mixtures",
    "plots",
    "similarity",
    "weights",
)

__all__ = [*_LAZY]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY:
        return importlib.import_module(f"attn_jax.analysis.{name}")
    raise AttributeError(f"module 'attn_jax.analysis' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
