"""Does decoding give what the full pass gives?"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from attn_jax.testing._compare import (
    by,
    check_numbers,
    differences,
    first,
    of_row,
    rounding,
    size,
)
from attn_jax.testing._subject import Subject

NAME = "assert_decode_matches"


def assert_decode_matches(
    full: Callable[..., Array],
    step: Callable[..., tuple[Array, Any]],
    *inputs: Array | np.ndarray,
    cache: Any,
    pieces: Sequence[Sequence[int]] | None = None,
    axis: int | None = None,
    out_axis: int | None = None,
    tolerance: float | None = None,
    jit: bool = True,
) -> None:
    """Fails where tokens decoded in pieces don't give the outputs of the full pass.

        out_1, cache_1 = step(x_1, cache);  out_2, cache_2 = step(x_2, cache_1);  ...
        concatenate(out_1, out_2, ...) = full(x)     up to rounding, x = x_1 x_2 ...

    for one token at a time, for all at once, and for pieces of other lengths.

        assert_decode_matches(decoder, decoder.decode, tokens,
                              cache=decoder.init_cache(batch, length))

    Cost: a run of `full`, and one of `step` for each piece; one compilation a length.

    Args:
      full: full(*inputs) returns one array; causal.
      step: step(*tokens, cache) returns the outputs of these tokens and the next cache.
      inputs, axis, out_axis: as in `assert_causal`.
      cache: an empty one, from which every decoding starts.
      pieces: lengths of the pieces, several ways of cutting t tokens; None is all of
        length 1, one of length t, and one token, the middle, one token.
      tolerance: relative to the largest output; None is eps^(2/3) of the output's
        dtype, 2e-5 in float32.
      jit: False for functions that can't be compiled.

    Raises:
      AssertionError: names the output, the pieces and the difference.
      ValueError, TypeError: arrays in which time can't be found, pieces that don't sum
        to t.
    """
    subject = Subject(full, inputs, axis=axis, out_axis=out_axis, jit=jit)
    want = subject.run(*subject.inputs)
    check_numbers(want, np.ones(want.shape[:2], bool), NAME)
    least = rounding(subject.dtype) if tolerance is None else tolerance
    run = jax.jit(lambda *args: step(*args)) if jit else step
    for lengths in _ways(subject.t) if pieces is None else pieces:
        _check_pieces(lengths, subject.t)
        start, now = 0, cache
        for n in lengths:
            out, now = _pair(run(*subject.cut(start, start + n), now))
            got = subject.seen(out)
            far = differences(got, want[:, start : start + n])
            found = first(np.True_, np.where(far > least * size(want), far, 0))
            if found is not None:
                row, token = found
                raise AssertionError(
                    f"{NAME}: the output at token {start + token}{of_row(row, far)} "
                    f"differs {by(far[found])} from that of the full pass, decoded in "
                    f"pieces of {_short(lengths)}; expected at most "
                    f"{least * size(want):.1g}; the cache, the offset of positions or "
                    f"the mask of the piece that starts at token {start} is off"
                )
            start += n


def _ways(t: int) -> list[list[int]]:
    middle = [n for n in (1, t - 2, 1) if n]
    return [[1] * t, [t], middle]


def _check_pieces(lengths: Sequence[int], t: int) -> None:
    if sum(lengths) != t or min(lengths) < 1:
        raise ValueError(
            f"pieces: got {list(lengths)}, {sum(lengths)} tokens; expected lengths "
            f">= 1 that sum to t = {t}"
        )


def _pair(result: Any) -> Any:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(
            f"step: returned {type(result).__name__}; expected the pair (outputs, next "
            "cache)"
        )
    return result


def _short(lengths: Sequence[int]) -> str:
    if len(set(lengths)) == 1:
        return f"{lengths[0]}"
    return ", ".join(map(str, lengths))
