"""A transformer block: attention, then a feed-forward layer, each with a residual."""

from typing import Any

import jax
from flax import nnx
from jaxtyping import Array, Bool, Float, Key

from attn_jax.models.stack_config import StackConfig
from attn_jax.nn import (
    Attention,
    AttentionCache,
    ContextCache,
    FeedForward,
    dropout,
)
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
    """Pre-norm: x + f(norm(x)). Post-norm: norm(x + f(x)), as in the 2017 paper.

    f is self-attention, then attention to a context where the config has it, then the
    feed-forward layer. `first` are the values of the stack's first layer.
    """

    def __init__(self, config: StackConfig, *, rngs: nnx.Rngs):
        attention, cross, forward, norms = named_rngs(
            rngs, "attention", "cross", "forward", "norms"
        )
        self.pre = config.norm_placement == "pre"
        self.dropout_rate = config.dropout_rate
        self.attention = Attention(config.attention(), rngs=attention)
        self.attention_norm = make_norm(config, norms)
        other = config.cross_attention()
        if other is not None:
            self.cross = Attention(other, rngs=cross)
            self.cross_norm = make_norm(config, norms)
        self.forward_norm = make_norm(config, norms)
        self.forward = FeedForward(
            config.d_model,
            config.feed_forward_width,
            activation=config.activation,
            use_bias=config.use_bias,
            init_std=config.init_std,
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
        context: Float[Array, "*b s m"] | None = None,
        context_mask: Mask | None = None,
        first: Float[Array, "*b t g e"] | None = None,
        rng: Key[Array, ""] | None = None,
    ) -> Float[Array, "*b t m"]:
        count = 2 if context is None else 3
        rngs = (None,) * 3 if rng is None else jax.random.split(rng, count)

        def attend(y: Array) -> Array:
            told = {"mask": mask, "positions": positions, "first": first}
            return self.attention(y, **told, rng=rngs[0])

        def cross(y: Array) -> Array:
            return self.cross(y, context, mask=context_mask, rng=rngs[2])

        x = self._residual(x, self.attention_norm, attend)
        if context is not None:
            x = self._residual(x, self.cross_norm, cross)
        return self._feed_forward(x, rngs[1])

    def weights(
        self,
        x: Float[Array, "*b t m"],
        *,
        mask: Mask,
        positions: Any = None,
        context: Float[Array, "*b s m"] | None = None,
        context_mask: Mask | None = None,
        first: Float[Array, "*b t g e"] | None = None,
    ) -> tuple[Array, Array | None]:
        """Weights *b h t t of self-attention and *b h t s of that to a context."""
        y = self.attention_input(x)
        own = self.attention.weights(y, mask=mask, positions=positions)
        if context is None:
            return own, None

        def attend(y: Array) -> Array:
            return self.attention(y, mask=mask, positions=positions, first=first)

        x = self._residual(x, self.attention_norm, attend)
        y = self.cross_norm(x) if self.pre else x
        return own, self.cross.weights(y, context, mask=context_mask)

    def attention_input(self, x: Float[Array, "*b t m"]) -> Float[Array, "*b t m"]:
        """What self-attention reads of the tokens that come into the block."""
        return self.attention_norm(x) if self.pre else x

    def logits(
        self, x: Float[Array, "*b t m"], *, mask: Mask, positions: Any = None
    ) -> Float[Array, "*b h t t"]:
        """Logits of self-attention, see `Attention.logits`."""
        y = self.attention_input(x)
        return self.attention.logits(y, mask=mask, positions=positions)

    def decode(
        self,
        x: Float[Array, "b n m"],
        cache: AttentionCache,
        context: ContextCache | None = None,
        *,
        valid: Bool[Array, "b n"] | None = None,
        first: Float[Array, "b n g e"] | None = None,
    ) -> tuple[Float[Array, "b n m"], AttentionCache]:
        """The block on n more tokens, after those in the cache."""

        def attend(y: Array) -> Array:
            nonlocal cache
            y, cache = self.attention.decode(y, cache, valid=valid, first=first)
            return y

        x = self._residual(x, self.attention_norm, attend)
        if context is not None:
            x = self._residual(
                x,
                self.cross_norm,
                lambda y: self.cross.attend_context(y, context, valid=valid),
            )
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
