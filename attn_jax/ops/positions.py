"""Positions: sinusoidal tables, rotary embeddings, ALiBi."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Real

from attn_jax.ops._entry import op
from attn_jax.ops._shapes import compute_dtype

LAYOUTS = ("interleaved", "concatenated")


def sinusoidal_positions(
    length: int, d_model: int, *, layout: str = "interleaved"
) -> Float[Array, "{length} {d_model}"]:
    """A table of sines and cosines, one row a position, to add to embeddings.

        PE[pos, 2i] = sin(pos / 10000^(2i / d_model))
        PE[pos, 2i + 1] = cos(pos / 10000^(2i / d_model))

    "concatenated" holds the same columns, sines first: it reduces to the interleaved
    table with its even columns before its odd ones. An odd d_model has one more sine.

    Cost: O(length d_model) time and memory, on the host.

    Reference: Vaswani et al. 2017, section 3.5. The exponent is 2i / d_model in both
    layouts; tensor2tensor's concatenated table divides by d_model / 2 - 1 instead.

    Args:
      length: number of rows, positions 0 to length - 1.
      d_model: number of columns.
      layout: "interleaved", the paper's, or "concatenated".

    Returns:
      The table in JAX's default float dtype, rounded from float64: late positions are
      as exact as early ones.

    Raises:
      ValueError: a negative length, a width below 1, an unknown layout.
    """
    _check_sizes(0, length=length)
    _check_sizes(1, d_model=d_model)
    if layout not in LAYOUTS:
        raise ValueError(
            f"layout: got {layout!r}; expected one of {', '.join(map(repr, LAYOUTS))}"
        )
    # NumPy, since JAX has float64 under x64 alone.
    angles = np.arange(length)[:, None] / 10000.0 ** (
        np.arange(0, d_model, 2) / d_model
    )
    sines, cosines = np.sin(angles), np.cos(angles[:, : d_model // 2])
    if layout == "concatenated":
        return jnp.asarray(np.concatenate([sines, cosines], axis=1), dtype=float)
    table = np.empty((length, d_model))
    table[:, 0::2], table[:, 1::2] = sines, cosines
    return jnp.asarray(table, dtype=float)


@op("interleaved")
def apply_rotary(
    x: Float[Array, "*b t h d"],
    positions: Real[Array, "..."],
    *,
    base: float | Float[Array, ""] = 10000.0,
    interleaved: bool = False,
) -> Float[Array, "*b t h d"]:
    """Rotates pairs of features by angles that grow with the position.

        x'_i       = x_i cos(a_i) - x_{i+d/2} sin(a_i)
        x'_{i+d/2} = x_i sin(a_i) + x_{i+d/2} cos(a_i),   a_i = position base^(-2i/d)

    so that the dot product of a rotated query and a rotated key depends on the
    difference of their positions alone. Queries and keys are rotated, values never.

    Reduces to x at position 0. Lengths of vectors stay as they are.

    Cost: O(t h d) time and memory per example.

    Reference: Su et al. 2021 (RoFormer), which pairs neighbours (interleaved=True);
    halves, the default, are what most released weights use.

    Args:
      x: queries or keys; d is even.
      positions: absolute positions *b t; leading axes may be missing or 1 and then
        broadcast. When decoding, the positions of the tokens at hand.
      base: the longest wavelength is near 2 pi base.
      interleaved: pair (2i, 2i + 1) instead of (i, i + d/2).

    Returns:
      x rotated, in its dtype; angles are computed in at least float32.

    Raises:
      ValueError, TypeError: an odd d, shapes or dtypes that do not fit.
    """
    _check_rotary(x, positions)
    d = x.shape[-1]
    dtype = compute_dtype(x)
    positions = positions.reshape(
        (1,) * (x.ndim - 2 - positions.ndim) + positions.shape
    )
    exponents = jnp.arange(0, d, 2, dtype=dtype) / d
    rates = jnp.asarray(base, dtype) ** -exponents
    angles = positions.astype(dtype)[..., None, None] * rates.reshape(
        (1,) * (x.ndim - 1) + (d // 2,)
    )
    pair = -1 if interleaved else -2
    pairs = (d // 2, 2) if interleaved else (2, d // 2)
    sines, cosines = jnp.sin(angles), jnp.cos(angles)
    # The partners as one flipped array: on CPU several times the speed of two halves
    # that are cut apart and joined again.
    one = x.astype(dtype).reshape(*x.shape[:-1], *pairs)
    other = jnp.flip(one, axis=pair)
    rotated = one * jnp.stack([cosines, cosines], axis=pair) + other * jnp.stack(
        [-sines, sines], axis=pair
    )
    return rotated.reshape(x.shape).astype(x.dtype)


@partial(jax.jit, static_argnames=("h", "t", "s"))
def alibi_bias(
    h: int, t: int, s: int, *, offset: int | Int[Array, "*b"] = 0
) -> Float[Array, "*b {h} {t} {s}"]:
    """Attention with linear biases: a penalty on distance, steeper in early heads.

        bias[head, i, j] = -slope[head] |i + offset - j|

    with slopes 2^(-8 k / h), k = 1 .. h, when h is a power of two; otherwise those of
    the power of two p below h, then every other one of those of 2 p. Under a causal
    mask the distance is the paper's i - j.

    Reduces to 0 on the diagonal i + offset = j.

    Cost: O(h t s) time and memory.

    Reference: Press et al. 2022 (ALiBi), section 3; slopes for other h from the
    authors' code.

    Args:
      h: number of heads.
      t: number of queries.
      s: number of keys.
      offset: absolute position of the first query, keys start at 0; may be traced.
        One an example, Int[*b], gives one bias an example.

    Returns:
      The bias of `softmax_attention`, in JAX's default float dtype.

    Raises:
      ValueError, TypeError: sizes that are not ints, or h below 1; an offset that is
        not an integer.
    """
    _check_sizes(1, h=h)
    _check_sizes(0, t=t, s=s)
    offset = jnp.asarray(offset)
    if not jnp.issubdtype(offset.dtype, jnp.integer):
        raise TypeError(
            f"offset: got dtype {offset.dtype}; expected an int or an integer array, "
            "the absolute position of the first query"
        )
    lead = (1,) * offset.ndim
    start = offset[..., None, None, None]
    i = start + jnp.arange(t).reshape(*lead, 1, t, 1)
    distance = jnp.abs(i - jnp.arange(s).reshape(*lead, 1, 1, s))
    slopes = jnp.asarray(_alibi_slopes(h), dtype=float).reshape(*lead, h, 1, 1)
    return -slopes * distance.astype(slopes.dtype)


def _alibi_slopes(h: int) -> list[float]:
    p = 2 ** (h.bit_length() - 1)
    between = [2 ** (-8 * k / (2 * p)) for k in range(1, 2 * p + 1, 2)]
    return [2 ** (-8 * k / p) for k in range(1, p + 1)] + between[: h - p]


def _check_rotary(x: Array, positions: Array) -> None:
    if x.ndim < 3:
        raise ValueError(
            f"x: got shape {x.shape} with {x.ndim} axes; expected at least 3 in the "
            "layout *b t h d; one head is x[..., None, :]"
        )
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"x: got dtype {x.dtype}; expected a floating dtype; cast it first, e.g. "
            "x.astype(jnp.float32)"
        )
    if x.shape[-1] % 2:
        raise ValueError(
            f"x: got d = {x.shape[-1]} features (last axis of {x.shape}); expected an "
            "even number, since features rotate in pairs; choose an even head_dim, or "
            "rotate x[..., :-1] and leave the last feature as it is"
        )
    expected = x.shape[:-2]
    got = positions.shape
    fits = (
        1 <= len(got) <= len(expected)
        and got[-1] == expected[-1]
        and all(m in (1, n) for m, n in zip(got[::-1], expected[::-1], strict=False))
    )
    if not fits:
        raise ValueError(
            f"positions: got shape {got} for x of shape {x.shape}; expected one "
            f"position a token, (*b, t) = {expected}, where leading axes may be "
            "missing or 1; the same for every example is jnp.arange(t)"
        )


def _check_sizes(least: int, **sizes: int) -> None:
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < least:
            raise ValueError(f"{name}: got {size!r}; expected an int >= {least}")
