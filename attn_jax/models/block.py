"""A transformer block: attention, then a feed-forward layer, each with a residual."""

from typing import Any

import jax
from flax import nnx
from jaxtyping import Array, Bool, Float, Key

from attn_jax.models.config import StackConfig
from attn_jax.nn import Attention, FeedForward, dropout
from attn_jax.nn._naming import named_rngs
from attn_jax.ops.masks import Mask


def make_norm(config: StackConfig, rngs: nnx.Rngs) -> nnx.LayerNorm | nnx.RMSNorm:
    """The config's normalisation over d_model."""
    options: dict[str, Any] = {
        "epsilon": config.norm_epsilon,
        "dtype": config.dtype,
        "param_dtype": config.param_dtype,
        "rngs": rngs,
    }
    if config.norm == "rms":
        return nnx.RMSNorm(config.d_model, **options)
    return nnx.LayerNorm(config.d_model, use_bias=config.use_bias, **options)


class Block(nnx.Module):
    """Pre-norm: x + f(norm(x)). Post-norm: norm(x + f(x)), as in the 2017 paper."""

    def __init__(self, config: StackConfig, *, rngs: nnx.Rngs):
        attention, forward, norms = named_rngs(rngs, "attention", "forward", "norms")
        self.pre = config.norm_placement == "pre"
        self.dropout_rate = config.dropout_rate
        self.attention = Attention(config.attention(), rngs=attention)
        self.attention_norm = make_norm(config, norms)
        self.forward_norm = make_norm(config, norms)
        self.forward = FeedForward(
            config.d_model,
            config.feed_forward_width,
            activation=config.activation,
            use_bias=config.use_bias,
            output_scale=config.residual_scale,
            dtype=config.dtype,
            param_dtype=config.param_dtype,
            rngs=forward,
        )

    def __call__(
        self,
        x: Float[Array, "*b t m"],
        *,
        mask: Mask,
        positions: Any = None,
        rng: Key[Array, ""] | None = None,
    ) -> Float[Array, "*b t m"]:
        first, second = (None, None) if rng is None else jax.random.split(rng)

        def attend(y: Array) -> Array:
            return self.attention(y, mask=mask, positions=positions, rng=first)

        x = self._residual(x, self.attention_norm, attend)
        return self._feed_forward(x, second)

    def decode(
        self,
        x: Float[Array, "b n m"],
        cache: Any,
        *,
        valid: Bool[Array, "b n"] | None = None,
    ) -> tuple[Float[Array, "b n m"], Any]:
        """The block on n more tokens, after those in the cache."""

        def attend(y: Array) -> Array:
            nonlocal cache
            y, cache = self.attention.decode(y, cache, valid=valid)
            return y

        x = self._residual(x, self.attention_norm, attend)
        return self._feed_forward(x, None), cache

    def _feed_forward(self, x: Array, rng: Any) -> Array:
        def forward(y: Array) -> Array:
            y = _keeping_products(self.forward)(y)
            return dropout(y, self.dropout_rate, rng)

        return self._residual(x, self.forward_norm, forward)

    def _residual(self, x: Array, norm: Any, layer: Any) -> Array:
        norm = _keeping_products(norm)
        return x + layer(norm(x)) if self.pre else norm(x + layer(x))


def _keeping_products(layer: Any) -> Any:
    """The layer, of which only products of matrices are kept for the backward pass.

    What lies between them is cheap to compute again. A scan over layers would write
    each of its steps to memory: six arrays of width d_ff for a gelu, where one will do.
    """
    policy = jax.checkpoint_policies.dots_saveable
    return jax.checkpoint(lambda x: layer(x), policy=policy, prevent_cse=False)
