"""An attention layer computed the slow way: NumPy, float64, from its parameters.

The parameters come as nested dicts of arrays, named as in the module. What happens
between projections is that of `tests.ops`: one query, one head, one logit at a time.
Random numbers alone are JAX's.
"""

import jax
import numpy as np

from tests.ops import (
    oracle_exclusive,
    oracle_lsh,
    oracle_positions,
    oracle_synthesizer,
    oracles,
)


def attention(
    name,
    params,
    x,
    allowed,
    *,
    exclusive=False,
    rotary=False,
    alibi=False,
    qk_norm=False,
    context=None,
    first=None,
    mechanism=None,
):
    """y = concat over heads (mechanism(x)) W_o for rows `b t m`; allowed `b h t s`.

    rotary is True, or the base of the wavelengths; exclusive is True, or its gate.
    first are the values to mix with. mechanism is the config, which some need for what
    parameters do not tell.
    """
    attended = x if context is None else context
    v = projected(params["value"], attended)
    if first is not None:
        share = float(params["first_share"])
        v = (1 - share) * v + share * first
    h, t, s = params["output"]["kernel"].shape[0], x.shape[1], attended.shape[1]
    allowed = np.broadcast_to(allowed, (len(x), h, t, s))
    core = params["mechanism"]
    if name in OUTPUTS:
        options = {"rotary": rotary, "qk_norm": qk_norm}
        y = OUTPUTS[name](core, x, attended, v, allowed, mechanism, **options)
    else:
        logits = LOGITS[name](core, x, attended, rotary=rotary, qk_norm=qk_norm)
        logits = np.broadcast_to(logits, (len(x), *logits.shape[-3:]))[..., :t, :s]
        if alibi:
            logits = logits + oracle_positions.alibi(h, t, s)
        nothing = np.zeros((len(x), t, h, v.shape[-1]))
        y = oracle_synthesizer.attention(logits, v, allowed, nothing).out
    if exclusive:
        strength = STRENGTHS[exclusive](params.get("exclusive_gate", np.zeros(h)))
        y = oracle_exclusive.exclude_self(y, v, strength[:, None])
    if "output_gate" in params:
        y = y * sigmoid(projected(params["output_gate"], x))
    out = np.einsum("bthe,hem->btm", y, params["output"]["kernel"])
    return out + params["output"].get("bias", 0.0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


STRENGTHS = {True: np.ones_like, "tanh": np.tanh, "sigmoid": sigmoid}
SINE = oracles.FeatureMap(np.sin, lambda x, g: g * np.cos(x))


def projected(layer, x):
    """x W + b, one vector a head."""
    y = np.einsum("btm,mhd->bthd", x, layer["kernel"])
    return y + layer["bias"] if "bias" in layer else y


def rms(x, scale):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-6) * scale


def turned(core, part, x, rotary, qk_norm):
    """norm(x W), turned by positions; part is "query" or "key"."""
    y = projected(core[part], x)
    if qk_norm:
        y = rms(y, core[f"{part}_norm"]["scale"])
    if rotary:
        base = 10000.0 if rotary is True else rotary
        y = oracle_positions.rotary(y, np.arange(x.shape[1]), base)
    return y


def queries_and_keys(core, x, attended, rotary, qk_norm):
    q = turned(core, "query", x, rotary, qk_norm)
    return q, turned(core, "key", attended, rotary, qk_norm)


def linear(core, x, attended, v, allowed, mechanism, *, rotary, qk_norm):
    q, k = queries_and_keys(core["query_key"], x, attended, rotary, qk_norm)
    return oracles.linear_attention(q, k, v, allowed).out


def linear_normed(core, x, attended, v, allowed, mechanism, *, rotary, qk_norm):
    q, k = queries_and_keys(core["query_key"], x, attended, rotary, qk_norm)
    options = {"feature_map": SINE, "normalize": False}
    y = oracles.linear_attention(q, k, v, allowed, **options).out
    return rms(y, core["norm"]["scale"])


