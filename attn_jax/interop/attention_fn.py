"""Functions of attention in Flax's own layers, NNX's and Linen's."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attn_jax.ops import masks
from attn_jax.ops._shapes import is_traced, lift
from attn_jax.ops.masks import Mask, UnsupportedMaskError


def attention_fn(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function(q, k, v, mask=...)` as a Flax layer calls its attention_fn.

        layer = nnx.MultiHeadAttention(
            8, 64, attention_fn=attention_fn(linear_attention), decode=False, rngs=rngs
        )
        y = layer(x, is_causal=True)
        y = layer(x, mask=real[:, None, None, :])  # padding, as Bool[b 1 1 s]

    What Flax says in arguments becomes a `Mask`: is_causal=True is `causal()`, from the
    first key on; a mask whose head and query axes are 1 is `padding(keys)`, as in a
    layer that decodes; any other is `dense(mask)`, which linear attention refuses.
    Rules that Flax has no word for stand in the function:

        def local(q, k, v, *, mask):
            return softmax_attention(q, k, v, mask=mask & masks.window(127))

    With a mask of zeros and ones in floating point, as Flax makes them, one is "may
    attend".

    Args:
      function: of queries *b t h d, keys *b s g d, values *b s g e and a `Mask`:
        `softmax_attention`, `linear_attention`, or one made of others.

    Returns:
      A function with the arguments of `flax.nnx.dot_product_attention`.

    Raises:
      ValueError: by the function that is returned, for what can't be honoured: bias,
        dropout of weights, sow_weights, precision.
      TypeError: no function; by the one that is returned, an additive mask.
      UnsupportedMaskError: a mask that the function can't honour.
    """
    if not callable(function):
        raise TypeError(
            f"function: got {type(function).__name__}; expected a function of q, k, v "
            "and mask=, such as softmax_attention; pass it uncalled"
        )

    def attend(
        query: Float[Array, "*b t h d"],
        key: Float[Array, "*b s g d"],
        value: Float[Array, "*b s g e"],
        bias: Any = None,
        mask: Any = None,
        broadcast_dropout: bool = True,
        dropout_rng: Any = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        dtype: Any = None,
        precision: Any = None,
        module: Any = None,
        is_causal: bool = False,
    ) -> Float[Array, "*b t h e"]:
        _check_honoured(bias, dropout_rate, deterministic, precision, module)
        t, s = query.shape[-3], key.shape[-3]
        rules = _rules(mask, s)
        if is_causal:
            rules &= masks.causal() if t == s else masks.causal().offset(0)
        if dtype is not None:
            query, key, value = (x.astype(dtype) for x in (query, key, value))
        try:
            return function(query, key, value, mask=rules)
        except UnsupportedMaskError as error:
            raise UnsupportedMaskError(
                f"{error}; from a Flax layer, say causality with is_causal=True and "
                "padding as mask=real[:, None, None, :]; other rules go into the "
                "function that attention_fn(...) was given"
            ) from error

    return attend


def _rules(mask: Any, s: int) -> Mask:
    """The mask of a Flax layer, as the rule that it is."""
    if mask is None:
        return masks.full()
    mask = jnp.asarray(mask)
    if mask.dtype != bool:
        _check_ones(mask)
        mask = mask > 0
    mask = lift(mask, max(mask.ndim, 3))
    if mask.shape[-3:] == (1, 1, s):
        return masks.padding(mask[..., 0, 0, :])
    return masks.dense(mask)


def _check_ones(mask: Array) -> None:
    """Zeros and ones, where the values can be read; an additive mask hides all."""
    if is_traced(mask):
        return
    values = np.asarray(mask)
    if not ((values == 0) | (values == 1)).all():
        raise TypeError(
            f"mask: got dtype {mask.dtype} with values from {values.min()} to "
            f"{values.max()}; expected True or 1 = may attend, False or 0 = may not; "
            "of an additive mask pass mask == 0"
        )


def _check_honoured(
    bias: Any, dropout_rate: float, deterministic: bool, precision: Any, module: Any
) -> None:
    """Raises for arguments of Flax that no function here has."""
    if bias is not None:
        raise ValueError(
            "bias: got an array; expected None, since few functions have one; bind it: "
            "attention_fn(functools.partial(softmax_attention, bias=bias))"
        )
    if dropout_rate and not deterministic:
        raise ValueError(
            f"dropout_rate: got {dropout_rate} for attention weights; expected 0, "
            "since no t x s array of weights exists to drop from; build the layer with "
            "dropout_rate=0.0 and put nnx.Dropout behind it, or call it with "
            "deterministic=True"
        )
    if module is not None:
        raise ValueError(
            "sow_weights: got True; expected False, since no t x s array of weights "
            "exists; softmax_attention_weights computes one to look at"
        )
    if precision is not None:
        raise ValueError(
            f"precision: got {precision}; expected None; set it around the call: "
            "with jax.default_matmul_precision('highest'): ..."
        )
