"""What a model costs: operations a token."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from attn_jax.models import Decoder, DecoderConfig
from attn_jax.nn import Softmax

# Lengths at which every mechanism is one computation without loops.
COUNTED = (64, 128, 192)


def forward_flops_per_token(config: DecoderConfig, batch_size: int) -> float:
    """Operations of the forward pass a token, at full length and before the loss.

    XLA's count of the computation as it is written, so that platforms agree: two for a
    multiply-add, one for other arithmetic, none for exp and its like; masked slots
    count like others. The body of a loop would count once. So layers are unrolled here,
    softmax is its plain definition, and a length at which some mechanisms go through
    tiles is extrapolated, by the parabola on which the counts of shorter ones lie.
    """
    t = config.max_length
    if t < COUNTED[-1]:
        flops = _forward_flops(config, batch_size, t)
    else:
        counts = [_forward_flops(config, batch_size, n) for n in COUNTED]
        flops = float(np.polyval(np.polyfit(COUNTED, counts, 2), t))
    return flops / (batch_size * t)


def _forward_flops(config: DecoderConfig, batch_size: int, t: int) -> float:
    mechanism = config.mechanism
    if isinstance(mechanism, Softmax):
        mechanism = replace(mechanism, implementation="dense")
    config = replace(config, scan_layers=False, max_length=t, mechanism=mechanism)
    model = nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0)))
    graph, state = nnx.split(model)
    tokens = jax.ShapeDtypeStruct((batch_size, t), jnp.int32)

    def forward(state: Any, tokens: Any) -> Any:
        return nnx.merge(graph, state)(tokens)

    analysis: Any = jax.jit(forward).lower(state, tokens).cost_analysis()
    return float(analysis["flops"])
