"""A complete decoder computed the slow way: NumPy, float64, from its parameters."""

import math

import numpy as np

from tests.nn.oracle import attention
from tests.ops import oracle_positions


def decoder(params, tokens, config, allowed, positions=None):
    """Logits of tokens `b t`, as in the architecture's figure.

    params: nested dicts of arrays, the blocks' stacked over layers. allowed `t t`.
    positions `b t` are those of learned and sinusoidal embeddings.
    """
    table, stack = params["embedding"], params["stack"]
    if positions is None:
        positions = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
    x = table["embedding"][tokens] * (config.embedding_scale or 1.0)
    if config.positions == "learned":
        x = x + table["positions"][positions]
    if config.positions == "sinusoidal":
        x = x + sinusoidal(positions, config.d_model)
    for i in range(config.num_layers):
        x = block(layer(stack["blocks"], i), x, config, allowed)
    if config.norm_placement == "pre":
        x = norm(x, stack["norm"], config)
    head = table["embedding"].T if config.tie_embeddings else table["kernel"]
    return x @ head


def layer(params, i):
    """One layer's parameters of those stacked over layers."""
    if isinstance(params, dict):
        return {name: layer(value, i) for name, value in params.items()}
    return params[i]


def sinusoidal(positions, width):
    table = [
        [
            [oracle_positions.sinusoidal(int(p), c, width) for c in range(width)]
            for p in r
        ]
        for r in positions
    ]
    return np.array(table)


def block(params, x, config, allowed):
    def attend(y):
        return attention(
            "softmax",
            params["attention"],
            y,
            allowed,
            exclusive=config.exclusive,
            rotary=config.positions == "rotary",
            alibi=config.positions == "alibi",
            qk_norm=config.qk_norm,
        )

    def forward(y):
        return feed_forward(params["forward"], y, config.activation)

    for name, apply in (("attention_norm", attend), ("forward_norm", forward)):
        if config.norm_placement == "pre":
            x = x + apply(norm(x, params[name], config))
        else:
            x = norm(x + apply(x), params[name], config)
    return x


def norm(x, params, config):
    """(x - mean) / sqrt(variance + epsilon), or x / sqrt(mean of squares + epsilon)."""
    if config.norm == "layer":
        x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + config.norm_epsilon)
    return x * params["scale"] + params.get("bias", 0.0)


def feed_forward(params, x, activation):
    hidden = x @ params["up"]["kernel"] + params["up"].get("bias", 0.0)
    if activation == "relu":
        hidden = np.maximum(hidden, 0)
    else:
        inner = math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)
        hidden = 0.5 * hidden * (1 + np.tanh(inner))
    return hidden @ params["down"]["kernel"] + params["down"].get("bias", 0.0)
