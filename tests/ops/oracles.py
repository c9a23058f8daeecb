"""Attention computed the slow way: NumPy, float64, one query at a time.

Each function follows the papers' sums as they are written, visits only the keys that
a query may see and never forms a masked logit, so that what hides behind a mask
cannot reach a result even by accident. Layout `*b t h d`; query head j reads key
head j // (h / g).

- softmax: Vaswani et al. 2017, equation 1.
- linear: Katharopoulos et al. 2020, equations 3 to 5 and 8 to 12.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

Rule: TypeAlias = Callable[[int, int, int, int], bool]
"""(example, query head, query, key) -> may it look?"""


def _of(value, b: int) -> int:
    """The value of example b, whether there is one for all or one for each."""
    return int(value) if np.ndim(value) == 0 else int(value[b])


def full() -> Rule:
    return lambda b, h, i, j: True


def causal(start=0) -> Rule:
    return lambda b, h, i, j: j <= i + _of(start, b)


def window(left: int, right: int = 0, start=0) -> Rule:
    return lambda b, h, i, j: -left <= j - (i + _of(start, b)) <= right


def prefix(length, start=0) -> Rule:
    return lambda b, h, i, j: j < _of(length, b) or j <= i + _of(start, b)


def padding(keys, queries=None) -> Rule:
    return lambda b, h, i, j: bool(keys[b][j] and (queries is None or queries[b][i]))


def segments(queries, keys=None) -> Rule:
    keys = queries if keys is None else keys
    return lambda b, h, i, j: bool(queries[b][i] == keys[b][j])


def dense(table) -> Rule:
    def rule(b, h, i, j):
        index = zip((b, h, i, j), table.shape, strict=True)
        return bool(table[tuple(0 if n == 1 else x for x, n in index)])

    return rule


def allowed(rules: Sequence[Rule], b: int, h: int, t: int, s: int) -> np.ndarray:
    """Bool[b h t s]: what every rule allows."""
    table = np.zeros((b, h, t, s), bool)
    for index in np.ndindex(b, h, t, s):
        table[index] = all(rule(*index) for rule in rules)
    return table


class Softmax(NamedTuple):
    """Outputs and, where a cotangent of the output was given, gradients."""

    out: np.ndarray
    weights: np.ndarray
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    bias: np.ndarray


def _flat(x) -> np.ndarray:
    """`*b t h d` as `b t h d` in float64."""
    x = np.asarray(x).astype(np.float64)
    return x.reshape((int(np.prod(x.shape[:-3])), *x.shape[-3:]))


def _summed_to(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The gradient of an array of this shape that was broadcast to that of x."""
    x = x.sum(axis=tuple(range(x.ndim - len(shape))))
    axes = tuple(i for i, n in enumerate(shape) if n == 1)
    return x.sum(axis=axes, keepdims=True).reshape(shape)


def softmax_attention(
    q, k, v, allowed=True, bias=None, scale=None, logit_cap=None, cotangent=None
) -> Softmax:
    """sum_j softmax_j(cap(scale q_i . k_j) + bias_ij) v_j over the keys in sight."""
    lead, (t, h, d) = q.shape[:-3], q.shape[-3:]
    s, g, e = v.shape[-3:]
    full_shape = (*lead, h, t, s)
    bias = np.zeros((1,) * len(full_shape)) if bias is None else np.asarray(bias)
    flat = (int(np.prod(lead)), h, t, s)
    bias_all = np.broadcast_to(bias.astype(np.float64), full_shape).reshape(flat)
    sight = np.broadcast_to(allowed, full_shape).reshape(flat)
    cot = np.zeros((*lead, t, h, e)) if cotangent is None else cotangent
    qf, kf, vf, cf = (_flat(x) for x in (q, k, v, cot))
    scale = d**-0.5 if scale is None else scale

    out, weights = np.zeros_like(cf), np.zeros(flat)
    dq, dk, dv, dbias = (np.zeros_like(x) for x in (qf, kf, vf, weights))
    for b, j, i in np.ndindex(flat[:3]):
        n = j // (h // g)
        seen = np.flatnonzero(sight[b, j, i])
        if seen.size == 0:
            continue
        keys, values = kf[b, seen, n], vf[b, seen, n]
        logits = np.array([scale * float(qf[b, i, j] @ key) for key in keys])
        slope = np.ones_like(logits)
        if logit_cap is not None:
            squashed = np.tanh(logits / logit_cap)
            logits, slope = logit_cap * squashed, 1 - squashed**2
        logits = logits + bias_all[b, j, i, seen]
        raised = np.exp(logits - logits.max())
        p = raised / raised.sum()
        weights[b, j, i, seen] = p
        out[b, i, j] = p @ values

        dp = values @ cf[b, i, j]
        dlogits = p * (dp - p @ dp)
        dbias[b, j, i, seen] = dlogits
        dscores = dlogits * slope * scale
        dq[b, i, j] += dscores @ keys
        for x, key in enumerate(seen):
            dk[b, key, n] += dscores[x] * qf[b, i, j]
            dv[b, key, n] += p[x] * cf[b, i, j]
    return Softmax(
        out.reshape((*lead, t, h, e)),
        weights.reshape(full_shape),
        dq.reshape(q.shape),
        dk.reshape(k.shape),
        dv.reshape(v.shape),
        _summed_to(dbias.reshape(full_shape), bias.shape),
    )


