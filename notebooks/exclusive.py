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
# # Exclusive self attention
#
# Zhai 2026, [2603.09078](https://arxiv.org/abs/2603.09078).
#
# **The claim.** The output of self-attention points along the token's own value, which
# the token has anyway. Without that direction, attention is left with what is in the
# context, and models of all sizes come to a lower loss.
#
# **Equation 2.**
#
# $$z_i = y_i - \frac{y_i \cdot v_i}{|v_i|^2}\, v_i$$
#
# **The function.** `attn_jax.ops.exclude_self(y, v)`, after any mechanism's y.

# %%
import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.analysis import plots
from attn_jax.analysis.similarity import attention_similarity
from attn_jax.ops import exclude_self, linear_attention, masks, softmax_attention

# %% tags=["parameters"]
t = 64
levels = (0.0, 0.5, 1.0, 2.0, 4.0)

# %% [markdown]
# ## Where the direction comes from
#
# Values of different tokens are alike: they share a mean. The more of it there is, the
# closer any average of values comes to each of them, without a token looking at itself
# (figure 1 of the paper measures the three in trained models).

# %%
h, d = 4, 16
keys = jax.random.split(jax.random.key(0), 3)
q, k, own = jax.random.normal(keys[0], (3, 1, t, h, d))
common = jax.random.normal(keys[1], (1, 1, h, d))
causal = masks.causal()
found = [
    attention_similarity(q, k, own + level * common, mask=causal) for level in levels
]
names = {
    "cos(v_i, v_j)": "value_cosine",
    "cos(y_i, v_i)": "output_cosine",
    "weight of the own value": "diagonal_weight",
}
figure, axes = plots.panels(height=3.4)
for name, look in plots.line_styles(names).items():
    values = [float(getattr(each, names[name])) for each in found]
    axes.plot(levels, values, label=name, **look)
axes.set(xlabel="size of the common mean", ylabel="mean over tokens and heads")
plots.legend(figure)
figure

# %% [markdown]
# ## What is taken out

# %%
v = own + common
y = softmax_attention(q, k, v, mask=causal)
z = exclude_self(y, v)


def cosine(a, b):
    lengths = jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1)
    return np.asarray(jnp.sum(a * b, axis=-1) / lengths)[:, 1:].ravel()


edges = np.linspace(-1, 1, 41)
shares = {
    name: np.histogram(cosine(x, v), edges)[0] / cosine(x, v).size
    for name, x in {"y": y, "z": z}.items()
}
figure = plots.weight_distributions(shares, edges)
figure.axes[0].set(xlabel="cosine with the own value", ylabel="share of the outputs")
figure

# %% [markdown]
# It is local to a token: no mask, window or sharding before it is affected, and
# decoding needs the new token's value only. The first token sees itself alone, so
# nothing is left of it. What was 0 stays 0, and no gradient is infinite there.

# %%
assert jnp.abs(jnp.sum(z * v, axis=-1)).max() < 1e-4
assert jnp.abs(z[:, 0]).max() < 1e-5
alone = jax.grad(lambda v: exclude_self(v, v).sum())(jnp.zeros((1, 1, h, d)))
assert jnp.isfinite(alone).all()

# %% [markdown]
# ## After any mechanism
#
# In a model it is a word in the config: `DecoderConfig(..., exclusive=True)`.

# %%
y = linear_attention(q, k, v, mask=causal)
print("linear:   ", float(cosine(y, v).mean()))
print("exclusive:", float(np.abs(cosine(exclude_self(y, v), v)).max()))

# %% [markdown]
# More: [docs/exclusive.md](../docs/exclusive.md) and `python -m experiments.exclusive`.
