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
# # Transformers are RNNs
#
# Katharopoulos et al. 2020, [2006.16236](https://arxiv.org/abs/2006.16236).
#
# **The claim.** With a feature map in place of the exponential, attention costs time
# that grows with the length and not with its square, and a causal one is a recurrent
# network whose memory doesn't grow.
#
# **Equations 4 and 9.**
#
# $$y_i = \frac{\phi(q_i)^\top \sum_{j \le i} \phi(k_j) v_j^\top}
#   {\phi(q_i)^\top \sum_{j \le i} \phi(k_j)}, \qquad \phi(x) = \mathrm{elu}(x) + 1$$
#
# **The functions.** `linear_attention`, which picks a form; `_scan`, `_chunked`,
# `_recurrent` and `_step` are the forms.

# %%
import time

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.analysis import plots
from attn_jax.ops import (
    LinearState,
    elu_plus_one,
    linear_attention,
    linear_attention_step,
    masks,
    softmax_attention,
)

# %% tags=["parameters"]
t = 32
lengths = (256, 512, 1024, 2048, 4096)
repeats = 5

# %% [markdown]
# ## Attention or recurrence: the same numbers
#
# As a matrix of weights, each row divided by its sum:

# %%
h, d = 2, 16
q, k, v = jax.random.normal(jax.random.key(0), (3, t, h, d))
similarity = jnp.einsum("thd,shd->hts", elu_plus_one(q), elu_plus_one(k))
similarity = jnp.where(jnp.tril(jnp.ones((1, t, t), bool)), similarity, 0)
weights = similarity / similarity.sum(-1, keepdims=True)
as_matrix = jnp.einsum("hts,she->the", weights, v)

# %% [markdown]
# As a recurrence: s is a sum of outer products, z a sum of keys, and a token needs
# nothing else of the past.


# %%
def token(memory, qkv):  # s += φ(k) vᵀ, z += φ(k), y = φ(q)ᵀ s / φ(q)ᵀ z
    y, memory = linear_attention_step(*qkv, memory)
    return memory, y


nothing = LinearState(kv=jnp.zeros((h, d, d)), k=jnp.zeros((h, d)))
memory, as_recurrence = jax.lax.scan(token, nothing, (q, k, v))
as_chunks = linear_attention(q, k, v, mask=masks.causal())
assert jnp.allclose(as_matrix, as_recurrence, atol=1e-4)
assert jnp.allclose(as_matrix, as_chunks, atol=1e-4)

# %% [markdown]
# ## What it attends to
#
# The exponential can put all weight on one key. φ is nearly linear, so weights are
# spread out: this is what is paid for the speed.

# %%
identity = jnp.broadcast_to(jnp.eye(t)[:, None, :], (t, h, t))
causal = masks.causal()
visible = np.tril(np.ones((t, t), bool))
maps = {
    "softmax": softmax_attention(2 * q, 2 * k, identity, mask=causal)[:, 0],
    "linear": linear_attention(2 * q, 2 * k, identity, mask=causal)[:, 0],
}
plots.head_grid({name: np.where(visible, w, np.nan) for name, w in maps.items()})

# %% [markdown]
# ## How time grows
#
# With the square of the length, and with the length: slopes of 2 and 1 on these scales.

# %%
seconds = {"softmax": [], "linear": []}
functions = {"softmax": softmax_attention, "linear": linear_attention}
for name, attend in functions.items():
    run = jax.jit(lambda q, k, v, attend=attend: attend(q, k, v, mask=causal))
    for n in lengths:
        x = jax.random.normal(jax.random.key(1), (3, n, 4, 32))
        run(*x).block_until_ready()
        samples = []
        for _ in range(repeats):
            start = time.perf_counter()
            run(*x).block_until_ready()
            samples.append(time.perf_counter() - start)
        seconds[name].append(min(samples))

figure, axes = plots.panels(height=3.6)
for name, look in plots.line_styles(seconds).items():
    axes.plot(lengths, [1e3 * s for s in seconds[name]], label=name, **look)
axes.set_xscale("log", base=2)
axes.set(yscale="log", xlabel="tokens", ylabel="milliseconds, forward")
plots.legend(figure)
figure

# %% [markdown]
# And the memory of what is written token by token: keys and values of all tokens for
# softmax, one matrix a head here.

# %%
n = lengths[-1]
print(f"softmax: {2 * n * h * d:,} numbers after {n:,} tokens")
print(f"linear:  {memory.kv.size + memory.k.size:,} numbers after any number of them")

# %% [markdown]
# More: [docs/linear.md](../docs/linear.md), and the paper's studies,
# `python -m experiments.linear_scaling`, `linear_copy` and `linear_images`.
