"""Complete models computed the slow way: NumPy, float64, from their parameters."""

import math

import numpy as np

from tests.nn.oracle import attention, projected
from tests.ops import oracle_positions


def decoder(params, tokens, config, allowed, positions=None):
    """Logits of tokens `b t`, as in the architecture's figure.

    params: nested dicts of arrays, the blocks' stacked over layers. allowed `t t`.
    positions `b t` are those of learned and sinusoidal embeddings.
    """
    x = embedded(params["embedding"], tokens, config, positions)
    if config.embedding_norm:
        x = norm(x, params["norm"], config)
    x = stack(params["stack"], x, config, "softmax", allowed)
    return logits(params["embedding"], x, config)


def encoder_decoder(params, source, target, config, real, names):
    """Logits of target `b t` beside source `b s`, of which `real` is no padding.

    names: of the mechanisms of the encoder, the decoder and between them.
    """
    table, seen = params["embedding"], real[:, None, None, :]
    encoder, decoder, between = names
    causal = np.tril(np.ones((target.shape[1],) * 2, bool))
    memory = embedded(table, source, config)
    memory = stack(params["encoder"], memory, config, encoder, seen)
    x = embedded(table, target, config)
    cross = between, memory, seen
    x = stack(params["decoder"], x, config, decoder, causal, cross)
    return logits(table, x, config)


def encoder(params, tokens, types, config, real):
    """Vectors of tokens `b t`, of which `real` is no padding."""
    x = embedded(params["embedding"], tokens, config)
    if config.num_types:
        x = x + params["embedding"]["types"][types]
    if config.embedding_norm:
        x = norm(x, params["norm"], config)
    return stack(params["stack"], x, config, "softmax", real[:, None, None, :])


def embedded(table, tokens, config, positions=None):
    if positions is None:
        positions = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
    scale = config.embedding_scale or 1.0
    scale = np.sqrt(config.d_model) if scale == "sqrt" else scale
    x = table["embedding"][tokens] * scale
    if config.positions == "learned":
        x = x + table["positions"][positions]
    if config.positions == "sinusoidal":
        columns = sinusoidal(positions, config.d_model)
        if config.position_layout == "concatenated":
            columns = np.concatenate([columns[..., ::2], columns[..., 1::2]], axis=-1)
        x = x + columns
    if config.positions == "concatenated":
        x = np.concatenate([x, sinusoidal(positions, config.d_model // 2)], axis=-1)
    return x


def stack(params, x, config, name, allowed, cross=None):
    layers = len(params["blocks"]["attention_norm"]["scale"])
    first = None
    if config.value_residual:
        one = layer(params["blocks"], 0)
        y = x
        if config.norm_placement == "pre":
            y = norm(x, one["attention_norm"], config)
        first = projected(one["attention"]["value"], y)
    for i in range(layers):
        x = block(layer(params["blocks"], i), x, config, name, allowed, cross, first)
    final = config.final_norm
    if final or (final is None and config.norm_placement == "pre"):
        x = norm(x, params["norm"], config)
    return x


def logits(table, x, config):
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


def block(params, x, config, name, allowed, cross=None, first=None):
    """cross: a mechanism's name, what is attended to, and what of it is visible.

    first: the first layer's values, to mix with.
    """

    def attend(y):
        return attention(
            name,
            params["attention"],
            y,
            allowed,
            exclusive=config.exclusive and (config.exclusive_gate or True),
            rotary=config.positions == "rotary",
            alibi=config.positions == "alibi",
            qk_norm=config.qk_norm,
            first=first,
        )

    def attend_memory(y):
        between, memory, seen = cross
        return attention(
            between, params["cross"], y, seen, qk_norm=config.qk_norm, context=memory
        )

    def forward(y):
        return feed_forward(params["forward"], y, config.activation)

    layers = [("attention_norm", attend), ("forward_norm", forward)]
    if cross is not None:
        layers.insert(1, ("cross_norm", attend_memory))
    for place, apply in layers:
        if config.norm_placement == "pre":
            x = x + apply(norm(x, params[place], config))
        else:
            x = norm(x + apply(x), params[place], config)
    return x


def norm(x, params, config):
    """(x - mean) / sqrt(variance + epsilon), or x / sqrt(mean of squares + epsilon)."""
    if config.norm == "layer":
        x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + config.norm_epsilon)
    return x * params["scale"] + params.get("bias", 0.0)


def feed_forward(params, x, activation):
    hidden = x @ params["up"]["kernel"] + params["up"].get("bias", 0.0)
    hidden = activated(hidden, activation)
    return hidden @ params["down"]["kernel"] + params["down"].get("bias", 0.0)


def activated(x, activation):
    if activation == "relu":
        return np.maximum(x, 0)
    if activation == "gelu_exact":
        return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(inner))
