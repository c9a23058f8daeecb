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
# # Synthesizer
#
# Tay et al. 2021, [2005.00743](https://arxiv.org/abs/2005.00743).
#
# **The claim.** Comparing tokens with each other is not what attention lives on: logits
# that a token writes from itself alone, or that are learnt once for each pair of
# positions, do nearly as well, and a mixture with dot products does better than these.
#
# **Equations.** Row i of logits, of which the softmax is taken as ever:
#
# | name | logits | depends on |
# |---|---|---|
# | Dense | $\mathrm{relu}(x_i W_1 + b_1) W_2 + b_2$ | the token |
# | Random | $R_i$ | the position |
# | Factorized Random | $(R_1 R_2^\top)_i$ | the position |
# | Mixture | $\sum_k \alpha_k S^k_i$, $\alpha$ from a softmax | what its members do |
#
# **The functions.** `dense_synthesizer_logits`, `factorized_random_logits`,
# `factorized_dense_logits`, `mix_logits`; `synthesizer_attention` takes any logits.

# %%
import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.analysis import plots
from attn_jax.analysis.weights import weight_histogram
from attn_jax.ops import (
    dense_synthesizer_logits,
    factorized_random_logits,
    masks,
    mix_logits,
    softmax_attention_weights,
    synthesizer_attention,
)

# %% tags=["parameters"]
t = 16

# %% [markdown]
# ## What sees what
#
# Two sequences that differ in one token, at the place of the arrow. Softmax changes in
# that row and that column: every token is compared with it. Dense changes in the row
# alone: only the token itself writes its row. Random doesn't change.

# %%
h, m, d, changed = 2, 32, 16, 6
keys = jax.random.split(jax.random.key(0), 8)
x = jax.random.normal(keys[0], (t, m))
other = x.at[changed].set(jax.random.normal(keys[1], (m,)))
wq, wk = jax.random.normal(keys[2], (2, m, h, d)) * 0.25
w1 = jax.random.normal(keys[3], (h, m, d)) * 0.25
w2 = jax.random.normal(keys[4], (h, d, t)) * 0.5
r1, r2 = jax.random.normal(keys[5], (2, h, t, 8)) * 0.6


def weights(x):
    """Weights of each mechanism, h t s."""
    q, k = (jnp.einsum("tm,mhd->thd", x, w) for w in (wq, wk))
    dense = dense_synthesizer_logits(x, w1, None, w2, None)
    random = factorized_random_logits(r1, r2)
    return {
        "softmax": softmax_attention_weights(q, k),
        "dense": jax.nn.softmax(dense),
        "factorized random": jax.nn.softmax(random),
    }


before, after = weights(x), weights(other)
tokens = ["→" if i == changed else str(i) for i in range(t)]
plots.head_grid(
    {f"{name}: change": np.abs(after[name][0] - before[name][0]) for name in before},
    queries=tokens,
)

# %% [markdown]
# ## The outputs
#
# `synthesizer_attention` takes logits and values. Column j always means position j, so
# logits for n positions serve any shorter sequence.

# %%
v = jax.random.normal(keys[6], (t, h, d))
dense = dense_synthesizer_logits(x, w1, None, w2, None)
y = synthesizer_attention(dense, v, mask=masks.causal())
short = synthesizer_attention(dense[:, : t // 2], v[: t // 2], mask=masks.causal())
assert jnp.allclose(y[: t // 2], short, atol=1e-6)

# %% [markdown]
# ## A mixture
#
# Logits are mixed before the softmax, with weights that are positive and sum to 1, for
# each head.

# %%
random = factorized_random_logits(r1, r2)
maps = {}
for share in (0.0, 0.5, 1.0):
    alphas = jnp.broadcast_to(jnp.array([share, 1 - share]), (h, 2))
    mixed = jax.nn.softmax(mix_logits([dense, random], alphas))
    maps[f"{share:.0%} dense, {1 - share:.0%} random"] = mixed[0]
plots.head_grid(maps)

# %% [markdown]
# ## How sharp the weights are
#
# The paper shows such histograms of trained models. These are of random parameters;
# `python -m experiments.synthesizer` draws them of trained ones.

# %%
edges = np.append(0, 2.0 ** np.arange(-12, 1))
shares = {
    name: np.asarray(weight_histogram(w, edges=edges).shares)
    for name, w in before.items()
}
plots.weight_distributions(shares, edges)

# %% [markdown]
# More: [docs/synthesizer.md](../docs/synthesizer.md) and the paper's tables in
# [docs/synthesizer_rows.md](../docs/synthesizer_rows.md).