class FeatureMap(NamedTuple):
    """phi and its vector-Jacobian product (x, gradient at phi(x)) -> gradient at x."""

    phi: Callable[[np.ndarray], np.ndarray]
    pullback: Callable[[np.ndarray, np.ndarray], np.ndarray]


def _elu(x):
    return np.where(x >= 0, x + 1, np.exp(np.minimum(x, 0)))


def _elu_slope(x):
    return np.where(x >= 0, 1.0, np.exp(np.minimum(x, 0)))


elu_plus_one = FeatureMap(_elu, lambda x, g: g * _elu_slope(x))

relu_plus = FeatureMap(lambda x: np.maximum(x, 0) + 1e-3, lambda x, g: g * (x > 0))

two_sided = FeatureMap(
    lambda x: np.concatenate([_elu(x), _elu(-x)], -1),
    lambda x, g: (
        g[..., : x.shape[-1]] * _elu_slope(x) - g[..., x.shape[-1] :] * _elu_slope(-x)
    ),
)
"""Twice as wide as what it is given: p = 2 d."""


relu = FeatureMap(lambda x: np.maximum(x, 0), lambda x, g: g * (x > 0))

squared_relu = FeatureMap(
    lambda x: np.where(x > 0, x, 0) ** 2, lambda x, g: g * 2 * np.where(x > 0, x, 0)
)

identity = FeatureMap(lambda x: x, lambda x, g: g)
"""Of either sign: only for numerators alone."""


def _softmax(x):
    raised = np.exp(x)
    return raised / raised.sum(-1, keepdims=True)


def _softmax_pullback(x, g):
    p = _softmax(x)
    return p * (g - np.sum(p * g, -1, keepdims=True))


exp_features = FeatureMap(_softmax, _softmax_pullback)


def _polynomial(x):
    d = x.shape[-1]
    squares = [
        x[..., i] * x[..., j] * (1 if i == j else 2**0.5)
        for i in range(d)
        for j in range(i, d)
    ]
    linear = [2**0.5 * x[..., i] for i in range(d)]
    return np.stack([np.ones_like(x[..., 0]), *linear, *squares], -1)


def _polynomial_pullback(x, g):
    d = x.shape[-1]
    dx = 2**0.5 * g[..., 1 : 1 + d]
    pairs = [(i, j) for i in range(d) for j in range(i, d)]
    for n, (i, j) in enumerate(pairs):
        part = g[..., 1 + d + n] * (1 if i == j else 2**0.5)
        dx[..., i] += part * x[..., j]
        dx[..., j] += part * x[..., i]
    return dx


polynomial = FeatureMap(_polynomial, _polynomial_pullback)


class Linear(NamedTuple):
    """Outputs, the state after the counted keys and, for cotangents, gradients."""

    out: np.ndarray
    kv: np.ndarray
    z: np.ndarray
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    kv0: np.ndarray
    z0: np.ndarray


