"""One block of chunked linear attention: a few chunks of a few examples.

Examples and heads stand on one axis u (u = b g), tokens of all examples on another:
XLA splits work over an outermost axis on CPU, which must not be of size 1.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from attn_jax.ops._linear_inputs import (
    begins_at,
    features,
    keep,
    normalise,
    running_sum,
)
from attn_jax.ops._shapes import lift
from attn_jax.ops.feature_maps import FeatureMap

# Features of a query beyond this are scaled down, which their quotient does not show:
# similarities that overflow would make 0 times inf of the gradient of other rows.
LARGE = 2.0**64


class Sums(NamedTuple):
    """S and z over the keys so far, and the segment that they belong to."""

    kv: Float[Array, "u p e"]
    k: Float[Array, "u p"]
    run: Any  # Int[b], None without segments


class Tokens(NamedTuple):
    """The tokens of a block; None where nothing is hidden or there is one run."""

    q: Float[Array, "tokens h d"]
    k: Float[Array, "tokens g d"]
    v: Float[Array, "tokens g e"]
    real: Any  # Bool[tokens]: keys that count
    sees: Any  # Bool[tokens]: queries with at least one visible key
    run: Any  # Int[tokens]: which segment the sums after a token belong to


class Sizes(NamedTuple):
    """Static sizes of a block: examples of n chunks of c tokens, g key/value heads."""

    examples: int
    n: int
    c: int
    g: int
    dtype: Any
    ndim: int  # axes that the feature map was promised

    @property
    def tokens(self) -> int:
        return self.examples * self.n * self.c

    def in_chunks(self, x: Float[Array, "tokens h p"]) -> Float[Array, "u n rows p"]:
        """Rows of a chunk: its tokens, for every query head of a group."""
        r, p = x.shape[1] // self.g, x.shape[2]
        x = x.reshape(self.examples, self.n, self.c, self.g, r, p)
        x = x.transpose(0, 3, 1, 4, 2, 5)
        return x.reshape(self.examples * self.g, self.n, r * self.c, p)

    def in_rows(self, x: Float[Array, "u n rows e"]) -> Float[Array, "tokens h e"]:
        """What `in_chunks` was given."""
        r, e = x.shape[2] // self.c, x.shape[3]
        x = x.reshape(self.examples, self.g, self.n, r, self.c, e)
        return x.transpose(0, 2, 4, 1, 3, 5).reshape(self.tokens, self.g * r, e)

    def per_head(self, x: Array, ndim: int) -> Array:
        """x: b ... once for each key/value head, u ..., with ndim axes."""
        x = jnp.repeat(x, self.g, axis=0)
        return x.reshape(*x.shape, *(1,) * (ndim - x.ndim))


def attend_block(
    before: Sums,
    x: Tokens,
    *,
    sizes: Sizes,
    feature_map: FeatureMap,
    eps: Any,
    normalize: bool,
) -> tuple[Sums, Float[Array, "tokens h e"]]:
    """The sums after a block, and its outputs.

        Y_c = Q_c S_{c-1} + tril(Q_c K_c^T) V_c,   S_c = S_{c-1} + K_c^T V_c

    and Y's denominator alike, with z for S and ones for V.
    """

    def phi(a: Array) -> Array:
        return feature_map(lift(a, sizes.ndim)).reshape(*a.shape[:-1], -1)

    parts = (
        features(x.q, x.sees, phi, sizes.dtype),
        features(x.k, x.real, phi, sizes.dtype),
        keep(x.v, x.real),
    )
    q, k, v = (sizes.in_chunks(a.astype(sizes.dtype)) for a in parts)
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(q), -1, keepdims=True, initial=0))
    unit = jnp.where(largest > LARGE, largest, 1)
    q = q / unit
    run = None if x.run is None else x.run.reshape(-1, sizes.n, sizes.c)

    kv, z, after = _carried(before, k, v, run, sizes)
    similarity = _dot(q, _t(k))
    similarity = jnp.where(_visible(run, q, sizes), similarity, 0)
    num, den = _dot(similarity, v), similarity.sum(-1, keepdims=True)
    if run is None:
        num, den = num + _dot(q, kv), den + _dot(q, z[..., None])
    else:
        # Twice: sums of another segment may have overflowed, and 0 times inf is NaN.
        same = _same_as_before(run, before.run, q, sizes)
        q = jnp.where(same, q, 0)
        num = num + jnp.where(same, _dot(q, kv), 0)
        den = den + jnp.where(same, _dot(q, z[..., None]), 0)
    if normalize:
        out = normalise(num, den, None if eps is None else eps / unit)
    else:
        # The numerator alone shows the unit of its query.
        out = num * unit
    return after, keep(sizes.in_rows(out), x.sees).astype(x.v.dtype)


def _carried(
    before: Sums, k: Array, v: Array, run: Any, sizes: Sizes
) -> tuple[Float[Array, "u n p e"], Float[Array, "u n p"], Sums]:
    """The sums carried into each chunk, and those after the last."""
    begins = None
    if run is not None:
        ends = run[..., -1]
        k = jnp.where(sizes.per_head(run == ends[..., None], 4), k, 0)
        begins = begins_at(jnp.concatenate([before.run[:, None], ends], -1))

    def sums(first: Array, terms: Array) -> Array:
        parts = jnp.concatenate([first[:, None], terms], axis=1)
        restart = None if begins is None else sizes.per_head(begins, parts.ndim)
        return running_sum(parts, restart, axis=1)

    kv, z = sums(before.kv, _dot(_t(k), v)), sums(before.k, k.sum(-2))
    last = None if run is None else run[:, -1, -1]
    return kv[:, :-1], z[:, :-1], Sums(kv[:, -1], z[:, -1], last)


def _visible(
    run: Int[Array, "b n c"] | None, q: Array, sizes: Sizes
) -> Bool[Array, "#u #n rows c"]:
    """Which similarities inside a chunk count."""
    inside = jnp.tri(sizes.c, dtype=bool)[None, None]
    if run is not None:
        inside = inside & (run[..., :, None] == run[..., None, :])
        inside = sizes.per_head(inside, 4)
    return jnp.tile(inside, (1, 1, q.shape[-2] // sizes.c, 1))


def _same_as_before(
    run: Int[Array, "b n c"], first: Int[Array, "b"], q: Array, sizes: Sizes
) -> Bool[Array, "u n rows 1"]:
    """Whether a row's segment is the one that the chunk before ended in."""
    ends = jnp.concatenate([first[:, None], run[:, :-1, -1]], -1)
    same = sizes.per_head(run == ends[..., None], 4)
    return jnp.tile(same, (1, 1, q.shape[-2] // sizes.c, 1))


def _dot(
    a: Float[Array, "u n i k"], b: Float[Array, "u n k j"]
) -> Float[Array, "u n i j"]:
    return jax.lax.dot_general(a, b, (((3,), (2,)), ((0, 1), (0, 1))))


def _t(x: Array) -> Array:
    return jnp.swapaxes(x, -1, -2)