def lsh(core, x, attended, v, allowed, mechanism, *, rotary, qk_norm):
    """x are the first tokens of those attended to; rotations are those of the seed."""
    qk = turned(core["query_key"], "query", attended, rotary, qk_norm)
    t, h, d = qk.shape[1:]
    key, size = jax.random.key(mechanism.seed), mechanism.bucket_size
    columns = [
        jax.random.normal(
            jax.random.fold_in(key, i), (mechanism.num_rounds, h, d), np.float32
        )
        for i in range(-(-t // (2 * size)))
    ]
    rotations = np.stack(columns).astype(np.float64)
    queries = x.shape[1]
    return oracle_lsh.attention(qk, v, allowed, rotations, size, queries=queries).out


def dot_products(core, x, attended, *, rotary, qk_norm):
    q, k = queries_and_keys(core["query_key"], x, attended, rotary, qk_norm)
    (b, t, h, d), (s, g) = q.shape, k.shape[1:3]
    out = np.zeros((b, h, t, s))
    for row, head, i, j in np.ndindex(b, h, t, s):
        key = k[row, j, head // (h // g)]
        out[row, head, i, j] = q[row, i, head] @ key / np.sqrt(d)
    return out


def random(core, x, attended, **_):
    return core["random"]


def factorized_random(core, x, attended, **_):
    return oracle_synthesizer.factorized_random_logits(core["r1"], core["r2"])


def layers(core):
    """Both layers of a dense Synthesizer, with biases, and a second one a head."""
    (*_, h, _, d), n = core["w1"].shape, core["w2"].shape[-1]
    b1, b2 = core.get("b1", np.zeros((h, d))), core.get("b2", np.zeros((h, n)))
    w2 = np.broadcast_to(core["w2"], (h, d, n))
    return core["w1"], b1, w2, np.broadcast_to(b2, (h, n))


def dense(core, x, attended, **_):
    return oracle_synthesizer.dense_logits(x, *layers(core))


def convolution(core, x, attended, **_):
    return oracle_synthesizer.convolution_logits(x, *layers(core))


def gated(core, x, attended, **_):
    w1, b1, w2, b2 = layers(core)
    gate = core["v1"], core.get("c1", np.zeros_like(b1))
    return oracle_synthesizer.gated_logits(x, w1, b1, *gate, w2, b2)


def factorized_dense(core, x, attended, *, a=None, **_):
    """None: the table's factors, nearest to each other, the greater first."""
    both = dense(core, x, attended)
    a = (both.shape[-1] + 1) // 2 if a is None else a
    return oracle_synthesizer.factorized_dense_logits(both[..., :a], both[..., a:])


def mixture(core, x, attended, **options):
    """The table's: a random Synthesizer and dot products, weighted by head."""
    members = core["members"]
    one = random(members[0], x, attended)
    two = dot_products(members[1], x, attended, **options)
    n = two.shape[-1]
    one = np.broadcast_to(one[:, : x.shape[1], :n], two.shape)
    raised = np.exp(core["alpha"])
    alphas = raised / raised.sum(axis=-1, keepdims=True)
    return oracle_synthesizer.mixture([one, two], alphas)


def partial(core, x, attended, **options):
    """The table's: keys that are spread evenly over 0 .. i, one map for all heads."""
    scores = dot_products(core, x, attended, **options)
    matrix, offset = core["reconstruction"][0], core["offset"][0]
    r, out = matrix.shape[-1], np.zeros(scores.shape)
    for b, head, i in np.ndindex(*scores.shape[:3]):
        keys = [i * a // max(r - 1, 1) for a in range(r)]
        known = np.array([scores[b, head, i, key] for key in keys])
        for j in range(scores.shape[-1]):
            out[b, head, i, j] = matrix[i, j] @ known + offset[i, j]
    return out


OUTPUTS = {"linear": linear, "linear_normed": linear_normed, "lsh": lsh}
LOGITS = {
    "softmax": dot_products,
    "random": random,
    "factorized_random": factorized_random,
    "dense": dense,
    "factorized_dense": factorized_dense,
    "convolution": convolution,
    "bottleneck": dense,
    "gated": gated,
    "mixture": mixture,
    "partial": partial,
}
