"""Multiply-adds and parameters of every mechanism and model, part by part.

What counts is the products of matrices, written as the equations say: one multiply-add
for each term of each sum, masked ones too. What is done entry by entry (softmax,
feature maps, norms, positions, `exclude_self`, biases, the weights of a mixture) is not
counted. One sequence; FLOPs are twice the multiply-adds.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attn_jax.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    StackConfig,
)
from attn_jax.models.tokens import check_length
from attn_jax.nn import (
    LSH,
    AttentionConfig,
    BottleneckSynthesizer,
    ConvolutionSynthesizer,
    DenseSynthesizer,
    FactorizedDenseSynthesizer,
    FactorizedRandomSynthesizer,
    GatedSynthesizer,
    Linear,
    Mechanism,
    MixtureSynthesizer,
    Partial,
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
        return _sum(self)

    def times(self, n: int) -> "AttentionCost":
        """That of n layers."""
        return AttentionCost(*(part.times(n) for part in self))


NO_ATTENTION = AttentionCost(Cost(), Cost(), Cost())


class StackCost(NamedTuple):
    """The parts of a stack of blocks, over all its layers.

    attention: of a sequence to itself.
    cross: to another sequence; 0 where the blocks have no such layer.
    norms: the last one included.
    """

    attention: AttentionCost
    cross: AttentionCost
    feed_forward: Cost
    norms: Cost

    @property
    def total(self) -> Cost:
        return _sum((self.attention.total, self.cross.total, *self[2:]))


class ModelCost(NamedTuple):
    """A model's parts, over all layers of its stacks; `stack_flops` has each of them.

    projections, scores, mixing: of all attention, that to another sequence included.
    logits: of tokens.
    heads: what else an Encoder puts on its stack.
    """

    embedding: Cost
    projections: Cost
    scores: Cost
    mixing: Cost
    feed_forward: Cost
    norms: Cost
    logits: Cost
    heads: Cost = Cost()

    @property
    def total(self) -> Cost:
        return _sum(self)


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
    does; chunks add products inside a chunk. LSH attention has one projection for
    queries and keys, scores and mixing of each chunk with itself and the one before,
    and hashes among its scores. A Synthesizer has no queries and keys to
    project: what makes its logits counts as scores. An output gate takes t m h e among
    the projections.

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
    output = _linear(t, h * e, m, config.use_bias) + _gates(config, t)
    own = _count(mechanism)(mechanism, config, t, s)
    return AttentionCost(own.projections + value + output, own.scores, own.mixing)


def _gates(config: AttentionConfig, t: int) -> Cost:
    """The projection of an output gate, and numbers that are learnt one by one."""
    h, e = config.num_heads, config.values_dim
    single = (0 if config.exclusive_gate is None else h) + config.value_residual
    if not config.output_gate:
        return Cost(0, single)
    return _linear(t, config.d_model, h * e, config.use_bias) + Cost(0, single)


def stack_flops(config: StackConfig, t: int, s: int | None = None) -> StackCost:
    """Multiply-adds and parameters of a stack of blocks.

        feed-forward  2 t m f a layer

    The values that a value residual takes from the first layer count once.

    Args:
      config: of a model, which is that of its last stack; `config.encoder()` is that of
        the first one of an encoder-decoder.
      t: tokens that go through the blocks.
      s: tokens of the context of an encoder-decoder's decoder; None is s = t.

    Raises:
      ValueError: s for blocks that attend to no context; else as `attention_flops`.
      TypeError: as `attention_flops`.
    """
    other = config.cross_attention()
    if other is None and s is not None:
        raise ValueError(
            f"s: got {s} for {type(config).__name__}; expected None: its blocks attend "
            "to no other sequence, t is the length of the only one"
        )
    n, m, f = config.num_layers, config.d_model, config.feed_forward_width
    layers = [attention_flops(config.at(i).attention(), t) for i in range(n)]
    attention = AttentionCost(*map(_sum, zip(*layers, strict=True)))
    cross = NO_ATTENTION if other is None else attention_flops(other, t, s)
    up = _linear(t, m, f, config.use_bias)
    down = _linear(t, f, m, config.use_bias)
    norms = config.branches * n + config.has_final_norm
    return StackCost(
        attention=_without_repeats(config, attention),
        cross=cross.times(n),
        feed_forward=(up + down).times(n),
        norms=_norm(config).times(norms),
    )


def model_flops(config: StackConfig, t: int, s: int | None = None) -> ModelCost:
    """Multiply-adds and parameters of a model.

        Decoder         stack(t) and t m vocab, or t m output_size
        Encoder         stack(t) and, where it has the heads,
                        t m² + t m vocab for tokens, m² + m classes for the sequence
        EncoderDecoder  encoder(s), decoder(t, s) and t m vocab

    With n layers in either stack, softmax and h d = h e = m, an encoder takes
    n (4 s m² + 2 s² m + 2 s m f) and a decoder
    n (4 t m² + 2 t² m + 2 t m² + 2 s m² + 2 t s m + 2 t m f).

    Looking up an embedding and taking a mean multiply nothing. Tied logits have no
    parameters of their own, so that the parts' parameters sum to
    `count_parameters(config)`.

    Reference: Vaswani et al. 2017, section 3; Devlin et al. 2019, section 3.

    Args:
      config: of a Decoder, an Encoder or an EncoderDecoder.
      t: tokens of the sequence; for an EncoderDecoder of the target, bos included.
      s: tokens of an EncoderDecoder's source; None is s = t.

    Raises:
      ValueError: lengths below 0 or above max_length; s for a model of one sequence.
      TypeError: a config of no model here, or a mechanism that has no count.
    """
    if not isinstance(config, DecoderConfig | EncoderConfig | EncoderDecoderConfig):
        raise TypeError(
            f"config: got {type(config).__name__}; expected DecoderConfig, "
            "EncoderConfig or EncoderDecoderConfig; stack_flops counts blocks alone"
        )
    stacks = []
    if isinstance(config, EncoderDecoderConfig):
        s = t if s is None else s
        check_sizes(0, s=s)
        check_length("s", s, config)
        stacks = [stack_flops(config.encoder(), s)]
    check_sizes(0, t=t)
    check_length("t", t, config)
    stacks.append(stack_flops(config, t, s))
    layers = [layer for stack in stacks for layer in (stack.attention, stack.cross)]
    norms, logits, heads = _ends(config, t)
    return ModelCost(
        embedding=Cost(0, _embeddings(config)),
        projections=_sum(layer.projections for layer in layers),
        scores=_sum(layer.scores for layer in layers),
        mixing=_sum(layer.mixing for layer in layers),
        feed_forward=_sum(stack.feed_forward for stack in stacks),
        norms=_sum(stack.norms for stack in stacks) + norms,
        logits=logits,
        heads=heads,
    )


def _embeddings(config: StackConfig) -> int:
    """Numbers in the embeddings of tokens, positions and types."""
    places = config.max_length if config.positions == "learned" else 0
    types = config.num_types if isinstance(config, EncoderConfig) else 0
    tokens = config.vocab_size * config.embedding_width
    return tokens + (places + types) * config.d_model


def _ends(config: StackConfig, t: int) -> tuple[Cost, Cost, Cost]:
    """Norms outside the stacks, logits of tokens, and what else is on the stack."""
    m, vocab = config.d_model, config.output_width
    logits = Cost(t * m * vocab, 0 if config.tie_embeddings else m * vocab)
    norms = heads = Cost()
    if isinstance(config, DecoderConfig | EncoderConfig) and config.embedding_norm:
        norms += _norm(config)
    if not isinstance(config, EncoderConfig):
        return norms, logits, heads
    if config.masked_lm:
        norms += _norm(config)
        logits += Cost(0, vocab)
        heads += _linear(t, m, m, True)
    else:
        logits = Cost(0, logits.parameters)
    if config.pooling != "none":
        heads += _linear(1, m, m, True)
    if config.num_classes is not None:
        heads += _linear(1, m, config.num_classes, True)
    return norms, logits, heads


def _sum(costs: Iterable[Cost]) -> Cost:
    return sum(costs, Cost())


def _norm(config: StackConfig) -> Cost:
    """A scale and, where there is one, a shift."""
    shifted = config.norm == "layer" and config.use_bias
    return Cost(0, config.d_model * (2 if shifted else 1))


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
    e, divides = config.values_dim, mechanism.normalize
    # The column of ones beside the values gives the normaliser. A state has it even
    # where nothing is divided by it; a norm with a scale is there instead.
    return AttentionCost(
        _queries_and_keys(config, t, s),
        Cost(s * config.kv_heads * p * (e + 1)),
        Cost(t * config.num_heads * p * (e + divides), 0 if divides else e),
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
    """Each head's two layers; of the second, only the columns of the s keys."""
    return AttentionCost(
        Cost(), _two_layers(mechanism, config, t, s), _mixing(config, t, s)
    )


