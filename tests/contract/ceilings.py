"""Rounding errors of every mechanism at 4,096 keys, and those of other libraries.

A layer of each row of the table, its parameters and tokens rounded to a dtype, is
compared with NumPy in float64 on the same numbers. `jax.nn.dot_product_attention`
stands between the projections of the softmax layer, and `flax.nnx.MultiHeadAttention`
has its parameters.
"""

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from attn_jax import nn
from tests.nn import oracle
from tests.ops import oracles

KEYS, QUERIES, WIDTH, HEADS = 4096, 8, 32, 2
DTYPES = ("float32", "bfloat16", "float16", "float64")
CEILINGS = {"float32": 2e-6, "bfloat16": 5e-3}
SOFTMAX, LAYER = "jax.nn.dot_product_attention", "flax.nnx.MultiHeadAttention"


def mechanism(name: str) -> nn.Mechanism:
    """The table's, with random logits as large as those of dot products.

    One that sorts tokens into buckets has one for all: rounding moves a token from one
    into another, and then it meets other tokens. A map from scores to logits has KEYS²
    numbers a selected key: two are enough.
    """
    kind = nn.MECHANISMS[name]
    wide = {"init_std": 1.0, "bucket_size": KEYS}
    if name == "partial":
        wide = {"rank": 2}
    options = {field: wide[field] for field in wide.keys() & kind.__dataclass_fields__}
    return kind(**options).for_length(KEYS)


def config(name: str, exclusive: bool, dtype: str = "float32") -> nn.AttentionConfig:
    return nn.AttentionConfig(
        d_model=WIDTH,
        num_heads=HEADS,
        mechanism=mechanism(name),
        exclusive=exclusive,
        dtype=jnp.dtype(dtype),
        param_dtype=jnp.dtype(dtype),
    )


@functools.cache
def initial(name: str) -> dict:
    """Initial values, drawn in one compiled function."""

    def draw():
        return nnx.to_pure_dict(
            nnx.state(nn.Attention(config(name, False), rngs=nnx.Rngs(0)))
        )

    return jax.tree.map(np.asarray, jax.jit(draw)())


def tokens() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(1, KEYS, WIDTH)).astype(np.float32)


def rounded(tree: dict, dtype: str) -> dict:
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)


def exact(name: str, params: dict, x: jax.Array, exclusive: bool) -> np.ndarray:
    """The first outputs in float64, one logit at a time."""

    def rows(path: tuple, a: jax.Array) -> np.ndarray:
        """Of a table of queries' positions, those of these queries alone."""
        table = path[-1].key in ("random", "r1", "reconstruction", "offset")
        return np.asarray(a[:, :QUERIES] if table else a).astype(np.float64)

    x = np.asarray(x).astype(np.float64)
    return oracle.attention(
        name,
        jax.tree_util.tree_map_with_path(rows, params),
        x[:, :QUERIES],
        np.ones((1, 1, 1, 1), bool),
        exclusive=exclusive,
        context=x,
        mechanism=mechanism(name),
    )


def layer(made: nn.AttentionConfig, params: dict) -> nnx.Module:
    module = nnx.eval_shape(lambda: nn.Attention(made, rngs=nnx.Rngs(0)))
    graph, state = nnx.split(module)
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graph, state)


def errors(name: str, dtype: str) -> dict[bool, float]:
    """Relative errors of the layer of one row, without and with exclusion.

    Run it in 64-bit mode for float64.
    """
    params, x = rounded(initial(name), dtype), jnp.asarray(tokens(), dtype)

    def both(params: dict, x: jax.Array) -> dict[bool, jax.Array]:
        layers = {e: layer(config(name, e, dtype), params) for e in (False, True)}
        return {e: module(x)[:, :QUERIES] for e, module in layers.items()}

    return {
        exclusive: oracles.error(out, exact(name, params, x, exclusive))
        for exclusive, out in jax.jit(both)(params, x).items()
    }


def peers(dtype: str) -> Iterator[tuple[str, float | None]]:
    """The same for other libraries, with the parameters of the softmax layer.

    None where a library refuses the dtype.
    """
    params, x = rounded(initial("softmax"), dtype), jnp.asarray(tokens(), dtype)
    want = exact("softmax", params, x, False)
    for name, form in ((SOFTMAX, _between_projections), (LAYER, _flax_layer)):
        try:
            out = jax.jit(form)(params, x)
        except ValueError:
            yield name, None
        else:
            yield name, oracles.error(out[:, :QUERIES], want)


def _kernels(params: dict) -> list[jax.Array]:
    core = params["mechanism"]["query_key"]
    return [core["query"]["kernel"], core["key"]["kernel"], params["value"]["kernel"]]


def _between_projections(params: dict, x: jax.Array) -> jax.Array:
    q, k, v = (jnp.einsum("btm,mhd->bthd", x, w) for w in _kernels(params))
    y = jax.nn.dot_product_attention(q, k, v)
    return jnp.einsum("bthe,hem->btm", y, params["output"]["kernel"])


def _flax_layer(params: dict, x: jax.Array) -> jax.Array:
    def build() -> nnx.MultiHeadAttention:
        return nnx.MultiHeadAttention(
            HEADS,
            WIDTH,
            dtype=x.dtype,
            param_dtype=x.dtype,
            use_bias=False,
            decode=False,
            rngs=nnx.Rngs(0),
        )

    module = nnx.eval_shape(build)
    for part, kernel in zip(
        (module.query, module.key, module.value, module.out),
        (*_kernels(params), params["output"]["kernel"]),
        strict=True,
    ):
        part.kernel = nnx.Param(kernel)
    return module(x)


def measure() -> dict[str, dict[str, float | None]]:
    """{dtype: {row or library: error}}, for every row and both libraries."""
    found = {}
    for dtype in DTYPES:
        with jax.enable_x64(dtype == "float64"):
            rows = {
                name + "+exclusive" * exclusive: error
                for name in nn.MECHANISMS
                for exclusive, error in errors(name, dtype).items()
            }
            found[dtype] = rows | dict(peers(dtype))
    return found
