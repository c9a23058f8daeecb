"""Feature maps of linear attention: phi, whose dot products take the place of exp(q.k).

A map sees one token at a time, so none can leak the future, and the same map serves
queries and keys. What it has to give is a normaliser, a sum of phi(q).phi(k), that does
not vanish: dot products that are nowhere negative, unless nothing is divided by them.
Write one of your own as a plain function from *b t h d to *b t h p; `check_feature_map`
tries it out before it is used.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attn_jax.ops._shapes import compute_dtype, is_traced, lift

FeatureMap = Callable[[Array], Array]


def elu_plus_one(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """phi(x) = x + 1 where x >= 0, exp(x) below, in at least float32.

    The literal elu(x) + 1 cancels to 0 below -17; this form stays positive to -87, has
    slope 1 at 0 and no branch that overflows.

    Reference: Katharopoulos et al. 2020, equation 7.
    """
    x = x.astype(compute_dtype(x))
    return jnp.where(x >= 0, x + 1, jnp.exp(jnp.minimum(x, 0)))


def relu_features(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """phi(x) = max(x, 0), in at least float32.

    A query whose features meet those of no visible key has a normaliser of 0, and then
    the output 0; so does its gradient.

    Reference: Kasai et al. 2021 (T2R), who learn a linear map before it.
    """
    return jax.nn.relu(x.astype(compute_dtype(x)))


def squared_relu_features(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """phi(x) = max(x, 0)^2, in at least float32.

    Steeper than `relu_features`, with a slope that doesn't jump; what is said there of
    a query that meets no visible key holds here too.

    Reference: So et al. 2021 (Primer), as an activation.
    """
    return jnp.square(relu_features(x))


def exp_features(x: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
    """phi(x)_f = exp(x_f) / sum_f' exp(x_f'), in at least float32: any x is safe.

    For a query the division cancels between numerator and normaliser: these are the
    features exp(q). For a key it doesn't, and is a choice: each key's features sum to
    1. Without it exp(k) overflows at 88; with the largest key of the sequence in its
    place, every output would depend on keys of the future. A feature more than 40 below
    the token's largest counts as 40 below: e^-40 is under rounding, and normalisers of
    queries and keys that are far apart keep well off 0. Reduces to 1/d everywhere,
    uniform attention, when x = 0.

    Reference: Shen et al. 2021 (Efficient Attention) for queries; Zhang et al. 2024
    (Hedgehog) for both.
    """
    x = x.astype(compute_dtype(x))
    largest = jnp.max(x, axis=-1, keepdims=True, initial=-jnp.inf)
    return jax.nn.softmax(jnp.maximum(x, jax.lax.stop_gradient(largest) - 40), axis=-1)


def polynomial_features(x: Float[Array, "*b d"]) -> Float[Array, "*b p"]:
    """The degree-2 polynomial: phi(x).phi(y) = (1 + x.y)^2, in at least float32.

        phi(x) = [1, sqrt(2) x_i, x_i^2, sqrt(2) x_i x_j for i < j]

    so that p = (d + 1) (d + 2) / 2. Features have either sign, their dot products have
    not. Scale q and k beforehand if 1 / sqrt(d) is wanted.

    Reference: the polynomial kernel; Arora et al. 2024 (Based) use the similar Taylor
    expansion of exp.
    """
    x = x.astype(compute_dtype(x))
    left, right = np.triu_indices(x.shape[-1])
    scale = np.where(left == right, 1.0, np.sqrt(2.0))
    products = x[..., left] * x[..., right] * lift(jnp.asarray(scale, x.dtype), x.ndim)
    return jnp.concatenate([jnp.ones_like(x[..., :1]), 2**0.5 * x, products], axis=-1)


KNOWN = (
    elu_plus_one,
    relu_features,
    squared_relu_features,
    exp_features,
    polynomial_features,
)


def check_callable(feature_map: Any) -> None:
    """A function, not its name."""
    if not callable(feature_map):
        raise TypeError(
            f"feature_map: got {type(feature_map).__name__}; expected a function from "
            "*b t h d to *b t h p, such as elu_plus_one of attn_jax.ops"
        )


def check_feature_map(feature_map: Any, q: Array, *, signed: bool = False) -> None:
    """Refuses a map whose dot products are found to be negative, q: *b t h d.

    It is tried on numbers of either sign from 0.3 to 30, once for each function and
    shape. One that uses traced values, such as parameters under jit, can't be tried.

    signed: whether they may be negative, since nothing is divided by their sum.
    """
    check_callable(feature_map)
    if feature_map in KNOWN:
        return
    found = _least(feature_map, q.ndim, *q.shape[-2:])
    if found < 0 and not signed:
        name = getattr(feature_map, "__name__", repr(feature_map))
        raise ValueError(
            f"feature_map: {name} gives phi(x).phi(y) = {found:.3g} |phi(x)| |phi(y)| "
            "for some x and y; expected dot products that are nowhere negative, since "
            "their sum over the keys is the normaliser, which could vanish; use "
            "elu_plus_one, relu_features, squared_relu_features, exp_features or "
            "polynomial_features, make phi positive, e.g. with jax.nn.softplus, or "
            "don't divide, normalize=False"
        )


@lru_cache(maxsize=64)
def _least(feature_map: FeatureMap, ndim: int, h: int, d: int) -> float:
    """The least cosine of two mapped vectors, 0 where none is below rounding."""
    random = np.random.default_rng(0)
    directions = [np.ones((1, h, d)), random.normal(size=(5, h, d))]
    x = np.concatenate([s * y for s in (0.3, 1, 3, 10, 30) for y in directions])
    x = np.concatenate([x, -x]).astype(np.float32)
    x = x.reshape((1,) * (ndim - 3) + x.shape)
    # Numbers are wanted, also where jit traces the call.
    with jax.ensure_compile_time_eval():
        phi = feature_map(jnp.asarray(x))
    if is_traced(phi):
        return 0.0
    if phi.shape[:-1] != x.shape[:-1]:
        raise ValueError(
            f"feature_map: returned shape {phi.shape} for {x.shape}; expected the same "
            "axes but for the last, *b t h p for *b t h d"
        )
    phi = np.asarray(phi).astype(np.float64).reshape(-1, h, phi.shape[-1])
    size = np.linalg.norm(phi, axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # of features that overflow
        phi = phi / np.where(size > 0, size, 1)
    least = np.nanmin(np.einsum("ihp,jhp->hij", phi, phi), initial=0.0)
    return float(least) if least < -1e-5 else 0.0