def _factorized_dense(
    mechanism: FactorizedDenseSynthesizer, config: AttentionConfig, t: int, s: int
) -> AttentionCost:
    scores = _two_layers(mechanism, config, t, mechanism.outputs())
    return AttentionCost(Cost(), scores, _mixing(config, t, s))


def _gated(
    mechanism: GatedSynthesizer, config: AttentionConfig, t: int, s: int
) -> AttentionCost:
    h, width, hidden = mechanism.first_shape(config)
    gate = _linear(t, width, hidden, mechanism.bias).times(h)
    scores = _two_layers(mechanism, config, t, s) + gate
    return AttentionCost(Cost(), scores, _mixing(config, t, s))


def _two_layers(
    mechanism: DenseSynthesizer, config: AttentionConfig, t: int, columns: int
) -> Cost:
    """t tokens through a dense Synthesizer, to so many columns of its second layer."""
    *taps, h, width, hidden = mechanism.first_shape(config)
    first = _linear(t, math.prod((*taps, width)), hidden, mechanism.bias).times(h)
    heads, _, outputs = mechanism.second_shape(config)
    second = _linear(t, hidden, outputs, mechanism.bias).times(heads)
    return first + Cost(t * h * hidden * columns, second.parameters)


def _mixture(
    mechanism: MixtureSynthesizer, config: AttentionConfig, t: int, s: int
) -> AttentionCost:
    costs = [_count(member)(member, config, t, s) for member in mechanism.members]
    weights = config.num_heads * mechanism.weights_per_head
    return AttentionCost(
        _sum(cost.projections for cost in costs),
        _sum(cost.scores for cost in costs) + Cost(0, weights),
        _mixing(config, t, s),
    )


