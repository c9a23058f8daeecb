"""Dense Synthesizers with another hidden layer: convolved, gated.

The paper's supplement names a one-dimensional convolution and gated linear units among
the functions it tried, without saying more; the equations here are ours. (Its third
one, a bottleneck, is `dense_synthesizer_logits` with a narrow hidden layer.)
"""

import jax
from jaxtyping import Array, Float

from attn_jax.ops._convolution import convolved
from attn_jax.ops._entry import op
from attn_jax.ops._masking import check_fits
from attn_jax.ops._synthesizer_inputs import check_layouts
from attn_jax.ops._synthesizer_layers import first_layer, second_layer
from attn_jax.ops.masks import Mask, as_mask


@op(optional=("b1", "b2"))
def convolution_synthesizer_logits(
    x: Float[Array, "*b t m"],
    w1: Float[Array, "c h m d"],
    b1: Float[Array, "h d"] | None,
    w2: Float[Array, "h d n"],
    b2: Float[Array, "h n"] | None,
    *,
    mask: Mask | None = None,
) -> Float[Array, "*b h t n"]:
    """Each token and those just before it write the token's row of logits.

        l_i = relu(sum_c x_{i-c} W1_c + b1) W2 + b2,   c = 0, 1, ...

    The convolution looks back alone, so that decoders and encoders share one
    definition. Reduces to `dense_synthesizer_logits` when there is one tap, c = 0.

    Cost: O(c h t m d + h t d n) time and O(h t n) memory per example.

    Reference: Tay et al. 2021, supplement, which names the variant; the form is ours.

    Args:
      x: tokens; what padded ones hold has to be cleaned before it enters.
      w1: first layer, a matrix a head for each tap, that of the token itself first.
      b1: its bias, or None.
      w2: second layer, to one column a position.
      b2: its bias, or None.
      mask: x_{i-c} is the c-th real token before i, and counts as 0 where the mask
        hides it from query i: in another segment, outside a window. None is as they
        stand.

    Returns:
      Logits in at least float32.

    Raises:
      ValueError, TypeError: shapes, dtypes or a mask that do not fit; no tap.
    """
    check_layouts(
        x=(x, "*b t m"),
        w1=(w1, "c h m d"),
        b1=(b1, "h d"),
        w2=(w2, "h d n"),
        b2=(b2, "h n"),
    )
    taps, h, t = w1.shape[0], w1.shape[1], x.shape[-2]
    if taps == 0:
        raise ValueError(
            f"w1: got no tap (shape {w1.shape}, read as c h m d); expected at least "
            "one, that of the token itself"
        )
    check_fits(mask, x.shape[:-2], h, t, t)
    hidden = convolved(x, w1, b1, mask=as_mask(mask))
    return second_layer(jax.nn.relu(hidden), w2, b2)


@op(optional=("b1", "c1", "b2"))
def gated_synthesizer_logits(
    x: Float[Array, "*b t m"],
    w1: Float[Array, "h m d"],
    b1: Float[Array, "h d"] | None,
    v1: Float[Array, "h m d"],
    c1: Float[Array, "h d"] | None,
    w2: Float[Array, "h d n"],
    b2: Float[Array, "h n"] | None,
) -> Float[Array, "*b h t n"]:
    """Each token writes its own row of logits through a gated linear unit.

        l_i = ((x_i W1 + b1) σ(x_i V1 + c1)) W2 + b2

    Reduces to half of the linear map x W1 W2 when V1 = 0 and there are no biases.
    There is no mask here: what a padded token holds has to be cleaned before it enters.

    Cost: O(h t d (2 m + n)) time and O(h t n) memory per example.

    Reference: Tay et al. 2021, supplement, which names the variant; the unit is that
    of Dauphin et al. 2017, equation 1.

    Args:
      x: tokens.
      w1: what is gated, one matrix a head.
      b1: its bias, or None.
      v1: the gate.
      c1: its bias, or None.
      w2: second layer, to one column a position.
      b2: its bias, or None.

    Returns:
      Logits in at least float32.

    Raises:
      ValueError, TypeError: shapes or dtypes that do not fit.
    """
    check_layouts(
        x=(x, "*b t m"),
        w1=(w1, "h m d"),
        b1=(b1, "h d"),
        v1=(v1, "h m d"),
        c1=(c1, "h d"),
        w2=(w2, "h d n"),
        b2=(b2, "h n"),
    )
    return second_layer(gated(x, w1, b1, v1, c1), w2, b2)


def gated(
    x: Float[Array, "*b t m"],
    w: Float[Array, "h m d"],
    b: Float[Array, "h d"] | None,
    v: Float[Array, "h m d"],
    c: Float[Array, "h d"] | None,
) -> Float[Array, "*b h t d"]:
    """(x W + b) σ(x V + c), the hidden layer of gated linear units."""
    return first_layer(x, w, b) * jax.nn.sigmoid(first_layer(x, v, c))
