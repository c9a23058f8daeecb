"""Models and other libraries, each part imported on first use."""

import importlib
from types import ModuleType

_LAZY = (
    "attention_fn",
    "attention_weights",
    "decoder_files",
    "huggingface",
    "lm_eval",
    "model_files",
)

__all__ = [*_LAZY]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY:
        return importlib.import_module(f"attn_jax.interop.{name}")
    raise AttributeError(f"module 'attn_jax.interop' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
