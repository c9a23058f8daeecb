"""A look into a layer, for figures and analysis: its weights and its logits."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from attn_jax.nn._entrance import enter
from attn_jax.nn.core import Core
from attn_jax.nn.shell import AttentionShell
from attn_jax.ops.masks import Mask


class AttentionInside(AttentionShell):
    """What a mechanism does with values and keys, before the layer goes on with it."""

    def weights(
        self,
        x: Float[Array, "*b t m"],
        context: Float[Array, "*b s m"] | None = None,
        *,
        mask: Mask | None = None,
        positions: Int[Array, "*b t"] | None = None,
    ) -> Float[Array, "*b h t s"]:
        """How much of each value every query gets, for figures: y = weights v.

        Whatever the mechanism is, its output is linear in the values, so the weights
        are what it makes of values that form an identity matrix. The exclusive
        projection and the gate come after them and do not count, nor does the norm of a
        layer without normaliser. Cost: that of attention with values of width s, and
        t s numbers a head.

        Args: as in a call.
        """
        *leading, s, _ = x.shape if context is None else context.shape
        identity = jnp.eye(s, dtype=self.config.dtype)[:, None, :]
        v = jnp.broadcast_to(identity, (*leading, s, self.config.kv_heads, s))
        y = self.weigh(x, v, context, mask=mask, positions=positions)
        return jnp.swapaxes(y, -2, -3)

    def weigh(
        self,
        x: Float[Array, "*b t m"],
        v: Float[Array, "*b s g e"],
        context: Float[Array, "*b s m"] | None = None,
        *,
        mask: Mask | None = None,
        positions: Int[Array, "*b t"] | None = None,
    ) -> Float[Array, "*b t h e"]:
        """Sums of any values by this layer's weights: weights v, without holding them.

        With those that enter attention, `layer.values(x)`, they are each head's output,
        before a norm in place of the normaliser, the exclusive projection and the gate.

        Args:
          v: the values, of any width.
          x, context, mask, positions: as in a call.
        """
        x, attended, rules, where, _ = enter(self.config, x, context, mask, positions)
        keys = self.mechanism.keys(attended, where["seen"])
        return self.mechanism.attend(x, keys, v, mask=rules, **where)

    def logits(
        self,
        x: Float[Array, "*b t m"],
        *,
        mask: Mask | None = None,
        positions: Int[Array, "*b t"] | None = None,
    ) -> Float[Array, "*b h t t"]:
        """What the softmax of self-attention is taken of, before bias and mask.

        For analysis: with softmax attention the scaled dot products. What stands at a
        masked pair has no meaning. Args: as in a call.

        Raises:
          ValueError: a mechanism without logits.
        """
        if type(self.mechanism).queries is Core.queries:
            raise ValueError(
                f"mechanism: got {type(self.config.mechanism).__name__}, which makes "
                "no logits; expected one with a softmax"
            )
        x, _, rules, where, _ = enter(self.config, x, None, mask, positions)
        *leading, t, _ = x.shape
        keys = self.mechanism.keys(x, where["seen"])
        logits = self.mechanism.logits(x, keys, t, mask=rules, **where)
        return jnp.broadcast_to(logits, (*leading, *logits.shape[-3:]))
