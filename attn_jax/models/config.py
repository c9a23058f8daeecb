"""Sizes and choices of models: frozen, keyword-only, validated."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax.numpy as jnp

from attn_jax.nn import AttentionConfig, Mechanism, Softmax
from attn_jax.nn._checks import check_mechanism, check_sizes

CHOICES = {
    "positions": ("rotary", "sinusoidal", "learned", "alibi", "none"),
    "norm": ("layer", "rms"),
    "norm_placement": ("pre", "post"),
    "activation": ("gelu", "relu"),
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
        to the embeddings, "alibi" is added to softmax logits. A Synthesizer has no
        queries to turn: its logits are indexed by position, "rotary" adds nothing.
      dropout_rate: on embeddings and on each layer's output.
      tie_embeddings: logits from the transposed embedding.
      embedding_scale: factor on the embeddings; None is 1.
      qk_norm: RMS-normalises queries and keys.
      use_bias: biases in projections and norms.
      norm, norm_placement, norm_epsilon: "layer" or "rms", "pre" or "post".
      activation: of the feed-forward layers.
      scan_layers: one compiled block, scanned over stacked parameters; False unrolls.
      remat: recomputes each block in the backward pass, to save memory.
      dtype, param_dtype: of computation and of parameters.
    """

    causal: ClassVar[bool] = False

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
    dropout_rate: float = 0.0
    tie_embeddings: bool = True
    embedding_scale: float | None = None
    qk_norm: bool = False
    use_bias: bool = False
    norm: str = "layer"
    norm_placement: str = "pre"
    norm_epsilon: float = 1e-5
    activation: str = "gelu"
    scan_layers: bool = True
    remat: bool = False
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "max_length", "num_layers", "d_ff")
        check_sizes(**{name: getattr(self, name) for name in sizes})
        check_mechanism(self.mechanism)
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name}: got {getattr(self, name)!r}; expected one of "
                    f"{', '.join(map(repr, choices))}"
                )
        self.attention()

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

    @property
    def feed_forward_width(self) -> int:
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    @property
    def residual_scale(self) -> float:
        """1 / sqrt(2 layers): the residual sum keeps its variance at initialisation."""
        return (2 * self.num_layers) ** -0.5


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(StackConfig):
    """A causal language model."""

    causal: ClassVar[bool] = True
