"""Does what stands at padding, or how much of it there is, matter?"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Array

from attn_jax.testing._compare import (
    by,
    check_effect,
    check_numbers,
    differences,
    first,
    of_row,
    rounding,
    size,
)
from attn_jax.testing._subject import Subject

NAME = "assert_padding_invariant"
SIDES = ("right", "left")


def assert_padding_invariant(
    f: Callable[..., Array],
    *inputs: Array | np.ndarray,
    axis: int | None = None,
    out_axis: int | None = None,
    sides: Sequence[str] = SIDES,
    lengths: Sequence[int] | None = None,
    contents: Sequence[float] = (1.0, np.nan, 1e30),
    zeros: bool = False,
    gradients: bool = True,
    tolerance: float | None = None,
    jit: bool = True,
) -> None:
    """Fails where padding has an influence on real tokens.

    f is called as f(*inputs, real), where real: Bool[*b t] is True at real tokens.

        f(x with other numbers at padding, real) = f(x, real)      to the bit
        f(x, real) = f(x[real], all True)                          up to rounding

    at the real tokens, whether padding is on the right or on the left, in a batch whose
    rows have the same or different lengths. The gradient of these outputs is finite,
    0 at padding, and doesn't depend on what padding holds.

        assert_padding_invariant(
            lambda q, k, v, real: softmax_attention(
                q, k, v, mask=masks.padding(real, real)), q, k, v)

    Cost: six runs and four gradients of f a side and length; one compilation a length.

    Args:
      f: returns one array.
      inputs: as in `assert_causal`; any of the tokens may become padding.
      axis, out_axis, jit: as in `assert_causal`. The axes of `real` are those of the
        first input up to time.
      sides: where padding stands, "right" and "left".
      lengths: numbers of real tokens; None is 1, half and all but one.
      contents: what padding holds: vectors of that size, or an id that no vocabulary
        has where it isn't finite.
      zeros: whether f promises an output of exactly 0 at padding.
      gradients: whether to look at them; there are none for integers.
      tolerance: of the comparison with shorter rows, relative to the largest output;
        None is eps^(2/3) of the output's dtype, 2e-5 in float32.

    Raises:
      AssertionError: names the output, the padding and the difference.
      ValueError, TypeError: arrays in which time can't be found.
    """
    subject = Subject(f, inputs, axis=axis, out_axis=out_axis, jit=jit)
    patterns = _patterns(subject.t, sides, lengths)
    alone = [_alone(subject, real) for real in patterns]
    # A row of one token may be 0 up to rounding, so that is no measure.
    largest = size(_alone(subject, np.ones(subject.t, bool)))
    effect = False
    for turn in range(len(patterns)):
        # Each row has a length of its own, and each length is once in every row.
        chosen = [(row + turn) % len(patterns) for row in range(subject.rows)]
        real = np.stack([patterns[i] for i in chosen])
        flags = subject.per_token(real)
        base = subject.run(*subject.inputs, flags)
        check_numbers(base, real, NAME)
        _check_zeros(base, real, zeros)
        for row, i in enumerate(chosen):
            far = differences(base[row][real[row]], alone[i][row])[None]
            least = rounding(subject.dtype) if tolerance is None else tolerance
            _check_alone(far, row, real, least * largest)
        before = subject.gradients(real, *subject.inputs, flags) if gradients else []
        for content in contents:
            new = subject.changed(~real, content)
            out = subject.run(*new, flags)
            _check_contents(differences(out, base), real, content, "output")
            _check_zeros(out, real, zeros)
            after = subject.gradients(real, *new, flags) if gradients else []
            for one, other in zip(after, before, strict=True):
                _check_contents(differences(one, other), real, content, "gradient")
                none = differences(one, np.zeros_like(one))
                _check_contents(none, ~real, content, "gradient", "0")
        every = subject.changed(np.ones_like(real), 1.0)
        moved = differences(subject.run(*every, flags), base)
        effect = effect or bool(np.any(moved > 0))
    check_effect(effect, NAME)


def _patterns(
    t: int, sides: Sequence[str], lengths: Sequence[int] | None
) -> list[np.ndarray]:
    for side in sides:
        if side not in SIDES:
            raise ValueError(f"sides: got {side!r}; expected 'right' and 'left'")
    if lengths is None:
        lengths = sorted({1, max(1, t // 2), t - 1})
    if not sides or not lengths or not all(0 < n < t for n in lengths):
        raise ValueError(
            f"lengths: got {list(lengths)}, padded on {list(sides)}; expected numbers "
            f"of real tokens from 1 to {t - 1}, one less than there are, and a side"
        )
    where = np.arange(t)
    return [
        where < n if side == "right" else where >= t - n
        for n in lengths
        for side in sides
    ]


def _alone(subject: Subject, real: np.ndarray) -> np.ndarray:
    """f of all rows without their padding."""
    at = np.flatnonzero(real)
    every = np.ones((subject.rows, len(at)), bool)
    short = subject.cut(int(at[0]), int(at[-1]) + 1)
    return subject.run(*short, subject.per_token(every))


def _check_alone(far: np.ndarray, row: int, real: np.ndarray, allowed: float) -> None:
    """One row's real outputs against those of the same row without padding."""
    found = first(np.ones(far.shape, bool), np.where(far > allowed, far, 0))
    if found is None:
        return
    at = np.flatnonzero(real[row])
    raise AssertionError(
        f"{NAME}: the output at token {at[found[1]]}{of_row(row, real)} differs "
        f"{by(far[found])} from that of the row without its padding, tokens {at[0]} "
        f"to {at[-1]} alone; expected at most {allowed:.1g}; padding is seen, counted "
        "in a normaliser, or moves positions"
    )


def _check_contents(
    far: np.ndarray, where: np.ndarray, content: float, what: str, want: str = ""
) -> None:
    """Differences of outputs or gradients after padding was filled with `content`."""
    found = first(where, far)
    if found is None:
        return
    row, token = found
    raise AssertionError(
        f"{NAME}: the {what} at token {token}{of_row(row, far)} "
        f"{f'is off {want}' if want else 'moved'} {by(far[found])} when padding held "
        f"{_name(content)}; expected {want or 'the same bits'}, whatever stands at "
        "padding; clean it with jnp.where(real, x, 0) before it meets anything"
    )


def _check_zeros(out: np.ndarray, real: np.ndarray, zeros: bool) -> None:
    if not zeros:
        return
    far = differences(out, np.zeros_like(out))
    found = first(~real, far)
    if found is not None:
        raise AssertionError(
            f"{NAME}: the output at padding, token {found[1]}{of_row(found[0], out)}, "
            f"differs from 0 {by(far[found])}; expected exactly 0 (zeros=True)"
        )


def _name(content: float) -> str:
    return "other numbers" if content == 1 else f"numbers around {content:g}"
