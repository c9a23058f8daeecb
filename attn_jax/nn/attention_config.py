"""Sizes and choices of an attention layer."""

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from attn_jax.nn._checks import (
    check_exclusive_gate,
    check_init_std,
    check_mechanism,
    check_optional_sizes,
    check_sizes,
)
from attn_jax.nn.core import Mechanism
from attn_jax.nn.feed_forward import initial_kernel
from attn_jax.nn.softmax import Softmax


@dataclass(frozen=True)
class AttentionConfig:
    """Sizes and choices of an attention layer.

    Attributes:
      d_model: width of the tokens.
      num_heads: query heads h.
      num_kv_heads: key/value heads g, a divisor of h; None is h.
      head_dim: features d of a query and key head; None is d_model // num_heads.
      value_dim: features e of a value head; None is head_dim.
      mechanism: a row of `MECHANISMS`.
      exclusive: takes each token's own value direction out of its output (XSA).
      exclusive_gate: how much of it, learnt for each head: "tanh" of a number that is
        0 at first, or "sigmoid", a half at first; None takes all of it.
      output_gate: multiplies what heads give, exclusive or not, by sigmoid(x W), a
        number a feature (Qiu et al. 2025).
      value_residual: mixes values with those of the stack's first layer, half and half
        at first; what comes out enters attention and is what exclusion takes for a
        token's own value (Zhou et al. 2024). A layer alone is the first.
      rotary: turns queries and keys by their positions (before a feature map).
      rotary_base: the longest wavelength over 2 pi.
      alibi: adds -slope |i - j| to softmax logits.
      qk_norm: RMS-normalises queries and keys, with learnt scales.
      use_bias: biases in the projections.
      dropout_rate: of the layer's output, before the residual sum.
      init_std: standard deviation of the initial projections; None is
        1 / sqrt(features they read).
      output_scale: factor on the initial output projection.
      dtype, param_dtype: of computation and of parameters.
    """

    d_model: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    value_dim: int | None = None
    mechanism: Mechanism = field(default_factory=Softmax)
    exclusive: bool = False
    exclusive_gate: str | None = None
    output_gate: bool = False
    value_residual: bool = False
    rotary: bool = False
    rotary_base: float = 10000.0
    alibi: bool = False
    qk_norm: bool = False
    use_bias: bool = False
    dropout_rate: float = 0.0
    init_std: float | None = None
    output_scale: float = 1.0
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        check_sizes(d_model=self.d_model, num_heads=self.num_heads)
        optional = ("num_kv_heads", "head_dim", "value_dim")
        check_optional_sizes(**{name: getattr(self, name) for name in optional})
        check_mechanism(self.mechanism)
        check_exclusive_gate(self.exclusive, self.exclusive_gate)
        check_init_std(self.init_std)
        if self.num_heads % self.kv_heads:
            raise ValueError(
                f"num_kv_heads: got {self.num_kv_heads} for num_heads = "
                f"{self.num_heads}; expected a divisor of num_heads, so that each "
                "key/value head serves as many query heads; 1 always is"
            )
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ValueError(
                f"num_heads: got {self.num_heads} for d_model = {self.d_model}; "
                "expected a divisor of d_model; choose one, or set head_dim"
            )
        if self.rotary and self.key_dim % 2:
            raise ValueError(
                f"head_dim: got {self.key_dim}; expected an even number, since rotary "
                "positions turn pairs of features; set an even head_dim, or choose "
                "other positions"
            )
        if not self.rotary_base > 0:
            raise ValueError(
                f"rotary_base: got {self.rotary_base}; expected a number > 0, such as "
                "10000, the longest wavelength over 2 pi"
            )
        if not 0.0 <= self.dropout_rate < 1.0:
            raise ValueError(
                f"dropout_rate: got {self.dropout_rate}; expected a number in [0, 1), "
                "the share of entries dropped; 0 turns dropout off"
            )

    def projection_options(self) -> dict[str, Any]:
        """What every projection of the layer has in common."""
        return {
            "kernel_init": initial_kernel(self.init_std),
            "use_bias": self.use_bias,
            "dtype": self.dtype,
            "param_dtype": self.param_dtype,
        }

    @property
    def kv_heads(self) -> int:
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def key_dim(self) -> int:
        whole = self.d_model // self.num_heads
        return whole if self.head_dim is None else self.head_dim

    @property
    def values_dim(self) -> int:
        return self.key_dim if self.value_dim is None else self.value_dim
