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
# # Eigen analysis of self-attention
#
# Bhojanapalli et al. 2021, [2106.08823](https://arxiv.org/abs/2106.08823).
#
# **The claim.** Rows of attention scores lie near a space of few dimensions, nearly the
# same one in all layers. So a few scores of a row tell the others, and a model can be
# trained that computes no more than these.
#
# **Equations.** Scores p of selected keys S, and the row that is made of them:
#
# $$p_{ia} = \frac{q_i \cdot k_{S_{ia}}}{\sqrt d}, \qquad
#   y_i = \sum_j \mathrm{softmax}_j\Big(\sum_a R_{ija}\, p_{ia} + c_{ij}\Big) v_j$$
#
# **The functions.** `analysis.eigen` measures and selects; `partial_logits`,
# `reconstruct_logits` and `partial_attention` compute. The scores here are made up,
# with what the paper found in them; [encoder](encoder.ipynb) looks at a real model's.

# %%
import jax.numpy as jnp
import numpy as np

from attn_jax.analysis import eigen, plots
from attn_jax.ops import partial_attention, sinusoidal_positions, softmax_attention

# %% tags=["parameters"]
examples = 400
n = 32  # tokens

# %% [markdown]
# ## Scores of few dimensions
#
# Queries and keys are positions plus what a token adds to them; two "layers" add their
# own.

# %%
d, layers = 16, 2
rng = np.random.default_rng(0)
places = 1.5 * np.asarray(sinusoidal_positions(n, d))[:, None]  # t h d, one head


def draw(count):
    """Queries and keys of some sequences: layer, q or k, b t h d."""
    amount = rng.normal(1.0, 0.4, size=(layers, 2, count, 1, 1, d))
    noise = 0.3 * rng.normal(size=(layers, 2, count, n, 1, d))
    return (amount * places + noise).astype(np.float32)


train, test = draw(examples), draw(examples)
scores = [np.einsum("lbthd,lbshd->lbhts", x[:, 0], x[:, 1]) / 4 for x in (train, test)]
train_rows, test_rows = (
    eigen.score_statistics([eigen.Batch(each)], length=n) for each in scores
)
plots.spectra(
    {f"layer {i + 1}": eigen.spectrum(rows[0]) for i, rows in enumerate(train_rows)}
)

# %% [markdown]
# ## The same space in both layers
#
# The overlap of the leading 6 components, beside that of 6 random directions.

# %%
spaces = [rows[0] for rows in train_rows]
print(f"random: {eigen.random_overlap(6, n):.2f}")
plots.overlap_matrix(
    eigen.between(eigen.subspace_overlap, spaces, 6), labels=["layer 1", "layer 2"]
)

# %% [markdown]
# ## A few scores tell the others
#
# For each query, greedily, the key that leaves the least variance unexplained. Below:
# what is left, on sequences that neither selection nor map has seen, beside what as
# many components would leave, the least there can be.

# %%
per_position = [
    eigen.score_statistics([eigen.Batch(each)], length=n, of="positions")[0][0]
    for each in scores
]
known = [1, 2, 4, 8, 16]
points = eigen.error_curve(*per_position, known, ridge=1e-3)
figure, axes = plots.panels(height=3.4)
lines = {
    "selected scores": [point.held_out for point in points],
    "components": [point.bound for point in points],
}
for name, look in plots.line_styles(lines).items():
    axes.plot(known, lines[name], label=name, **look)
axes.set_xscale("log", base=2)
axes.set(xlabel="known scores a query", ylabel="share of the variance left")
axes.set_yscale("log")
plots.legend(figure)
figure

# %% [markdown]
# ## Attention that computes no more than these

# %%
k_known = 8
selected = eigen.row_selection(per_position[0].matrix, k_known)
maps = eigen.fit_rows(per_position[0], selected, ridge=1e-3)
parameters = {
    "selected": selected,
    "reconstruction": jnp.asarray(maps.reconstruction, jnp.float32)[None],
    "offset": jnp.asarray(maps.offset, jnp.float32)[None],
}
q, k = (jnp.asarray(x[:1]) for x in test[0])
identity = jnp.eye(n)[None, :, None]
exact = softmax_attention(q, k, identity)[0, :, 0]
partial = partial_attention(q, k, identity, **parameters)[0, :, 0]
computed = np.full((n, n), np.nan)
computed[np.arange(n)[:, None], selected] = np.take_along_axis(
    np.asarray(exact), selected, axis=1
)
plots.head_grid(
    {"all scores": exact, f"known: {k_known} of {n}": computed, "made of them": partial}
)

# %% [markdown]
# More: [docs/eigen.md](../docs/eigen.md), `python -m experiments.eigen` and
# `python -m experiments.eigen_training`.
