"""Does a function see the future?"""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from jaxtyping import Array

from attn_jax.testing._compare import (
    by,
    check_effect,
    check_numbers,
    differences,
    first,
    of_row,
    size,
)
from attn_jax.testing._subject import Subject

NAME = "assert_causal"
EVERY_TOKEN_UP_TO = 32


def assert_causal(
    f: Callable[..., Array],
    *inputs: Array | np.ndarray,
    axis: int | None = None,
    out_axis: int | None = None,
    positions: Sequence[int] | None = None,
    scales: Sequence[float] = (1.0, 1e4),
    gradients: bool = True,
    independent_rows: bool = True,
    tolerance: float = 0.0,
    jit: bool = True,
) -> None:
    """Fails where an output moves when a later token changes.

        out_i(x) = out_i(x')  to the bit, for i < t, where x' differs from x at token t
        d out_i / d x_j = 0                   for i < j

    The second line finds what the first can miss: a leak too small to survive rounding.
    Rows of a batch are held to the same: nothing in a row moves with another row.

        assert_causal(f, q, k, v)     f(q, k, v) -> *b t h e, time on axis -3
        assert_causal(f, x)           f(x: *b t m) -> *b t m, time on axis -2
        assert_causal(f, tokens)      f(tokens: Int[*b t]) -> *b t vocab

    Cost: four runs of f and two of its gradient for each token that is changed.

    Args:
      f: returns one array; it is compiled once, and has no randomness of its own.
      inputs: all tokens change in all of them together. Of vectors drawn anew, the
        present values don't matter; an id is changed into another id of `tokens`.
      axis: time in every input; None is -1 for integers, -2 for one array of vectors
        and -3 for several.
      out_axis: time in the output; None is the axis of the vectors, -2 for tokens.
      positions: the tokens to change; None is all of up to 32, else the ends, those at
        and beside powers of two (where chunks meet), and some in between.
      scales: sizes of the new vectors; nan asks that not even a NaN gets through.
      gradients: whether to look at them; there are none for integers.
      independent_rows: False for a function that mixes the rows of a batch on purpose.
      tolerance: what counts as moving, relative to the largest output; for sums whose
        order depends on the tokens, such as those of a Fourier transform.
      jit: False for a function that can't be compiled.

    Raises:
      AssertionError: names the output, the token that changed and the difference; also
        where no change moved anything, so that nothing was tested.
      ValueError, TypeError: arrays in which time can't be found.
    """
    subject = Subject(f, inputs, axis=axis, out_axis=out_axis, jit=jit)
    base = subject.run(*subject.inputs)
    check_numbers(base, np.ones(base.shape[:2], bool), NAME)
    tokens = _tokens(subject.t, positions)
    split = independent_rows and subject.rows > 1
    effect = False
    for token, n, scale in product(tokens, range(1 + split), scales):
        here = _rows(subject.rows, token, n, split)
        new = subject.changed(_at(here, token, subject.t), scale)
        far = differences(subject.run(*new), base)
        effect = effect or bool(np.any(far[:, token:] > 0))
        _check_outputs(far, token, here, tolerance * size(base))
    check_effect(effect, NAME)
    if gradients:
        for token, n in product(tokens, range(1 + split)):
            here = _rows(subject.rows, token, n, split)
            where = _at(here, token, subject.t)
            for grad in subject.gradients(where, *subject.inputs):
                _check_gradient(grad, token, here, tolerance)


def _check_outputs(
    far: np.ndarray, token: int, here: np.ndarray, allowed: float
) -> None:
    """Differences of all outputs after `token` changed in the rows `here`."""
    early = np.arange(far.shape[1]) < token
    for where, fault, remedy in (
        (here[:, None] & early, "f sees the future", "outputs before it"),
        (np.broadcast_to(~here[:, None], far.shape), "f mixes rows", "other rows"),
    ):
        found = first(where, np.where(far > allowed, far, 0))
        if found is not None:
            row, out = found
            raise AssertionError(
                f"{NAME}: {fault}: the output at token {out}{of_row(row, far)} moved "
                f"{by(far[found])} when token {token}{_of_rows(here)} changed; "
                f"expected {remedy} to stay as they are, to the bit"
            )


def _check_gradient(
    grad: np.ndarray, token: int, here: np.ndarray, tolerance: float
) -> None:
    """The gradient of the outputs at `token` in the rows `here`."""
    far = differences(grad, np.zeros_like(grad))
    late = np.arange(far.shape[1]) > token
    for where, fault, remedy in (
        (here[:, None] & late, "f sees the future", "later tokens"),
        (np.broadcast_to(~here[:, None], far.shape), "f mixes rows", "other rows"),
    ):
        found = first(where, np.where(far > tolerance * size(grad), far, 0))
        if found is not None:
            row, source = found
            amount = far[found]
            raise AssertionError(
                f"{NAME}: {fault}: the gradient of the output at token "
                f"{token}{_of_rows(here)} with respect to token "
                f"{source}{of_row(row, far)} is "
                f"{f'{amount:.3g}' if np.isfinite(amount) else 'NaN or infinite'}; "
                f"expected exactly 0 at {remedy}"
            )


def _tokens(t: int, positions: Sequence[int] | None) -> list[int]:
    """All of a short sequence; of a long one the ends, chunk edges and some others."""
    if positions is not None:
        if not positions or not all(-t <= i < t for i in positions):
            raise ValueError(
                f"positions: got {list(positions)}; expected tokens from 0 to {t - 1}"
            )
        return [i % t for i in positions]
    if t <= EVERY_TOKEN_UP_TO:
        return list(range(t))
    edges = {2**n + d for n in range(t.bit_length()) for d in (-1, 0, 1)}
    spread = np.linspace(0, t - 1, 9).astype(int).tolist()
    return sorted(i for i in {*edges, *spread, t - 2} if i < t)


def _rows(rows: int, token: int, n: int, split: bool) -> np.ndarray:
    """The rows that change: all, or a half of them and, for the next n, the other.

    Halves differ in a bit of the row's number, and the bit from token to token, so that
    any two rows are once in different halves.
    """
    bit = token % max(1, (rows - 1).bit_length())
    return ((np.arange(rows) >> bit) % 2 == n % 2) | (not split)


def _at(rows: np.ndarray, token: int, t: int) -> np.ndarray:
    return rows[:, None] & (np.arange(t) == token)


def _of_rows(here: np.ndarray) -> str:
    if len(here) == 1 or here.all():
        return ""
    return f" of rows {', '.join(map(str, np.flatnonzero(here)))}"
