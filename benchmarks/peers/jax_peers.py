"""Attention of JAX and Flax, causal."""

from functools import partial
from typing import Any

import jax
from flax import nnx

from attn_jax.nn import Attention, AttentionConfig
from attn_jax.ops import masks
from benchmarks.mechanisms import from_qkv, softmax_operations
from benchmarks.problem import Case, JaxProblem, Size


def jax_nn(size: Size) -> JaxProblem:
    return from_qkv(partial(jax.nn.dot_product_attention, is_causal=True), size)


def flax_nnx(size: Size) -> JaxProblem:
    return from_qkv(partial(nnx.dot_product_attention, is_causal=True), size)


def flax_layer(size: Size) -> JaxProblem:
    """nnx.MultiHeadAttention: projections and all."""

    def build() -> Any:
        m = size.d_model
        options = {"decode": False, "use_bias": False, "rngs": nnx.Rngs(0)}
        return nnx.MultiHeadAttention(size.heads, m, keep_rngs=False, **options)

    return _layer(build, lambda module, x: module(x, is_causal=True), size)


def our_layer(size: Size) -> JaxProblem:
    """attn_jax.nn.Attention of the same sizes."""
    config = AttentionConfig(size.d_model, size.heads)
    causal = masks.causal()

    def build() -> Any:
        return Attention(config, rngs=nnx.Rngs(0))

    return _layer(build, lambda module, x: module(x, mask=causal), size)


def _layer(build: Any, call: Any, size: Size) -> JaxProblem:
    """A module as a function of its input and its parameters."""
    graph, state = nnx.split(nnx.eval_shape(build))
    leaves, tree = jax.tree.flatten(state)

    def apply(x: Any, *parameters: Any) -> Any:
        return call(nnx.merge(graph, jax.tree.unflatten(tree, parameters)), x)

    shape = (size.batch, size.n, size.d_model)
    scale = size.d_model**-0.5
    parameters = tuple((leaf.shape, scale) for leaf in leaves)
    return JaxProblem(apply, ((shape, 1.0), *parameters), shape, size.dtype)


def layer_operations(size: Size) -> float:
    """Four projections around softmax attention."""
    return 8 * size.batch * size.n * size.d_model**2 + softmax_operations(size)


CASES = (
    Case("jax.nn", 2, jax_nn, softmax_operations, 2.5),
    Case("flax.nnx", 2, flax_nnx, softmax_operations, 2.5),
    Case("flax.nnx layer", 2, flax_layer, layer_operations),
    Case("softmax layer", 2, our_layer, layer_operations),
)
