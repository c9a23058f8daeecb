# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A mechanism of your own
#
# The functions are pieces: take what you need, and let `attn_jax.testing` look for the
# mistakes. Here: exact attention to the last few tokens, linear attention to all of the
# past, and a gate for each head between the two.
#
# $$y_i = g\, \mathrm{softmax\ attention}_{i-w \le j \le i} + (1 - g)\,
#   \mathrm{linear\ attention}_{j \le i}$$

# %%
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from attn_jax import train
from attn_jax.analysis import plots
from attn_jax.ops import apply_rotary, linear_attention, masks, softmax_attention
from attn_jax.testing import (
    assert_causal,
    assert_padding_invariant,
    assert_segments_isolated,
)

# %% tags=["parameters"]
t = 7  # tokens that the detectors look at
gradients = True  # and whether at gradients too
depth, steps, seeds = 2, 300, 2  # layers, and their training

# %% [markdown]
# ## The function

# %%
WINDOW = 3


def local_and_global(q, k, v, gate, *, mask=None):
    """Softmax in a window and linear attention to the past; gate: h, in 0 .. 1."""
    past = masks.causal() & (masks.full() if mask is None else mask)
    near = softmax_attention(q, k, v, mask=past & masks.window(WINDOW))
    far = linear_attention(q, k, v, mask=past)
    g = gate.reshape((1,) * (v.ndim - 2) + (-1, 1))  # one number a head
    return g * near + (1 - g) * far


# %% [markdown]
# ## What it attends to
#
# Values that are an identity matrix bring the weights out.

# %%
n, h, d = 24, 3, 8
q, k = jax.random.normal(jax.random.key(0), (2, 1, n, h, d))
identity = jnp.broadcast_to(jnp.eye(n)[None, :, None, :], (1, n, h, n))
gate = jnp.array([1.0, 0.5, 0.0])
weights = local_and_global(2 * q, 2 * k, identity, gate)
visible = np.tril(np.ones((n, n), bool))
plots.head_grid(
    {
        f"gate {g:.1f}": np.where(visible, weights[0, :, i], np.nan)
        for i, g in enumerate(gate)
    }
)

# %% [markdown]
# ## The promises
#
# The detectors draw numbers of their own. Each is silent, or says which output moved
# when which token changed.

# %%
q, k, v = jax.random.normal(jax.random.key(1), (3, 2, t, h, d))
check = {"gradients": gradients}
assert_causal(lambda q, k, v: local_and_global(q, k, v, gate), q, k, v, **check)
assert_padding_invariant(
    lambda q, k, v, real: local_and_global(
        q, k, v, gate, mask=masks.padding(real, real)
    ),
    *(q, k, v),
    zeros=True,
    **check,
)
assert_segments_isolated(
    lambda q, k, v, ids: local_and_global(q, k, v, gate, mask=masks.segments(ids)),
    *(q, k, v),
    **check,
)


# %% [markdown]
# A mistake that training would never show: the mask is forgotten in one of the two.


# %%
def forgotten(q, k, v, real):
    near = softmax_attention(q, k, v, mask=masks.causal() & masks.padding(real, real))
    return near + linear_attention(q, k, v, mask=masks.causal())


try:
    assert_padding_invariant(forgotten, q, k, v, **check)
except AssertionError as error:
    print(error)

# %% [markdown]
# ## A model with it
#
# Any module may call the function. A few layers learn to continue a text that repeats
# itself after 5 letters: further back than a window of 3, but not than two of them.
# Which gate learns it sooner is a matter of measuring.


# %%
class Layer(nnx.Module):
    def __init__(self, width, heads, gate, rngs):
        shape = (heads, width // heads)
        self.qkv = nnx.List(
            nnx.LinearGeneral(width, shape, rngs=rngs) for _ in range(3)
        )
        self.out = nnx.LinearGeneral(shape, width, axis=(-2, -1), rngs=rngs)
        self.norm = nnx.RMSNorm(width, rngs=rngs)
        self.gate = nnx.Param(jnp.full(heads, gate))

    def __call__(self, x):
        q, k, v = (project(self.norm(x)) for project in self.qkv)
        places = jnp.broadcast_to(jnp.arange(x.shape[1])[None], x.shape[:2])
        q, k = apply_rotary(q, places), apply_rotary(k, places)
        return x + self.out(local_and_global(q, k, v, jax.nn.sigmoid(self.gate[...])))


def model(gate, seed):
    rngs = nnx.Rngs(seed)
    parts = [nnx.Embed(16, 32, rngs=rngs)]
    parts += [Layer(32, 4, gate, rngs) for _ in range(depth)]
    return nnx.Sequential(*parts, nnx.Linear(32, 16, rngs=rngs))


def batch_at(step):
    letters = np.random.default_rng(step).integers(16, size=(32, 5))
    tokens = np.tile(letters, (1, 5))
    return tokens[:, :-1], tokens[:, 1:]


graph = nnx.graphdef(model(0.0, 0))
optimizer = train.adam(3e-3)


def loss_fn(params, batch, rng):
    return train.cross_entropy(nnx.merge(graph, params)(batch[0]), batch[1])


train_step = train.make_train_step(loss_fn, optimizer)


def curve(gate, seed):
    params = nnx.state(model(gate, seed))
    state = train.init_train_state(params, optimizer, seed=0)
    losses = []
    for step in range(steps):
        state, metrics = train_step(state, batch_at(step))
        if step % 10 == 0:
            losses.append((step, float(metrics.loss)))
    return losses


# %%
starts = {"mostly local (gate at σ(4))": 4.0, "half and half": 0.0}
curves = {
    name: [curve(gate, seed) for seed in range(seeds)] for name, gate in starts.items()
}
figure = plots.loss_curves(curves)
figure.axes[0].set_ylabel("loss, nats a letter")
figure

# %% [markdown]
# To have it in every model, on the command line and under all laws of the contract, add
# a row to the table: [CONTRIBUTING.md](../CONTRIBUTING.md) says how.
