"""Do packed documents see each other?"""

from collections.abc import Callable, Sequence
from typing import Any

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

NAME = "assert_segments_isolated"


def assert_segments_isolated(
    f: Callable[..., Array],
    *inputs: Array | np.ndarray,
    lengths: Sequence[int] | None = None,
    axis: int | None = None,
    out_axis: int | None = None,
    scales: Sequence[float] = (1.0, 1e4),
    gradients: bool = True,
    alone: bool = True,
    tolerance: float | None = None,
    jit: bool = True,
) -> None:
    """Fails where a segment of a packed row has an influence on another.

    f is called as f(*inputs, ids), where ids: Int[*b t] says which segment a token
    belongs to; a segment is one run of tokens.

        f(x with other tokens in segment n, ids) = f(x, ids)   outside n, to the bit
        d out_i / d x_j = 0                                    in different segments
        f(x, ids) in segment n = f(segment n alone, its id)    up to rounding

    The last line also asks that positions start anew in each segment.

        assert_segments_isolated(
            lambda q, k, v, ids: softmax_attention(
                q, k, v, mask=masks.segments(ids)), q, k, v)

    Cost: three runs and one gradient of f a segment; one compilation a length.

    Args:
      f: returns one array.
      inputs, axis, out_axis, jit: as in `assert_causal`. The axes of `ids` are those of
        the first input up to time.
      lengths: of the segments, in their order, summing to t; None is about a third, one
        token, and the rest.
      scales: sizes of the new vectors.
      gradients: whether to look at them; there are none for integers.
      alone: False leaves out the comparison with each segment alone.
      tolerance: of that comparison, relative to the largest output; None is eps^(2/3)
        of the output's dtype, 2e-5 in float32.

    Raises:
      AssertionError: names the output, the segment that changed and the difference.
      ValueError, TypeError: arrays in which time can't be found, lengths that don't
        sum to t.
    """
    subject = Subject(f, inputs, axis=axis, out_axis=out_axis, jit=jit)
    spans = _spans(subject.t, lengths)
    # Falling ids without a 0: nothing may depend on their size.
    row = np.repeat(np.arange(len(spans), 0, -1), [b - a for a, b in spans])
    row = row.astype(np.int32)
    ids = subject.per_token(np.tile(row, (subject.rows, 1)))
    base = subject.run(*subject.inputs, ids)
    check_numbers(base, np.ones(base.shape[:2], bool), NAME)
    effect = False
    for start, stop in spans:
        inside = np.zeros(base.shape[:2], bool)
        inside[:, start:stop] = True
        span = f"tokens {start} to {stop - 1}"
        for scale in scales:
            far = differences(subject.run(*subject.changed(inside, scale), ids), base)
            effect = effect or bool(np.any(far[inside] > 0))
            _check(far, ~inside, f"the output at {{}} moved {{}} when {span} changed")
        grads = subject.gradients(inside, *subject.inputs, ids) if gradients else ()
        for grad in grads:
            far = differences(grad, np.zeros_like(grad))
            what = f"the gradient of the outputs at {span} with respect to {{}} is off"
            _check(far, ~inside, f"{what} 0 {{}}")
        if alone:
            out = subject.run(*subject.cut(start, stop), ids[..., start:stop])
            far = differences(base[:, start:stop], out)
            least = rounding(subject.dtype) if tolerance is None else tolerance
            far = np.where(far > least * size(base), far, 0)
            what = f"the output at {{}} differs {{}} from that of {span} alone"
            _check(np.pad(far, ((0, 0), (start, 0))), np.True_, what)
    check_effect(effect, NAME)


def _check(far: np.ndarray, where: Any, what: str) -> None:
    found = first(where, far)
    if found is None:
        return
    row, token = found
    what = what.format(f"token {token}{of_row(row, far)}", by(far[found]))
    raise AssertionError(
        f"{NAME}: {what}; expected segments that are each on their own: restart "
        "states, shifts and positions where the id changes"
    )


def _spans(t: int, lengths: Sequence[int] | None) -> list[tuple[int, int]]:
    """Where each segment starts and stops."""
    if lengths is None:
        third = max(1, t // 3)
        lengths = [n for n in (third, 1, t - third - 1) if n]
    if sum(lengths) != t or min(lengths) < 1:
        raise ValueError(
            f"lengths: got {list(lengths)}, {sum(lengths)} tokens; expected lengths >= "
            f"1 of segments that fill the t = {t} tokens"
        )
    stops = np.cumsum(lengths).tolist()
    return list(zip([0, *stops[:-1]], stops, strict=True))
