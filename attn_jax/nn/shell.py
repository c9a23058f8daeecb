"""What stands around a mechanism, for whole sequences and for one token at a time."""

from typing import Any

from flax import nnx
from jaxtyping import Array, Float

from attn_jax.nn._naming import named_rngs
from attn_jax.nn.attention_config import AttentionConfig
from attn_jax.nn.dropout import dropout
from attn_jax.ops import exclude_self


class AttentionShell(nnx.Module):
    """W_v, W_o and the mechanism's parameters, with the way from heads to the output.

    What has this shell has one tree of parameters: `Attention` and the recurrent
    `LinearAttentionCell` load each other's.
    """

    def __init__(self, config: AttentionConfig, *, rngs: nnx.Rngs):
        self.config = config
        value, output, mechanism = named_rngs(rngs, "value", "output", "mechanism")
        g, e = config.kv_heads, config.values_dim
        options = config.projection_options()
        scaled = nnx.initializers.variance_scaling(
            config.output_scale**2, "fan_in", "truncated_normal"
        )
        self.value = nnx.LinearGeneral(config.d_model, (g, e), rngs=value, **options)
        self.output = nnx.LinearGeneral(
            (config.num_heads, e),
            config.d_model,
            axis=(-2, -1),
            kernel_init=scaled,
            rngs=output,
            **options,
        )
        self.mechanism = config.mechanism.build(config, rngs=mechanism)

    def _finish(
        self, y: Float[Array, "*b t h e"], v: Float[Array, "*b s g e"], rng: Any
    ) -> Float[Array, "*b t m"]:
        y = self.mechanism.finish(y)
        if self.config.exclusive:
            y = exclude_self(y, v)
        return dropout(self.output(y), self.config.dropout_rate, rng)
