"""What stands around a mechanism, for whole sequences and for one token at a time."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from attn_jax.nn._naming import named_rngs
from attn_jax.nn.attention_config import AttentionConfig
from attn_jax.nn.dropout import dropout
from attn_jax.nn.feed_forward import initial_kernel
from attn_jax.ops import exclude_self

GATES = {"tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid}


class AttentionShell(nnx.Module):
    """W_v, W_o and the mechanism's parameters, with the way from heads to the output.

    What has this shell has one tree of parameters: `Attention` and the recurrent
    `LinearAttentionCell` load each other's.
    """

    def __init__(self, config: AttentionConfig, *, rngs: nnx.Rngs):
        self.config = config
        value, output, mechanism, gate = named_rngs(
            rngs, "value", "output", "mechanism", "gate"
        )
        g, e = config.kv_heads, config.values_dim
        options = config.projection_options()
        scaled = initial_kernel(config.init_std, config.output_scale)
        self.value = nnx.LinearGeneral(config.d_model, (g, e), rngs=value, **options)
        self.output = nnx.LinearGeneral(
            (config.num_heads, e),
            config.d_model,
            axis=(-2, -1),
            rngs=output,
            **options | {"kernel_init": scaled},
        )
        if config.exclusive_gate is not None:
            zeros = jnp.zeros((config.num_heads,), config.param_dtype)
            self.exclusive_gate = nnx.Param(zeros)
        if config.output_gate:
            width, heads = config.d_model, (config.num_heads, e)
            self.output_gate = nnx.LinearGeneral(width, heads, rngs=gate, **options)
        if config.value_residual:
            self.first_share = nnx.Param(jnp.asarray(0.5, config.param_dtype))
        self.mechanism = config.mechanism.build(config, rngs=mechanism)

    def exclusive_strength(self) -> Float[Array, "h 1"] | None:
        """How much of its own value's direction each head takes out; None is all."""
        name = self.config.exclusive_gate
        if name is None:
            return None
        return GATES[name](self.exclusive_gate[...])[:, None]

    def values(
        self, x: Float[Array, "*b t m"], first: Float[Array, "*b t g e"] | None = None
    ) -> Float[Array, "*b t g e"]:
        """What enters attention: v, or v + λ (v_1 - v) beside the first layer's v_1.

        λ is learnt, a half at first.

        Reference: Zhou et al. 2024, section 4, with one number a layer.
        """
        v = self.value(x)
        if first is None or not self.config.value_residual:
            return v
        return v + self.first_share[...].astype(v.dtype) * (first - v)

    def _finish(
        self,
        x: Float[Array, "*b t m"],
        y: Float[Array, "*b t h e"],
        v: Float[Array, "*b s g e"],
        rng: Any,
    ) -> Float[Array, "*b t m"]:
        """From what the mechanism makes of x and v to the layer's output."""
        y = self.mechanism.finish(y)
        if self.config.exclusive:
            y = exclude_self(y, v, strength=self.exclusive_strength())
        return self._join(x, y, rng)

    def _join(
        self, x: Float[Array, "*b t m"], y: Float[Array, "*b t h e"], rng: Any
    ) -> Float[Array, "*b t m"]:
        """Heads to one vector a token, gated by it where the layer has a gate."""
        if self.config.output_gate:
            y = y * jax.nn.sigmoid(self.output_gate(x))
        return dropout(self.output(y), self.config.dropout_rate, rng)
