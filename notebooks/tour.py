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
# # One contract for every mechanism
#
# An attention mechanism is a function of queries, keys and values. They lie as
# `*b t h d`: any leading axes, tokens, heads, features. All mechanisms here take the
# same masks, keep the same promises and refuse what they can't do.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from attn_jax.analysis import plots
from attn_jax.nn import MECHANISMS, Attention, AttentionConfig
from attn_jax.ops import (
    LinearState,
    factorized_random_attention,
    linear_attention,
    linear_attention_step,
    masks,
    softmax_attention,
    softmax_attention_weights,
)

# %% tags=["parameters"]
t = 24  # tokens
layers = ("softmax", "linear", "factorized_random")  # any of MECHANISMS

# %%
h, d = 2, 16
q, k, v = jax.random.normal(jax.random.key(0), (3, 1, t, h, d))
y = softmax_attention(q, k, v)
y.shape

# %% [markdown]
# ## Masks are rules
#
# True means "may attend". Rules join with `&`. No t x t array is built until somebody
# asks for one with `allowed`.

# %%
ids = jnp.arange(t)[None] // (t // 3)
rules = {
    "causal": masks.causal(),
    "window(5)": masks.causal() & masks.window(5),
    "prefix(8)": masks.prefix(8),
    "segments": masks.causal() & masks.segments(ids),
}
seen = {name: rule.allowed(t, t) for name, rule in rules.items()}
plots.head_grid(
    {name: np.where(np.reshape(x, (t, t)), 1.0, np.nan) for name, x in seen.items()}
)

# %% [markdown]
# ## What a mechanism attends to
#
# The weights of any mechanism come out when the values are an identity matrix: the
# output of token i is then its row of weights. What is masked is hatched.

# %%
identity = jnp.broadcast_to(jnp.eye(t)[None, :, None, :], (1, t, h, t))
r1, r2 = jax.random.normal(jax.random.key(1), (2, h, t, 4))
causal = masks.causal()
weights = {
    "softmax": softmax_attention(2 * q, k, identity, mask=causal),
    "linear": linear_attention(2 * q, k, identity, mask=causal),
    "factorized random": factorized_random_attention(r1, r2, identity, mask=causal),
}
direct = softmax_attention_weights(2 * q, k, mask=causal)
assert jnp.allclose(weights["softmax"][:, :, 0], direct[:, 0], atol=1e-6)

visible = np.tril(np.ones((t, t), bool))
plots.head_grid(
    {name: np.where(visible, w[0, :, 0], np.nan) for name, w in weights.items()}
)

# %% [markdown]
# ## What is masked has no influence
#
# Not even NaN gets through, in outputs or gradients. A padded query, or one that may
# attend to nothing, gives exactly 0.

# %%
real = jnp.arange(t)[None] < t - 6
padding = masks.padding(real, real)
dirty = jnp.where(real[..., None, None], v, jnp.nan)
clean = softmax_attention(q, k, v, mask=padding)
assert (softmax_attention(q, k, dirty, mask=padding) == clean).all()
assert (clean[:, -6:] == 0).all()

# %% [markdown]
# ## Token by token equals all at once

# %%
state = LinearState(jnp.zeros((1, h, d, d)), jnp.zeros((1, h, d)))
for i in range(3):
    y, state = linear_attention_step(q[:, i], k[:, i], v[:, i], state)
assert jnp.allclose(y, linear_attention(q, k, v, mask=causal)[:, 2], atol=1e-5)

# %% [markdown]
# The same holds of layers, which own parameters, and of whole models. `MECHANISMS` is
# the one table: a name and the config of the mechanism.

# %%
x = jax.random.normal(jax.random.key(2), (1, t, 32))
for name in layers:
    mechanism = MECHANISMS[name]
    config = AttentionConfig(
        d_model=32, num_heads=h, mechanism=mechanism().for_length(t)
    )
    layer = Attention(config, rngs=nnx.Rngs(0))
    y = layer(x, mask=causal)
    print(f"{name:18} {mechanism.equation}")
    if not mechanism.cannot_decode:
        cache = layer.init_cache(1, t, jnp.float32)
        first, cache = layer.decode(x[:, : t // 2], cache)
        second, cache = layer.decode(x[:, t // 2 :], cache)
        pieces = jnp.concatenate([first, second], axis=1)
        assert jnp.allclose(y, pieces, atol=1e-5)

# %% [markdown]
# ## What can't be honoured is refused
#
# Before anything is computed, with what came, what was expected and what to do.

# %%
for call in (
    lambda: softmax_attention(q, k[:, : t // 2], v[:, : t // 2], mask=causal),
    lambda: softmax_attention(q, k, v, mask=jnp.ones((t, t), bool)),
    lambda: linear_attention(q, k, v, mask=masks.dense(jnp.ones((t, t), bool))),
):
    try:
        call()
    except (ValueError, TypeError) as error:
        print(f"{type(error).__name__}: {error}\n")

# %% [markdown]
# Next: a notebook a paper ([transformer](transformer.ipynb), [linear](linear.ipynb),
# [synthesizer](synthesizer.ipynb), [eigen](eigen.ipynb), [exclusive](exclusive.ipynb)),
# [a mechanism of your own](compose.ipynb), [leaks](leaks.ipynb),
# [a sharded run](sharded.ipynb), [a real encoder](encoder.ipynb).
