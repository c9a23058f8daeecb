"""What exclusive attention is a cure for: outputs that point along their own value."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from attn_jax.models import Decoder, Encoder
from attn_jax.models.stack import Layer
from attn_jax.ops import softmax_attention
from attn_jax.ops._linear_masks import real_tokens
from attn_jax.ops._mask_rules import Segments
from attn_jax.ops._shapes import check_qkv, compute_dtype
from attn_jax.ops._vectors import unit
from attn_jax.ops.masks import Mask, as_mask, padding

# Columns of the weights that exist at once, on the way to their diagonal.
COLUMNS = 128

Weigh = Callable[[Array], Array]


class Similarity(NamedTuple):
    """Means over heads and real tokens: of one layer, or one number a layer.

    value_cosine: cos(v_i, v_j) of the values of one head and sequence, i ≠ j.
    diagonal_weight: a_ii, what a token's output takes of its own value.
    output_cosine: cos(y_i, v_i), y before the exclusive projection.
    """

    value_cosine: Float[Array, "..."]
    diagonal_weight: Float[Array, "..."]
    output_cosine: Float[Array, "..."]


def attention_similarity(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b t g d"],
    v: Float[Array, "*b t g e"],
    *,
    mask: Mask | None = None,
    center: bool = False,
) -> Similarity:
    """How much of softmax attention's output is the token's own value.

        mean cos(v_i, v_j), i ≠ j     mean a_ii     mean cos(y_i, v_i)
        y_i = Σ_j a_ij v_j

    over heads and real tokens i, and for the first over pairs of one sequence, which is
    a row without its padding, or one of its segments; rules such as `causal` decide
    what a is and not which pairs count. A vector without direction has cosine 0. A
    query head counts the value head it reads.

    Cost: that of attention twice over, and t x 128 weights a head at a time.

    Reference: Zhai 2026, figure 1.

    Args:
      q, k, v: of one layer, as they enter `softmax_attention`.
      center: takes the mean over the tokens of a sequence out of its values and its
        outputs before their cosines: what is left is not common to all tokens.

    Raises:
      ValueError: keys or values of other tokens than the queries.
    """
    check_qkv(q, k, v)
    t = q.shape[-3]
    if k.shape[-3] != t:
        raise ValueError(
            f"k: got {k.shape[-3]} tokens for q's {t}; expected the same ones, since a "
            "token of another sequence has no value of its own here"
        )
    return _of_softmax(q, k, v, as_mask(mask), center=center)


def layer_similarity(
    model: Decoder | Encoder,
    tokens: Int[Array, "*b t"],
    *,
    mask: Mask | None = None,
    center: bool = False,
) -> Similarity:
    """`attention_similarity` of every layer of a model, whatever its mechanism.

    The values are those that enter attention; the outputs are those of each head before
    the exclusive projection. Reduces to `attention_similarity` of the layer's q, k and
    v where the mechanism is softmax.

    Args:
      model: a decoder or an encoder, exclusive or not.
      tokens, mask: as in a call of the model.
      center: as in `attention_similarity`.

    Returns:
      A Similarity with one number a layer.
    """
    layers = [_of_layer(layer, center) for layer in model.layers(tokens, mask=mask)]
    return jax.tree.map(lambda *each: jnp.stack(each), *layers)


def _of_layer(layer: Layer, center: bool) -> Similarity:
    graph, state = nnx.split(layer.block)
    return _of_block(graph, state, layer.x, layer.around, center=center)


@partial(jax.jit, static_argnames=("graph", "center"))
def _of_block(
    graph: Any, state: Any, x: Array, around: dict[str, Any], *, center: bool
) -> Similarity:
    block: Any = nnx.merge(graph, state)
    x, attention = block.attention_input(x), block.attention
    v = attention.values(x, around["first"])
    told = {name: around[name] for name in ("mask", "positions")}

    def weigh(v: Array) -> Array:
        return attention.weigh(x, v, **told)

    y = attention.mechanism.finish(weigh(v))
    return _similarity(weigh, y, v, around["mask"], center)


@partial(jax.jit, static_argnames="center")
def _of_softmax(
    q: Array, k: Array, v: Array, mask: Mask, *, center: bool
) -> Similarity:
    def weigh(v: Array) -> Array:
        return softmax_attention(q, k, v, mask=mask)

    return _similarity(weigh, weigh(v), v, mask, center)


def _similarity(
    weigh: Weigh, y: Array, v: Array, mask: Mask, center: bool
) -> Similarity:
    """Of outputs *b t h e and values *b t g e, and what makes the one of the other."""
    *leading, t, h, _ = y.shape
    keys, queries = real_tokens(mask, tuple(leading), t, t)
    real = jnp.ones((*leading, t), bool)
    for some in (keys, queries):
        real = real if some is None else real & some
    # Tokens of one sequence: what the other rules forbid is a matter of the weights.
    sequence = Mask(mask.find(Segments)) & padding(real, real)
    diagonal = _diagonal(weigh, v, h)
    y, v = (jnp.asarray(x, compute_dtype(x)) for x in (y, v))
    if center:
        y, v = y - _means(y, sequence), v - _means(v, sequence)
    y, v = _units(y, real), _units(v, real)
    own = jnp.repeat(v, h // v.shape[-2], axis=-2)
    size = jnp.sum(sequence.allowed(t, t), axis=-1).reshape(*leading, t)
    # The sum over the other tokens of a sequence: size · mean - v_i.
    others = size[..., None] * jnp.sum(v * _means(v, sequence), axis=-1)
    others = others - jnp.sum(v * v, axis=-1)
    return Similarity(
        _mean(others, real, jnp.sum(jnp.where(real, size - 1, 0))),
        _mean(diagonal, real, jnp.sum(real)),
        _mean(jnp.sum(y * own, axis=-1), real, jnp.sum(real)),
    )


def _diagonal(weigh: Weigh, v: Float[Array, "*b t g e"], h: int) -> Array:
    """a_ii *b t h, from weights over a few keys at a time: sums of rows of identity."""
    *leading, t, g, _ = v.shape
    width = max(1, min(t, COLUMNS))

    def some(start: Array) -> Array:
        chosen = jnp.arange(t)[:, None] == (start + jnp.arange(width))[None, :]
        rows = jnp.broadcast_to(chosen[:, None, :], (*leading, t, g, width))
        columns = weigh(rows.astype(v.dtype)).astype(compute_dtype(v))
        return jnp.einsum("...thw,tw->...th", columns, chosen.astype(columns.dtype))

    starts = jnp.arange(0, t, width)
    none = jnp.zeros((*leading, t, h), compute_dtype(v))
    return jax.lax.scan(lambda sum, i: (sum + some(i), None), none, starts)[0]


def _means(x: Float[Array, "*b t h e"], sequence: Mask) -> Float[Array, "*b t h e"]:
    """The mean over the sequence of each token: attention with equal weights."""
    equal = jnp.zeros((*x.shape[:-1], 1), x.dtype)
    return softmax_attention(equal, equal, x, mask=sequence)


def _units(x: Float[Array, "*b t h e"], real: Array) -> Float[Array, "*b t h e"]:
    """Vectors of length 1; 0 at padding and where there is no direction."""
    x = jnp.where(real[..., None, None], x, 0)
    return jnp.apply_along_axis(unit, -1, x)


def _mean(x: Float[Array, "*b t h"], real: Array, count: Array) -> Float[Array, ""]:
    """The sum over heads and real tokens, over as many numbers as count in a head."""
    total = jnp.sum(jnp.where(real[..., None], x, 0))
    return total / jnp.maximum(x.shape[-1] * count, 1)
