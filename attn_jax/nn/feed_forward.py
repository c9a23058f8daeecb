"""The feed-forward layer of a block (Vaswani et al. 2017, equation 2)."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from attn_jax.nn._checks import check_sizes
from attn_jax.nn._naming import named_rngs
from attn_jax.nn._table import Table
from attn_jax.ops._mesh import tokens_are_shared

ACTIVATIONS = Table(
    "activation",
    {
        "relu": jax.nn.relu,
        "gelu": jax.nn.gelu,
        "gelu_exact": partial(jax.nn.gelu, approximate=False),
    },
)


def initial_kernel(std: float | None, scale: float = 1.0) -> Any:
    """Draws a matrix: normal of deviation `std`, or 1 / sqrt(features it reads)."""
    if std is not None:
        return nnx.initializers.normal(scale * std)
    return nnx.initializers.variance_scaling(scale**2, "fan_in", "truncated_normal")


class FeedForward(nnx.Module):
    """activation(x W_1 + b_1) W_2 + b_2, token by token."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: str = "gelu",
        use_bias: bool = False,
        init_std: float | None = None,
        output_scale: float = 1.0,
        dtype: Any = jnp.float32,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        check_sizes(d_model=d_model, d_ff=d_ff)
        self.activation = ACTIVATIONS[activation]
        up, down = named_rngs(rngs, "up", "down")
        options: dict[str, Any] = {
            "use_bias": use_bias,
            "dtype": dtype,
            "param_dtype": param_dtype,
        }
        first, scaled = initial_kernel(init_std), initial_kernel(init_std, output_scale)
        self.up = nnx.Linear(d_model, d_ff, kernel_init=first, rngs=up, **options)
        self.down = nnx.Linear(d_ff, d_model, kernel_init=scaled, rngs=down, **options)

    def __call__(self, x: Float[Array, "*b t m"]) -> Float[Array, "*b t m"]:
        # As one matrix of tokens: XLA copies more axes around to get there backwards.
        # Of tokens that devices share it would bring each row together first.
        whole = () if tokens_are_shared() else (math.prod(x.shape[:-1]),)
        tokens = x.reshape(*(whole or x.shape[:-1]), x.shape[-1])
        y = self.down(self.activation(self.up(tokens)))
        return y.reshape(*x.shape[:-1], y.shape[-1])
