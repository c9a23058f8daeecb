"""Multiply-adds and parameters of every mechanism, part by part.

What counts is the products of matrices, written as the equations say: one multiply-add
for each term of each sum, masked ones too. What is done entry by entry (softmax,
feature maps, norms, positions, `exclude_self`, biases, the weights of a mixture) is not
counted. One sequence; FLOPs are twice the multiply-adds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attn_jax.models.config import StackConfig
from attn_jax.nn import (
    AttentionConfig,
    DenseSynthesizer,
    FactorizedDenseSynthesizer,
    FactorizedRandomSynthesizer,
    Linear,
    Mechanism,
    MixtureSynthesizer,
    RandomSynthesizer,
    Softmax,
)
from attn_jax.nn._checks import check_sizes


@dataclass(frozen=True)
class Cost:
    """Multiply-adds for one sequence, and parameters."""

    multiply_adds: int = 0
    parameters: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.multiply_adds + other.multiply_adds,
            self.parameters + other.parameters,
        )

    def times(self, n: int) -> "Cost":
        """That of n layers."""
        return Cost(n * self.multiply_adds, n * self.parameters)


class AttentionCost(NamedTuple):
    """An attention layer's parts.

    projections: queries, keys, values and output, where there are such.
    scores: what makes t x s logits, or the state of linear attention.
    mixing: the weighted sum of values, or reading the state.
    """

    projections: Cost
    scores: Cost
    mixing: Cost

    @property
    def total(self) -> Cost:
        return sum(self, Cost())


class ModelCost(NamedTuple):
    """A model's parts, over all layers."""

    embedding: Cost
    projections: Cost
    scores: Cost
    mixing: Cost
    feed_forward: Cost
    norms: Cost
    logits: Cost

    @property
    def total(self) -> Cost:
        return sum(self, Cost())


def attention_flops(
    config: AttentionConfig, t: int, s: int | None = None
) -> AttentionCost:
    """Multiply-adds and parameters of an attention layer.

        softmax:   projections  t m h d + s m g d + s m g e + t h e m
                   scores       t s h d
                   mixing       t s h e

    With h d = h e = m and g = h this is 4 n m² + 2 n² m for n tokens, the formula of
    multi-head attention. Linear attention builds a state of p (e + 1) numbers a head in
    place of scores and reads it in place of mixing, as its equation without a mask
    does; chunks add products inside a chunk. A Synthesizer has no queries and keys to
    project: what makes its logits counts as scores.

    Reference: Vaswani et al. 2017, sections 3.2 and 4; the mechanisms' own papers.

    Args:
      config: of the layer; a Synthesizer in it has its max_length.
      t: queries.
      s: keys of cross-attention; None is self-attention, s = t.

    Raises:
      ValueError: lengths below 0 or above the mechanism's max_length.
      TypeError: a mechanism that has no count here.
    """
    s = t if s is None else s
    check_sizes(0, t=t, s=s)
    mechanism, limit = config.mechanism, config.mechanism.limit
    for name, length in (("t", t), ("s", s)):
        if limit is not None and length > limit:
            raise ValueError(
                f"{name}: got {length}; expected at most max_length = {limit}, the "
                "length this mechanism was built for; build it for a greater one"
            )
    m, h, g, e = config.d_model, config.num_heads, config.kv_heads, config.values_dim
    value = _linear(s, m, g * e, config.use_bias)
    output = _linear(t, h * e, m, config.use_bias)
    own = _count(mechanism)(mechanism, config, t, s)
    return AttentionCost(own.projections + value + output, own.scores, own.mixing)


def model_flops(config: StackConfig, t: int) -> ModelCost:
    """Multiply-adds and parameters of a stack of blocks with embedding and logits.

        feed-forward  2 t m f a layer;   logits  t m vocab

    Looking up an embedding multiplies nothing. Tied logits have no parameters of their
    own, so that the parts' parameters sum to `count_parameters(config)`.

    Args:
      config: of a Decoder.
      t: tokens of the sequence.

    Raises:
      As `attention_flops`.
    """
    n, m, f = config.num_layers, config.d_model, config.feed_forward_width
    attention = attention_flops(config.attention(), t)
    up = _linear(t, m, f, config.use_bias)
    down = _linear(t, f, m, config.use_bias)
    rows = config.vocab_size
    rows += config.max_length if config.positions == "learned" else 0
    shifted = config.norm == "layer" and config.use_bias
    norms = 2 * n + (config.norm_placement == "pre")
    head = 0 if config.tie_embeddings else m * config.vocab_size
    return ModelCost(
        embedding=Cost(0, rows * m),
        projections=attention.projections.times(n),
        scores=attention.scores.times(n),
        mixing=attention.mixing.times(n),
        feed_forward=(up + down).times(n),
        norms=Cost(0, norms * (2 * m if shifted else m)),
        logits=Cost(t * m * config.vocab_size, head),
    )


