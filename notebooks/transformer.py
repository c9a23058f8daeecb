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
# # Attention Is All You Need
#
# Vaswani et al. 2017, [1706.03762](https://arxiv.org/abs/1706.03762).
#
# **The claim.** Attention alone, without recurrence or convolution, translates better
# than networks with them, and trains faster, since all tokens are computed at once.
#
# **Equation 1.**
#
# $$y_i = \sum_j \mathrm{softmax}_j\left(\frac{q_i \cdot k_j}{\sqrt d}\right) v_j$$
#
# **The function.** `attn_jax.ops.softmax_attention`.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from attn_jax import train
from attn_jax.analysis import plots
from attn_jax.analysis.weights import weight_histogram
from attn_jax.models import EncoderDecoder, EncoderDecoderConfig
from attn_jax.ops import softmax_attention, softmax_attention_weights

# %% tags=["parameters"]
steps = 500  # of training
widths = (4, 64, 1024)  # of heads

# %% [markdown]
# ## The equation is the code

# %%
t, h, d = 12, 2, 16
q, k, v = jax.random.normal(jax.random.key(0), (3, 1, t, h, d))
weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(d))
by_hand = jnp.einsum("bhts,bshe->bthe", weights, v)
assert jnp.allclose(softmax_attention(q, k, v), by_hand, atol=1e-5)

# %% [markdown]
# ## Why √d
#
# A dot product of d random features has variance d. Without the scale, wide heads put
# nearly all weight on one key, where the softmax has no gradient.

# %%
figure, axes = plots.panels(1, 2, share="y", height=3.2)
edges = np.append(0, 2.0 ** np.arange(-20, 1))
titles = ("q·k / √d", "q·k")
for axis, title, scale in zip(axes, titles, (None, 1.0), strict=True):
    shares = {}
    for d in widths:
        q, k = np.random.default_rng(0).normal(size=(2, 1, 64, 2, d)).astype("float32")
        w = softmax_attention_weights(jnp.asarray(q), jnp.asarray(k), scale=scale)
        shares[f"d = {d}"] = np.asarray(weight_histogram(w, edges=edges).shares)
    plots.weight_distributions(shares, edges, axes=axis)
    axis.set_title(title)
plots.legend(figure)
figure

# %% [markdown]
# ## What attention learns
#
# The paper's encoder-decoder, one layer of it and narrow, is asked to write a sequence
# backwards. To do so, the token that is written next has to be looked up at the right
# place of the source.

# %%
n, letters = 9, 20
config = EncoderDecoderConfig(
    vocab_size=letters + 2, max_length=n + 1, num_layers=1, d_model=64, num_heads=2
)
model = EncoderDecoder(config, rngs=nnx.Rngs(0))
graph, params = nnx.split(model)


def batch_at(step):
    source = np.random.default_rng(step).integers(2, letters + 2, size=(64, n))
    return source, np.pad(source[:, ::-1], ((0, 0), (1, 0)), constant_values=1)


def loss_fn(params, batch, rng):
    source, target = batch
    logits = nnx.merge(graph, params)(source, target[:, :-1])
    return train.cross_entropy(logits, target[:, 1:])


optimizer = train.adam(3e-3)
state = train.init_train_state(params, optimizer, seed=0)
train_step = train.make_train_step(loss_fn, optimizer)
curve = []
for step in range(steps):
    state, metrics = train_step(state, batch_at(step))
    curve.append((step + 1, float(metrics.loss)))
figure = plots.loss_curves({"reversing": [curve]})
figure.axes[0].set(ylabel="loss, nats a letter", yscale="log")
figure

# %% [markdown]
# A row is a letter that is written, a column a letter of the source. The maps are those
# of the two heads of the layer between decoder and encoder.

# %%
source, target = batch_at(10**6)
trained = nnx.merge(graph, state.params)
found = jax.jit(trained.attention_weights)(source[:1], target[:1, :-1])
names = "..abcdefghijklmnopqrstuvwxyz"
plots.head_grid(
    found.cross[0, 0],
    queries=[names[i] for i in target[0, 1:]],
    keys=[names[i] for i in source[0]],
)

# %% [markdown]
# The whole paper at its sizes: `presets["transformer-base"]`; a run from sentence pairs
# to BLEU: `python -m experiments.translation reversal`, [docs](../docs/translation.md).
