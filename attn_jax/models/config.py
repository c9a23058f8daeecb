"""Sizes and choices of models: what each adds to a stack of blocks."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from attn_jax.models.stack_config import StackConfig
from attn_jax.nn import AttentionConfig, Mechanism, Softmax
from attn_jax.nn._checks import check_mechanism, check_optional_sizes, check_sizes


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(StackConfig):
    """A causal language model.

    Attributes:
      embedding_norm: normalises the embeddings before dropout.
      output_size: numbers given for each token, where the next one has another
        distribution than a softmax over vocab_size logits; None is vocab_size. Not with
        tie_embeddings, whose logits are as many as there are embeddings.
    """

    embedding_norm: bool = False
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
            exclusive_gate=None,
            value_residual=False,
            rotary=False,
            alibi=False,
        )

    @property
    def branches(self) -> int:
        return 3
