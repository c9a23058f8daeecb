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
# # From a notebook cell to a sharded run
#
# The same function, step by step: in a cell, in a model, in a training step, on a mesh
# of devices. On a processor four devices can be simulated, which is enough to see that
# a sharded run gives the numbers of one device.

# %%
import os

# Before JAX starts. On a GPU or TPU it has no effect: there the devices are real.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax
import numpy as np
from flax import nnx

from attn_jax import train
from attn_jax.analysis import plots
from attn_jax.models import Decoder, DecoderConfig
from attn_jax.ops import masks, softmax_attention

# %% tags=["parameters"]
layout = "data=2,tensor=2"
steps, d_model = 60, 64

# %% [markdown]
# ## A cell

# %%
q, k, v = jax.random.normal(jax.random.key(0), (3, 2, 16, 4, 8))
y = softmax_attention(q, k, v, mask=masks.causal())

# %% [markdown]
# ## A model, a loss, a step
#
# The text repeats itself after 8 letters; batches are a function of the step.

# %%
config = DecoderConfig(
    vocab_size=32, max_length=32, num_layers=2, d_model=d_model, num_heads=4
)
graph = nnx.graphdef(nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0))))
optimizer = train.adam(3e-3)


def init():
    params = nnx.state(Decoder(config, rngs=nnx.Rngs(0)))
    return train.init_train_state(params, optimizer, seed=0)


def loss_fn(params, batch, rng):
    logits = nnx.merge(graph, params)(batch[0])
    return train.cross_entropy(logits, batch[1])


def batch_at(step):
    letters = np.random.default_rng(step).integers(32, size=(16, 8))
    tokens = np.tile(letters, (1, 4)).astype(np.int32)
    return tokens[:, :-1], tokens[:, 1:]


def run(mesh=None):
    """The losses, and the state at the end."""
    state = train.init_on(mesh, init)
    train_step = train.make_train_step(loss_fn, optimizer)
    losses = []
    for step in range(steps):
        state, metrics = train_step(state, train.shard_batch(batch_at(step), mesh))
        losses.append((step, float(metrics.loss)))
    return losses, state


alone, _ = run()

# %% [markdown]
# ## The same on a mesh
#
# Two devices share the heads and widths of a copy of the model; there are two copies,
# and each reads half of the rows. Nothing in the model knows of it.

# %%
mesh = train.make_mesh(layout)
with jax.set_mesh(mesh):
    sharded, state = run(mesh)

figure = plots.loss_curves({"one device": [alone], layout: [sharded]})
figure.axes[0].set_ylabel("loss, nats a letter")
figure

# %%
difference = max(abs(a[1] - b[1]) for a, b in zip(alone, sharded, strict=True))
print(f"the largest difference of a loss: {difference:.1e}")
assert difference < 1e-3

# %% [markdown]
# ## Where the parameters lie
#
# The matrix that makes queries, one layer's: rows are the width of the model, columns
# its heads and their features. A piece of it lies on each of the devices it names.

# %%
leaves = jax.tree_util.tree_leaves_with_path(state.params)
kernel = next(
    x for path, x in leaves if "query" in jax.tree_util.keystr(path) and x.ndim > 2
)
pieces = {}
for piece in kernel.addressable_shards:
    pieces.setdefault(str(piece.index), []).append(piece)

figure, axes = plots.panels(height=2.6)
owner = np.zeros(kernel.shape[1:])
for number, same in enumerate(pieces.values(), start=1):
    owner[same[0].index[1:]] = number
    y, x = np.argwhere(owner.reshape(d_model, -1) == number).mean(axis=0)
    devices = ", ".join(str(piece.device.id) for piece in same)
    axes.text(x, y, f"devices {devices}", ha="center", va="center")
axes.imshow(
    owner.reshape(d_model, -1), cmap="Blues", vmin=0, vmax=3 * number, aspect="auto"
)
axes.grid(visible=False)
axes.set(xlabel="heads x features", ylabel="width")
figure

# %% [markdown]
# ## A run
#
# The same mesh on the command line of any experiment, and on as many hosts as there
# are:
#
# ```
# XLA_FLAGS=--xla_force_host_platform_device_count=4 \
#     python -m experiments.compare smoke --mesh data=2,tensor=2
# ```
#
# A checkpoint that was written on one mesh goes on on another:
# [docs/training.md](../docs/training.md).
