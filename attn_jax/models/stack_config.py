"""Sizes and choices of a stack of blocks: frozen, keyword-only, validated."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
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
    "remat": (False, True, "none", "block", "products"),
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
      exclusive: exclusive self-attention.
      exclusive_gate: as in `AttentionConfig`.
      exclusive_layers: which layers are exclusive, from 0, or from the end as in
        range(-3, 0), the last three; None is every layer. Each has parameters of its
        own then, as with scan_layers=False.
      output_gate, value_residual: as in `AttentionConfig`; the first layer is that of
        the stack.
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
      init_std: standard deviation of all initial projections, GPT-2's being 0.02; None
        is 1 / sqrt(features they read). Those that end a residual branch are smaller by
        1 / sqrt(branches) in either case.
      qk_norm: RMS-normalises queries and keys.
      use_bias: biases in projections and norms.
      norm, norm_placement, norm_epsilon: "layer" or "rms", "pre" or "post".
      final_norm: a norm after the last block; None has one for pre-norm alone.
      activation: of the feed-forward layers; "gelu" is approximated by a tanh.
      scan_layers: one compiled block, scanned over stacked parameters; False unrolls.
      remat: what the backward pass computes again, to save memory: "none", "block" for
        all of each block, or "products" for all but its products of matrices with
        parameters. False is "none", True is "block".
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
    exclusive_gate: str | None = None
    exclusive_layers: Sequence[int] | None = None
    output_gate: bool = False
    value_residual: bool = False
    positions: str = "rotary"
    position_layout: str = "interleaved"
    dropout_rate: float = 0.0
    tie_embeddings: bool = True
    embedding_scale: float | Literal["sqrt"] | None = None
    init_std: float | None = None
    qk_norm: bool = False
    use_bias: bool = False
    norm: str = "layer"
    norm_placement: str = "pre"
    norm_epsilon: float = 1e-5
    final_norm: bool | None = None
    activation: str = "gelu"
    scan_layers: bool = True
    remat: bool | str = False
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
        self._check_exclusive_layers()
        self.attention()

    def _check_exclusive_layers(self) -> None:
        """Each a layer that there is, once; kept as a tuple."""
        n, given = self.num_layers, self.exclusive_layers
        if given is None:
            return
        if isinstance(given, int):
            raise ValueError(
                f"exclusive_layers: got {given}, one number; expected the numbers of "
                f"layers; pass [{given}] for that layer, or range({-given}, 0) for the "
                f"last {given}"
            )
        # NumPy's whole numbers too, but no list of True and False.
        layers = tuple(
            int(i) if isinstance(i, Integral) and not isinstance(i, bool) else i
            for i in given
        )
        if not self.exclusive:
            raise ValueError(
                f"exclusive_layers: got {layers} with exclusive = False; expected "
                "None; set exclusive=True, and these layers alone are exclusive"
            )
        if not all(type(i) is int and -n <= i < n for i in layers):
            raise ValueError(
                f"exclusive_layers: got {layers} for num_layers = {n}; expected whole "
                f"numbers from 0 to {n - 1}, or from {-n} to -1 to count from the end"
            )
        if len({i % n for i in layers}) < len(layers):
            raise ValueError(
                f"exclusive_layers: got {layers} for num_layers = {n}, where a layer "
                "stands twice; expected each once"
            )
        object.__setattr__(self, "exclusive_layers", layers)

    def at(self, layer: int) -> "StackConfig":
        """The config of one layer, where they differ."""
        chosen = self.exclusive_layers
        if chosen is None or {layer, layer - self.num_layers} & {*chosen}:
            return replace(self, exclusive_layers=None)
        plain = {"exclusive": False, "exclusive_gate": None}
        return replace(self, exclusive_layers=None, **plain)

    @property
    def scanned(self) -> bool:
        """Whether the blocks' parameters are stacked: all layers are alike."""
        return self.scan_layers and self.exclusive_layers is None

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
            exclusive_gate=self.exclusive_gate,
            output_gate=self.output_gate,
            value_residual=self.value_residual,
            rotary=self.positions == "rotary",
            alibi=self.positions == "alibi",
            qk_norm=self.qk_norm,
            use_bias=self.use_bias,
            dropout_rate=self.dropout_rate,
            init_std=self.init_std,
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
