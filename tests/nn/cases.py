"""Small attention layers, and what is compiled once for many tests."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import nn
from attn_jax.ops import masks

B, T, SHORT, LONGEST = 3, 7, 4, 11
M, H, G, D, E = 10, 4, 2, 6, 5
SIZES = {
    "d_model": M,
    "num_heads": H,
    "num_kv_heads": G,
    "head_dim": D,
    "value_dim": E,
}
F32 = 1e-5  # ceiling of a relative error in float32


# Options that lead another way through a mechanism, by the names of their own rows.
VARIANTS = {
    "linear_normed": ("linear", {"feature_map": jnp.sin, "normalize": False}),
}


def rows(names, exclusive=None):
    """Each mechanism with and without exclusion, and its variants without.

    Args:
      exclusive: the mechanisms that are there with exclusion too; all, if None.
    """
    both = [
        pytest.param((name, excluded), id=f"{name}-exclusive" if excluded else name)
        for name in names
        for excluded in (False, True)
        if not excluded or exclusive is None or name in exclusive
    ]
    others = [name for name, (of, _) in VARIANTS.items() if of in names]
    return both + [pytest.param((name, False), id=name) for name in others]


EVERY = rows(nn.MECHANISMS)
DECODING = [name for name, kind in nn.MECHANISMS.items() if not kind.cannot_decode]
NOT_DECODING = [name for name in nn.MECHANISMS if name not in DECODING]
# On a test whose fixture `one` is of a row: those alone that decode token by token.
decodes = pytest.mark.parametrize("one", rows(DECODING), indirect=True)


def normal(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def filled(build, seed=0):
    """The module that `build` makes, with random numbers in place of initial ones.

    No bias is 0 and no scale is 1; and nothing is compiled, as initial values would be.
    """
    rng = np.random.default_rng(seed)

    def fill(path, x):
        mean = 1.0 if "scale" in jax.tree_util.keystr(path) else 0.0
        return jnp.asarray(mean + 0.4 * rng.normal(size=x.shape), x.dtype)

    graph, state = nnx.split(nnx.eval_shape(build))
    return nnx.merge(graph, jax.tree_util.tree_map_with_path(fill, state))


def numbers(module):
    """The module's parameters as nested dicts of float64 arrays."""
    return jax.tree.map(
        lambda x: np.asarray(x, np.float64), nnx.to_pure_dict(nnx.state(module))
    )


def small(name, **options):
    """The table's; one that sorts tokens into buckets has several for a few tokens."""
    name, own = VARIANTS.get(name, (name, {}))
    kind = nn.MECHANISMS[name]
    few = {"bucket_size": 2} if "bucket_size" in kind.__dataclass_fields__ else {}
    return kind(**few | own | options)


def mechanism(name, **options):
    return small(name, **options).for_length(LONGEST)


def in_one_bucket(name):
    """The same with all tokens in one bucket: which of them meet is no question."""
    sorts = "bucket_size" in nn.MECHANISMS[name].__dataclass_fields__
    return mechanism(name, **{"bucket_size": LONGEST} if sorts else {})


def attention(name="softmax", seed=0, **options):
    """A layer of these sizes."""
    options = {"mechanism": mechanism(name)} | SIZES | options
    config = nn.AttentionConfig(**options)
    return filled(lambda: nn.Attention(config, rngs=nnx.Rngs(0)), seed)


class Compiled:
    """A module's functions of (parameters, arrays), compiled and counted.

    Every test that calls one with the same shapes shares one compilation.
    """

    def __init__(self, module):
        self.module = module
        self.graph, self.params = nnx.split(module)
        self.traces = collections.Counter()

    def jit(self, name, function):
        def counted(params, *arrays):
            self.traces[name] += 1
            return function(nnx.merge(self.graph, params), *arrays)

        compiled = jax.jit(counted)
        return lambda *arrays: compiled(self.params, *arrays)

    def jit_vjp(self, name, function):
        """(cotangent, x, *arrays) -> output, gradients of the parameters and of x."""

        def both(module, cotangent, x, *arrays):
            graph, params = nnx.split(module)

            def forward(params, x):
                return function(nnx.merge(graph, params), x, *arrays)

            out, pullback = jax.vjp(forward, params, x)
            return out, *pullback(cotangent)

        return self.jit(name, both)


class Layer(Compiled):
    """A layer on B rows, compiled for a batch of T tokens and one of SHORT tokens."""

    def __init__(self, name, exclusive):
        self.row = name, exclusive
        self.kind = type(mechanism(name))
        options = {"exclusive": exclusive, "rotary": True, "use_bias": True}
        super().__init__(attention(name, **options))
        self._full = self.jit_vjp(
            "full",
            lambda layer, x, real, ids: layer(
                x,
                mask=masks.causal() & masks.padding(real, real) & masks.segments(ids),
            ),
        )
        self._plain = self.jit_vjp(
            "plain", lambda layer, x: layer(x, mask=masks.causal())
        )
        self.decode = self.jit("decode", lambda layer, x, cache: layer.decode(x, cache))
        self.decode_ragged = self.jit(
            "decode_ragged",
            lambda layer, x, cache, valid: layer.decode(x, cache, valid=valid),
        )

    def full(self, x, real=None, ids=None, cotangent=None):
        """Output and gradients of T tokens under causality, padding and segments."""
        real = np.ones((B, T), bool) if real is None else real
        ids = np.zeros((B, T), np.int32) if ids is None else ids
        cotangent = normal(9, B, T, M) if cotangent is None else cotangent
        return self._full(cotangent, x, real, ids)

    def plain(self, x, cotangent=None):
        """Output and gradients of SHORT tokens under causality alone."""
        return self._plain(
            normal(9, B, SHORT, M) if cotangent is None else cotangent, x
        )


def placed(rows, places, length, padding=np.nan):
    """Each row's tokens at its places in a longer row, and where they are.

    What stands between them is `padding`.
    """
    rows = np.asarray(rows)
    out = np.full((len(rows), length, *rows.shape[2:]), padding, rows.dtype)
    real = np.zeros((len(rows), length), bool)
    for row, at in enumerate(places):
        out[row, at], real[row, at] = rows[row], True
    return out, real
