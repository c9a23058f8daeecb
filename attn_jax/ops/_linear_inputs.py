"""What the forms of linear attention share: mapped inputs, running sums, division."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from attn_jax.ops._linear_masks import per_token, real_tokens, runs
from attn_jax.ops._mask_rules import Segments
from attn_jax.ops._shapes import check_qkv, compute_dtype
from attn_jax.ops.feature_maps import FeatureMap
from attn_jax.ops.masks import Mask


class CausalInputs(NamedTuple):
    """Features after phi and after the mask, values with a column of ones."""

    q: Float[Array, "*b t g r p"]
    k: Float[Array, "*b t g p"]
    v: Float[Array, "*b t g e1"]
    run: Int[Array, "*b t"] | None  # which segment the sums after a token belong to
    sees: Bool[Array, "*b t"] | None  # queries with at least one visible key


def causal_inputs(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b t g d"],
    v: Float[Array, "*b t g e"],
    mask: Mask,
    feature_map: FeatureMap,
    carried: bool = False,
) -> CausalInputs:
    """Maps, masks and groups the inputs of the causal forms."""
    check_qkv(q, k, v)
    leading = q.shape[:-3]
    t, h = q.shape[-3:-1]
    real_k, sees, run = what_counts(mask, leading, t, carried)
    dtype = compute_dtype(q, k, v)
    phi_q = features(q, sees, feature_map, dtype)
    phi_k = features(k, real_k, feature_map, dtype)
    dtype = jnp.promote_types(dtype, phi_k.dtype)
    g = k.shape[-2]
    phi_q = phi_q.reshape(*leading, t, g, h // g, phi_q.shape[-1])
    v = with_ones(keep(v, real_k).astype(dtype))
    return CausalInputs(phi_q.astype(dtype), phi_k.astype(dtype), v, run, sees)


def features(
    x: Float[Array, "*b t h d"],
    real: Bool[Array, "*b t"] | None,
    feature_map: FeatureMap,
    dtype: Any,
) -> Float[Array, "*b t h p"]:
    """phi(x), and 0 at tokens that are not real.

    phi(0) is not 0, so they are masked after phi; they are cleaned before it too, since
    the gradient of phi at NaN times 0 is NaN.
    """
    return keep(feature_map(keep(x, real).astype(dtype)), real)


def what_counts(
    mask: Mask, leading: tuple[int, ...], t: int, carried: bool
) -> tuple[Any, Any, Any]:
    """Keys that are real, queries that see some key, runs: Bool, Bool and Int[*b t].

    None where all count, all see, there is one run. carried: whether sums over earlier
    tokens come in, so that a query sees something even if no key of its own.
    """
    real, real_q = real_tokens(mask, leading, t, t)
    ids = [
        per_token(rule.queries, leading, t, "segments") for rule in mask.find(Segments)
    ]
    run, sees = runs(real, ids[0] if ids else None, t, carried)
    if real_q is not None:
        sees = real_q if sees is None else sees & real_q
    return real, sees, run


def with_ones(v: Float[Array, "*b e"]) -> Float[Array, "*b e1"]:
    """v with a column of ones: the sum over it is the denominator."""
    return jnp.concatenate([v, jnp.ones((*v.shape[:-1], 1), v.dtype)], axis=-1)


def normalise(
    num: Float[Array, "*b e"], den: Float[Array, "*b 1"], eps: Any
) -> Float[Array, "*b e"]:
    """Numerator over denominator; 0 where the denominator is 0.

    With eps=None the denominator is clamped at the smallest normal number. A numerator
    that overflowed passes through undivided, so that 0 times it is never formed in the
    gradient of another row.
    """
    if eps is not None:
        den = den + eps
    some = den != 0
    tiny = jnp.finfo(den.dtype).tiny
    den = jnp.where(jnp.abs(den) < tiny, jnp.where(den < 0, -tiny, tiny), den)
    den = jnp.where(some, den, 1)
    finite = jnp.isfinite(num)
    ratio = jnp.where(finite, num, 0) / den
    return jnp.where(some, jnp.where(finite, ratio, num), 0)


def keep(x: Array, real: Bool[Array, "*b t"] | None) -> Array:
    """x: *b t h d with 0 at tokens that are not real."""
    return x if real is None else jnp.where(real[..., None, None], x, 0)


class LinearState(NamedTuple):
    """The sums S and z over the keys so far, the current one included."""

    kv: Float[Array, "*b g p e"]
    k: Float[Array, "*b g p"]


def running_sum(terms: Array, begins: Array | None, axis: int) -> Array:
    """Prefix sums along an axis, restarted where `begins`, of as many axes, is True."""
    if begins is None:
        return jax.lax.associative_scan(jnp.add, terms, axis=axis)

    def combine(left, right):
        (begins_l, sum_l), (begins_r, sum_r) = left, right
        return begins_l | begins_r, jnp.where(begins_r, sum_r, sum_l + sum_r)

    return jax.lax.associative_scan(combine, (begins, terms), axis=axis)[1]


def begins_at(run: Int[Array, "*b n"] | None) -> Bool[Array, "*b n"] | None:
    """Whether the run changes at each entry; the first continues the empty sum."""
    if run is None:
        return None
    return jnp.diff(run, axis=-1, prepend=run[..., :1]) != 0


def initial_sums(
    state: LinearState | None, mask: Mask, sizes: tuple[int, ...], dtype: Any
) -> LinearState:
    """The sums before the first token, checked against `*b g p e` of what follows."""
    if state is None:
        return LinearState(jnp.zeros(sizes, dtype), jnp.zeros(sizes[:-1], dtype))
    if mask.find(Segments):
        raise ValueError(
            "initial_state: got a state together with segments; expected one of them, "
            "since it is not known which segment the state belongs to; start a row "
            "with a new segment, or pass the pieces of one segment without ids"
        )
    check_state("initial_state", state)
    if state.kv.shape != sizes or state.k.shape != sizes[:-1]:
        raise ValueError(
            f"initial_state: got kv of shape {state.kv.shape} and k of shape "
            f"{state.k.shape}; expected {sizes} and {sizes[:-1]}, *b g p e and "
            "*b g p of these inputs after the feature map; pass the state that an "
            "earlier piece of the same rows returned"
        )
    return LinearState(state.kv.astype(dtype), state.k.astype(dtype))


def check_state(name: str, state: Any) -> None:
    """A LinearState, not a tuple that looks like one."""
    if not isinstance(state, LinearState):
        raise TypeError(
            f"{name}: got {type(state).__name__}; expected a LinearState, such as an "
            "earlier piece or step returned; the first is zeros, LinearState(kv: "
            "*b g p e, k: *b g p)"
        )


def split_sums(sums: Float[Array, "*b g p e1"]) -> LinearState:
    return LinearState(kv=sums[..., :-1], k=sums[..., -1])


def finish(
    sums: Float[Array, "*b t g r e1"],
    sees: Bool[Array, "*b t"] | None,
    v: Float[Array, "*b s g e"],
    eps: float | Float[Array, ""] | None,
    normalize: bool,
) -> Float[Array, "*b t h e"]:
    """Divides, joins the heads, gives 0 to blind queries, returns the dtype of v."""
    *leading, t, g, r, _ = sums.shape
    num, den = sums[..., :-1], sums[..., -1:]
    out = normalise(num, den, eps) if normalize else num
    out = out.reshape(*leading, t, g * r, v.shape[-1])
    if sees is not None:
        out = jnp.where(sees[..., None, None], out, 0)
    return out.astype(v.dtype)