def _linear(n: int, width: int, out: int, bias: bool) -> Cost:
    """A projection of n tokens."""
    return Cost(n * width * out, width * out + (out if bias else 0))


def _queries_and_keys(config: AttentionConfig, t: int, s: int) -> Cost:
    m, d = config.d_model, config.key_dim
    query = _linear(t, m, config.num_heads * d, config.use_bias)
    key = _linear(s, m, config.kv_heads * d, config.use_bias)
    return query + key + Cost(0, 2 * d if config.qk_norm else 0)


def _mixing(config: AttentionConfig, t: int, s: int) -> Cost:
    return Cost(t * s * config.num_heads * config.values_dim)


def _softmax(_: Softmax, config: AttentionConfig, t: int, s: int) -> AttentionCost:
    scores = Cost(t * s * config.num_heads * config.key_dim)
    return AttentionCost(_queries_and_keys(config, t, s), scores, _mixing(config, t, s))


def _linear_attention(
    mechanism: Linear, config: AttentionConfig, t: int, s: int
) -> AttentionCost:
    one = jax.ShapeDtypeStruct((1, 1, config.key_dim), jnp.float32)
    p = jax.eval_shape(mechanism.feature_map, one).shape[-1]
    # The column of ones beside the values gives the normaliser.
    state = p * (config.values_dim + 1)
    return AttentionCost(
        _queries_and_keys(config, t, s),
        Cost(s * config.kv_heads * state),
        Cost(t * config.num_heads * state),
    )


def _random(
    mechanism: RandomSynthesizer, config: AttentionConfig, t: int, s: int
) -> AttentionCost:
    logits = Cost(0, config.num_heads * mechanism.length() ** 2)
    return AttentionCost(Cost(), logits, _mixing(config, t, s))


def _factorized_random(
    mechanism: FactorizedRandomSynthesizer, config: AttentionConfig, t: int, s: int
) -> AttentionCost:
    h, n, r = config.num_heads, mechanism.length(), mechanism.rank
    return AttentionCost(
        Cost(), Cost(t * s * h * r, 2 * h * n * r), _mixing(config, t, s)
    )


def _dense(
    mechanism: DenseSynthesizer, config: AttentionConfig, t: int, s: int
) -> AttentionCost:
    hidden, n = mechanism.hidden or config.key_dim, mechanism.length()
    shared = mechanism.share_heads
    scores = _two_layers(config, t, hidden, n, mechanism.bias, shared)
    return AttentionCost(Cost(), scores, _mixing(config, t, s))


def _factorized_dense(
    mechanism: FactorizedDenseSynthesizer, config: AttentionConfig, t: int, s: int
) -> AttentionCost:
    hidden, out = mechanism.hidden or config.key_dim, sum(mechanism.factors())
    scores = _two_layers(config, t, hidden, out, mechanism.bias, False)
    return AttentionCost(Cost(), scores, _mixing(config, t, s))


def _two_layers(
    config: AttentionConfig, t: int, hidden: int, out: int, bias: bool, shared: bool
) -> Cost:
    """Each head's two layers; all n columns of the second, also those past s."""
    h = config.num_heads
    first = _linear(t, config.d_model, hidden, bias).times(h)
    second = _linear(t, hidden, out, bias)
    parameters = second.parameters if shared else h * second.parameters
    return first + Cost(h * second.multiply_adds, parameters)


def _mixture(
    mechanism: MixtureSynthesizer, config: AttentionConfig, t: int, s: int
) -> AttentionCost:
    costs = [_count(member)(member, config, t, s) for member in mechanism.members]
    weights = config.num_heads * len(costs) if mechanism.normalize == "softmax" else 0
    return AttentionCost(
        sum((cost.projections for cost in costs), Cost()),
        sum((cost.scores for cost in costs), Cost(0, weights)),
        _mixing(config, t, s),
    )


COUNTS: dict[type[Mechanism], Callable[[Any, AttentionConfig, int, int], Any]] = {
    Softmax: _softmax,
    Linear: _linear_attention,
    RandomSynthesizer: _random,
    FactorizedRandomSynthesizer: _factorized_random,
    DenseSynthesizer: _dense,
    FactorizedDenseSynthesizer: _factorized_dense,
    MixtureSynthesizer: _mixture,
}


def _count(mechanism: Mechanism) -> Callable[..., AttentionCost]:
    """How a mechanism's own parts, without values and output, are counted."""
    for kind in type(mechanism).__mro__:
        if kind in COUNTS:
            return COUNTS[kind]
    raise TypeError(
        f"mechanism: got {type(mechanism).__name__}, which has no count; expected one "
        f"of {', '.join(kind.__name__ for kind in COUNTS)}; add its function to COUNTS "
        "in attn_jax/analysis/flops.py"
    )
