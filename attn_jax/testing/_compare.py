"""How far two results are apart, and which token of which row is to blame."""

from typing import Any

import jax.numpy as jnp
import numpy as np


def differences(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """The largest |got - want| of each row and token; infinite where one is NaN."""
    assert got.shape == want.shape, f"shape {got.shape}; expected {want.shape}"
    with np.errstate(invalid="ignore"):
        far = np.where(got == want, 0.0, np.abs(got - want))
    far = np.where(np.isnan(far), np.inf, far)
    return far.max(axis=-1, initial=0.0)


def size(x: np.ndarray) -> float:
    """The largest finite magnitude."""
    return float(np.abs(x[np.isfinite(x)]).max(initial=0.0))


def rounding(dtype: Any) -> float:
    """What two orders of the same sums may differ by, relative to the largest value."""
    return float(jnp.finfo(dtype).eps) ** (2 / 3)


def first(where: Any, far: np.ndarray) -> tuple[int, int] | None:
    """Row and token of the largest difference at `where`; None for no difference."""
    far = np.where(where, far, 0.0)
    if not np.any(far > 0):
        return None
    row, token = np.unravel_index(np.argmax(far), far.shape)
    return int(row), int(token)


def check_numbers(out: np.ndarray, where: np.ndarray, name: str) -> None:
    """A result that holds NaN can't be compared with another."""
    found = np.argwhere(np.isnan(out).any(axis=-1) & where)
    if len(found):
        row, token = found[0].tolist()
        raise AssertionError(
            f"{name}: the output at token {token}{of_row(row, out)} is NaN before "
            "anything was changed; expected numbers; look there first"
        )


def check_effect(effect: bool, name: str) -> None:
    """A function that ignores its inputs passes every test."""
    if not effect:
        raise AssertionError(
            f"{name}: no output moved when tokens changed; expected f to depend on its "
            "inputs, or nothing is tested; does it use them, and is the mask right?"
        )


def by(amount: float) -> str:
    return f"by {amount:.3g}" if np.isfinite(amount) else "to NaN or infinity"


def of_row(row: int, x: np.ndarray) -> str:
    return f" of row {row}" if len(x) > 1 else ""
