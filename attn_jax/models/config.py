"""Sizes and choices of models: frozen, keyword-only, validated."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import jax.numpy as jnp

from attn_jax.nn import AttentionConfig, Mechanism, Softmax
from attn_jax.nn._checks import check_mechanism, check_optional_sizes, check_sizes

CHOICES = {
    "positions": (
        "rotary",
        "sinusoidal",
        "learned",
        "concatenated",
        "alibi",
        "none",
    ),
    "position_layout": ("interleaved", "concatenated"),
    "norm": ("layer", "rms"),
    "norm_placement": ("pre", "post"),
    "activation": ("gelu", "gelu_exact", "relu"),
}


@dataclass(frozen=True, kw_only=True)
class StackConfig:
    """What a stack of blocks needs to know.

    Attributes:
      vocab_size: number of tokens.
      max_length: the longest sequence.
      num_layers: blocks.
      d_model: width of the tokens.
      num_heads, num_kv_heads, head_dim, value_dim: as in `AttentionConfig`.
      d_ff: width of the feed-forward layers; None is 4 d_model.
      mechanism: a row of `MECHANISMS`; a Synthesizer without max_length takes the
        model's.
      exclusive: exclusive self-attention in every layer.
      positions: "rotary" turns queries and keys, "sinusoidal" and "learned" are added
        to the embeddings, "concatenated" puts sinusoidal ones of d_model / 2 features
        behind embeddings of as many, "alibi" is added to softmax logits. A Synthesizer
        has no queries to turn: its logits are indexed by position, "rotary" adds
        nothing.
      position_layout: of sinusoidal positions, the order of their columns:
        "interleaved", or "concatenated" with the sines first.
      dropout_rate: on embeddings and on each layer's output.
      tie_embeddings: logits from the transposed embedding; not with positions
        "concatenated", whose embedding is half as wide.
      embedding_scale: factor on the embeddings; None is 1. "sqrt" is sqrt(d_model),
        with initial embeddings of standard deviation 1 / sqrt(d_model): as in the 2017
        paper, tokens and positions then are of one size.
      qk_norm: RMS-normalises queries and keys.
      use_bias: biases in projections and norms.
      norm, norm_placement, norm_epsilon: "layer" or "rms", "pre" or "post".
      final_norm: a norm after the last block; None has one for pre-norm alone.
      activation: of the feed-forward layers; "gelu" is approximated by a tanh.
      scan_layers: one compiled block, scanned over stacked parameters; False unrolls.
      remat: recomputes each block in the backward pass, to save memory.
      dtype, param_dtype: of computation and of parameters.
    """

    vocab_size: int
    max_length: int
    num_layers: int
    d_model: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    value_dim: int | None = None
    d_ff: int | None = None
    mechanism: Mechanism = field(default_factory=Softmax)
    exclusive: bool = False
    positions: str = "rotary"
    position_layout: str = "interleaved"
    dropout_rate: float = 0.0
    tie_embeddings: bool = True
    embedding_scale: float | Literal["sqrt"] | None = None
    qk_norm: bool = False
    use_bias: bool = False
    norm: str = "layer"
    norm_placement: str = "pre"
    norm_epsilon: float = 1e-5
    final_norm: bool | None = None
    activation: str = "gelu"
    scan_layers: bool = True
    remat: bool = False
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "max_length", "num_layers")
        check_sizes(**{name: getattr(self, name) for name in sizes})
        check_optional_sizes(d_ff=self.d_ff)
        check_mechanism(self.mechanism)
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name}: got {getattr(self, name)!r}; expected one of "
                    f"{', '.join(map(repr, choices))}"
                )
        scale = self.embedding_scale
        if isinstance(scale, str) and scale != "sqrt":
            raise ValueError(
                f"embedding_scale: got {scale!r}; expected a number, 'sqrt' for "
                "sqrt(d_model), or None for 1"
            )
        self._check_concatenated()
        self.attention()

    def _check_concatenated(self) -> None:
        """Positions beside the embedding need two halves, and logits of their own."""
        if self.positions != "concatenated":
            return
        if self.d_model % 2:
            raise ValueError(
                f"d_model: got {self.d_model} with positions = 'concatenated'; "
                "expected an even number, half of it for tokens and half for "
                "positions; choose one, or other positions"
            )
        if self.tie_embeddings:
            raise ValueError(
                "tie_embeddings: got True with positions = 'concatenated'; expected "
                f"False, since an embedding of d_model / 2 = {self.d_model // 2} "
                f"features gives no logits from vectors of {self.d_model}; set "
                "tie_embeddings=False, or choose other positions"
            )

    def attention(self) -> AttentionConfig:
        """The attention layer of each block."""
        return AttentionConfig(
            d_model=self.d_model,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            value_dim=self.value_dim,
            mechanism=self.mechanism.for_length(self.max_length),
            exclusive=self.exclusive,
            rotary=self.positions == "rotary",
            alibi=self.positions == "alibi",
            qk_norm=self.qk_norm,
            use_bias=self.use_bias,
            dropout_rate=self.dropout_rate,
            output_scale=self.residual_scale,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
        )

    def cross_attention(self) -> AttentionConfig | None:
        """The layer of each block that attends to another sequence, if it has one."""
        return None

    @property
    def output_width(self) -> int:
        """Numbers that the model gives for each token."""
        return self.vocab_size

    @property
    def feed_forward_width(self) -> int:
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    @property
    def has_final_norm(self) -> bool:
        given = self.final_norm
        return self.norm_placement == "pre" if given is None else given

    @property
    def embedding_width(self) -> int:
        """Features of a token's embedding."""
        beside = self.positions == "concatenated"
        return self.d_model // 2 if beside else self.d_model

    @property
    def embedding_factor(self) -> float:
        """What embeddings are multiplied by."""
        scale = self.embedding_scale
        if isinstance(scale, str):
            return self.d_model**0.5
        return 1.0 if scale is None else scale

    @property
    def residual_scale(self) -> float:
        """1 / sqrt(residual branches): their sum keeps its variance at initialisation.

        Post-norm brings the sum back to its size after each of them: 1.
        """
        if self.norm_placement == "post":
            return 1.0
        return (self.branches * self.num_layers) ** -0.5

    @property
    def branches(self) -> int:
        """Residual branches of a block."""
        return 2


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(StackConfig):
    """A causal language model.

    Attributes:
      output_size: numbers given for each token, where the next one has another
        distribution than a softmax over vocab_size logits; None is vocab_size. Not with
        tie_embeddings, whose logits are as many as there are embeddings.
    """

    output_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_optional_sizes(output_size=self.output_size)
        if self.tie_embeddings and self.output_width != self.vocab_size:
            raise ValueError(
                f"tie_embeddings: got True with output_size = {self.output_size}; "
                f"expected False, since {self.vocab_size} embeddings give as many "
                "logits and nothing else; set tie_embeddings=False"
            )

    @property
    def output_width(self) -> int:
        return self.vocab_size if self.output_size is None else self.output_size


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(StackConfig):
    """A model of whole sequences, each token of which sees all others.

    Attributes:
      num_types: kinds of segments that have an embedding, 2 in BERT; 0 is none.
      embedding_norm: normalises the embeddings before dropout.
      pooling: what stands for a sequence: tanh(x W + b) of its "first" real token, of
        the "mean" of all real tokens, or "none" without a pooler.
      num_classes: outputs of the classifier on the pooled vector; None has none.
      masked_lm: whether there is a head that predicts tokens.
    """

    num_types: int = 0
    embedding_norm: bool = False
    pooling: str = "none"
    num_classes: int | None = None
    masked_lm: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(0, num_types=self.num_types)
        check_optional_sizes(num_classes=self.num_classes)
        if self.pooling not in ("none", "first", "mean"):
            raise ValueError(
                f"pooling: got {self.pooling!r}; expected one of 'none', 'first', "
                "'mean'"
            )
        if self.num_classes is not None and self.pooling == "none":
            raise ValueError(
                f"num_classes: got {self.num_classes} with pooling = 'none'; expected "
                "a vector to classify; set pooling='first' or pooling='mean'"
            )


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(StackConfig):
    """An encoder and a decoder that attends to it; the defaults are the 2017 paper's.

    The fields of `StackConfig` are those of both stacks, with one matrix of embeddings
    for source, target and, tied, output, and one table of learnt positions. max_length
    bounds source and target alike.
    Rotary and ALiBi positions stand in self-attention alone: source and target are
    counted apart.

    Attributes:
      mechanism: of the decoder's self-attention.
      encoder_mechanism: of the encoder's self-attention.
      cross_mechanism: of the decoder's attention to the encoder's output, `Softmax()`
        or `Linear()`.
      exclusive: of self-attention in both stacks.
      num_encoder_layers: None is num_layers, that of the decoder.
    """

    encoder_mechanism: Mechanism = field(default_factory=Softmax)
    cross_mechanism: Mechanism = field(default_factory=Softmax)
    num_encoder_layers: int | None = None
    positions: str = "sinusoidal"
    embedding_scale: float | Literal["sqrt"] | None = "sqrt"
    use_bias: bool = True
    norm_placement: str = "post"
    activation: str = "relu"

    def __post_init__(self) -> None:
        check_optional_sizes(num_encoder_layers=self.num_encoder_layers)
        check_mechanism(self.encoder_mechanism, "encoder_mechanism")
        check_mechanism(self.cross_mechanism, "cross_mechanism")
        if not self.cross_mechanism.cross:
            raise ValueError(
                f"cross_mechanism: got {type(self.cross_mechanism).__name__}; expected "
                "one that compares tokens with those of another sequence; use "
                "Softmax() or Linear()"
            )
        super().__post_init__()
        self.encoder()

    def encoder(self) -> StackConfig:
        """What the encoder's stack needs to know."""
        both: dict[str, Any] = {
            each.name: getattr(self, each.name) for each in fields(StackConfig)
        }
        both["mechanism"] = self.encoder_mechanism
        if self.num_encoder_layers is not None:
            both["num_layers"] = self.num_encoder_layers
        return StackConfig(**both)

    def cross_attention(self) -> AttentionConfig:
        return replace(
            self.attention(),
            mechanism=self.cross_mechanism,
            exclusive=False,
            rotary=False,
            alibi=False,
        )

    @property
    def branches(self) -> int:
        return 3