def linear_attention(
    q,
    k,
    v,
    allowed=True,
    feature_map: FeatureMap = elu_plus_one,
    eps: float = 0.0,
    state=None,
    counted=None,
    answered=None,
    cotangents=None,
    normalize: bool = True,
) -> Linear:
    """(phi(q_i) . S_i) / (phi(q_i) . z_i + eps), S_i and z_i sums over keys in sight.

    normalize=False leaves out the division.
    state: what precedes the sums, (kv `*b g p e`, z `*b g p`). counted `*b s`: the
    keys that enter the state handed back. answered `*b t`: queries with an output.
    cotangents: those of (out, kv, z).
    """
    lead, (t, h, d) = q.shape[:-3], q.shape[-3:]
    s, g, e = v.shape[-3:]
    p = feature_map.phi(np.zeros((1, d))).shape[-1]
    b = int(np.prod(lead))
    qf, kf, vf = _flat(q), _flat(k), _flat(v)
    kv0 = np.zeros((b, g, p, e)) if state is None else np.array(state[0], np.float64)
    z0 = np.zeros((b, g, p)) if state is None else np.array(state[1], np.float64)
    kv0, z0 = kv0.reshape((b, g, p, e)), z0.reshape((b, g, p))
    sight = np.broadcast_to(allowed, (*lead, h, t, s)).reshape((b, h, t, s))
    counted = np.broadcast_to(True if counted is None else counted, (*lead, s))
    answered = np.broadcast_to(True if answered is None else answered, (*lead, t))
    counted, answered = counted.reshape((b, s)), answered.reshape((b, t))
    if cotangents is None:
        cotangents = np.zeros((b, t, h, e)), np.zeros_like(kv0), np.zeros_like(z0)
    cot = _flat(cotangents[0])
    cot_kv = np.array(cotangents[1], np.float64).reshape(kv0.shape)
    cot_z = np.array(cotangents[2], np.float64).reshape(z0.shape)

    out, dv, dq, dk = np.zeros_like(cot), np.zeros_like(vf), qf * 0, kf * 0
    dkv0, dz0 = np.zeros_like(kv0), np.zeros_like(z0)
    for x, j, i in np.ndindex(b, h, t):
        n = j // (h // g)
        seen = np.flatnonzero(sight[x, j, i])
        if not answered[x, i] or (seen.size == 0 and state is None):
            continue
        features = feature_map.phi(qf[x, i, j])
        keys, values = feature_map.phi(kf[x, seen, n]), vf[x, seen, n]
        kv, z = kv0[x, n].copy(), z0[x, n].copy()
        for key, value in zip(keys, values, strict=True):
            kv += np.outer(key, value)
            z += key
        numerator, denominator = features @ kv, float(features @ z) + eps
        if not normalize:
            denominator = 1.0
        if denominator == 0:
            continue
        out[x, i, j] = numerator / denominator

        d_numerator = cot[x, i, j] / denominator
        d_denominator = -float(cot[x, i, j] @ out[x, i, j]) / denominator
        d_denominator = d_denominator if normalize else 0.0
        d_features = kv @ d_numerator + z * d_denominator
        dq[x, i, j] = feature_map.pullback(qf[x, i, j], d_features)
        d_kv, d_z = np.outer(features, d_numerator), features * d_denominator
        dkv0[x, n] += d_kv
        dz0[x, n] += d_z
        for y, key in enumerate(seen):
            dv[x, key, n] += keys[y] @ d_kv
            dk[x, key, n] += feature_map.pullback(kf[x, key, n], d_kv @ values[y] + d_z)

    kv, z = kv0.copy(), z0.copy()
    for x, y, n in np.ndindex(b, s, g):
        if counted[x, y]:
            key = feature_map.phi(kf[x, y, n])
            kv[x, n] += np.outer(key, vf[x, y, n])
            z[x, n] += key
            dv[x, y, n] += key @ cot_kv[x, n]
            dk[x, y, n] += feature_map.pullback(
                kf[x, y, n], cot_kv[x, n] @ vf[x, y, n] + cot_z[x, n]
            )
    return Linear(
        out.reshape((*lead, t, h, e)),
        kv.reshape((*lead, g, p, e)),
        z.reshape((*lead, g, p)),
        dq.reshape(q.shape),
        dk.reshape(k.shape),
        dv.reshape(v.shape),
        (dkv0 + cot_kv).reshape((*lead, g, p, e)),
        (dz0 + cot_z).reshape((*lead, g, p)),
    )


def error(got, want) -> float:
    """|got - want| / |want|, Frobenius; |got - want| where want is 0 up to rounding.

    A NaN or an infinity that only one side has counts as an infinite error.
    """
    got, want = np.asarray(got).astype(np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, f"shape {got.shape} instead of {want.shape}"
    if not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return float("inf")
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return float("inf")
    size = float(np.linalg.norm(want[finite]))
    distance = float(np.linalg.norm(got[finite] - want[finite]))
    return distance if size < 1e-12 else distance / size


def assert_close(got, want, ceiling: float, what: str = "") -> None:
    """Fails where the relative error exceeds the ceiling, or one side alone is NaN."""
    measured = error(got, want)
    assert measured <= ceiling, f"{what} error {measured:.2e} exceeds {ceiling:.0e}"


def assert_same_bits(got, want, what: str = "") -> None:
    """Fails where shape, dtype or any value differs; 0 equals -0 and NaN nothing."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype, f"{what} dtype {got.dtype}, not {want.dtype}"
    np.testing.assert_array_equal(
        got.astype(np.float64), want.astype(np.float64), err_msg=what, strict=True
    )
    assert not np.isnan(got.astype(np.float64)).any(), f"{what} holds NaN"


def finite_differences(f: Callable[[np.ndarray], float], x, step=1e-5) -> np.ndarray:
    """The gradient of f at x, by central differences in float64."""
    x = np.array(x, np.float64)
    slope = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        here = x[index]
        x[index] = here + step
        above = f(x)
        x[index] = here - step
        slope[index] = (above - f(x)) / (2 * step)
        x[index] = here
    return slope