def _lsh(mechanism: LSH, config: AttentionConfig, t: int, s: int) -> AttentionCost:
    """Each chunk with the one before, the first too; hashes count as scores."""
    h, d, rounds = config.num_heads, config.key_dim, mechanism.num_rounds
    size = min(mechanism.bucket_size, t)
    pairs, hashes = t * t, 0
    if size < t:
        columns = -(-t // (2 * size))
        blocks = -(-columns // size)
        pairs = rounds * -(-t // size) * size * 2 * size
        hashes = rounds * t * blocks * min(columns, size) * d
    query = _linear(t, config.d_model, h * d, config.use_bias)
    return AttentionCost(
        query + Cost(0, d if config.qk_norm else 0),
        Cost(h * (hashes + pairs * d)),
        Cost(h * pairs * config.values_dim),
    )


def _partial(
    mechanism: Partial, config: AttentionConfig, t: int, s: int
) -> AttentionCost:
    """r scores a query and all logits from them; XLA computes whole rows of small s."""
    h, r = config.num_heads, mechanism.chosen().shape[-1]
    known = t * h * r * config.key_dim
    scores = Cost(known + t * s * h * r, _map_size(mechanism, h))
    return AttentionCost(_queries_and_keys(config, t, s), scores, _mixing(config, t, s))


def _map_size(mechanism: Partial, heads: int) -> int:
    """Numbers of R, c and the mean."""
    n, r = mechanism.length(), mechanism.chosen().shape[-1]
    one = n * (n * r + n + r)
    return one if mechanism.share_heads else heads * one


def _without_repeats(config: StackConfig, cost: AttentionCost) -> AttentionCost:
    """The layers' cost, in which a map that they share counts once."""
    own = config.attention().mechanism
    if not (isinstance(own, Partial) and own.share_layers):
        return cost
    again = (config.num_layers - 1) * _map_size(own, config.num_heads)
    return cost._replace(scores=cost.scores + Cost(0, -again))


COUNTS: dict[type[Mechanism], Callable[[Any, AttentionConfig, int, int], Any]] = {
    Softmax: _softmax,
    Linear: _linear_attention,
    RandomSynthesizer: _random,
    FactorizedRandomSynthesizer: _factorized_random,
    DenseSynthesizer: _dense,
    FactorizedDenseSynthesizer: _factorized_dense,
    ConvolutionSynthesizer: _dense,
    BottleneckSynthesizer: _dense,
    GatedSynthesizer: _gated,
    MixtureSynthesizer: _mixture,
    LSH: _lsh,
    Partial: _partial,
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
