"""A short run through the installed package, for interpreters without a test suite.

`python tests/smoke.py` needs the package and what it depends on, nothing else: no
extra, no pytest. `make smoke` runs it from the built wheel on every other Python.
"""

import importlib
import pkgutil
import sys
import time
import warnings
from pathlib import Path

# What the package does with this JAX must not be on its way out. This comes before
# the package is imported; other packages may warn.
warnings.filterwarnings("error", module=r"attn_jax(\.|$)")

import flax  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from flax import nnx  # noqa: E402

import attn_jax  # noqa: E402
from attn_jax import data, models, nn, ops, train  # noqa: E402
from attn_jax.ops import masks  # noqa: E402

TOLERANCE = 2e-5


def assert_close(left, right, what: str) -> None:
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    if left.shape != right.shape:
        raise AssertionError(f"{what}: shapes {left.shape} and {right.shape}")
    scale = max(np.linalg.norm(right), 1e-30)
    error = np.linalg.norm(left - right) / scale
    if not error < TOLERANCE:
        raise AssertionError(f"{what}: relative error {error:.1e}")


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape)


def heads():
    """q, k and v with grouped heads, an odd length and value width of their own."""
    return normal(1, 2, 7, 4, 5), normal(2, 2, 7, 2, 5), normal(3, 2, 7, 2, 3)


def causal_reference(q, k, v, similarity) -> np.ndarray:
    """Σ_{j<=i} w_ij v_j / Σ_{j<=i} w_ij with the weights w = similarity(q, k)."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, axis=2), np.repeat(v, group, axis=2)
    weights = similarity(q, k) * np.tril(np.ones((q.shape[1], k.shape[1])))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("bhts,bshe->bthe", weights, v)


def exp_similarity(q, k) -> np.ndarray:
    return np.exp(np.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1]))


def elu_similarity(q, k) -> np.ndarray:
    q, k = (np.where(x >= 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
    return np.einsum("bthd,bshd->bhts", q, k)


# Modules that are imported where their extra is needed, which isn't installed here.
OF_EXTRAS = {"attn_jax.analysis.plots._canvas": "matplotlib"}


def every_module_imports() -> None:
    for module in pkgutil.walk_packages(attn_jax.__path__, "attn_jax."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name != OF_EXTRAS.get(module.name):
                raise
    for name in attn_jax.__all__:
        getattr(attn_jax, name)


def softmax_equals_its_equation() -> None:
    q, k, v = heads()
    out = jax.jit(ops.softmax_attention)(q, k, v, mask=masks.causal())
    assert_close(out, causal_reference(q, k, v, exp_similarity), "softmax")


def linear_forms_agree() -> None:
    q, k, v = heads()
    expected = causal_reference(q, k, v, elu_similarity)
    chunked, state = ops.linear_attention_chunked(q, k, v, chunk_size=3)
    recurrent, last = ops.linear_attention_recurrent(q, k, v)
    _, before = ops.linear_attention_recurrent(q[:, :-1], k[:, :-1], v[:, :-1])
    step, after = ops.linear_attention_step(q[:, -1], k[:, -1], v[:, -1], before)
    assert_close(ops.linear_attention_scan(q, k, v), expected, "linear, scan")
    assert_close(chunked, expected, "linear, chunked")
    assert_close(recurrent, expected, "linear, recurrent")
    assert_close(step, expected[:, -1], "linear, step")
    jax.tree.map(lambda x, y: assert_close(x, y, "linear, state"), state, last)
    jax.tree.map(lambda x, y: assert_close(x, y, "linear, step's state"), after, last)


def gradients_agree() -> None:
    q, k, v = heads()

    def gradients(form):
        return jax.grad(lambda *x: jnp.sum(jnp.sin(form(*x))), (0, 1, 2))(q, k, v)

    scan = gradients(ops.linear_attention_scan)
    chunked = gradients(lambda *x: ops.linear_attention_chunked(*x, chunk_size=3)[0])
    for name, left, right in zip("qkv", chunked, scan, strict=True):
        assert_close(left, right, f"gradient of {name}")


def exclusive_output_is_orthogonal_to_its_value() -> None:
    q, k, v = heads()
    y = ops.softmax_attention(q, k, v, mask=masks.causal())
    out = ops.exclude_self(y, v)
    own = jnp.sum(out * jnp.repeat(v, 2, axis=2), axis=-1)
    assert_close(1 + own, np.ones(own.shape), "exclusive")


def small_decoder(mechanism: nn.Mechanism, **options) -> models.Decoder:
    config = models.DecoderConfig(
        vocab_size=11,
        max_length=16,
        num_layers=2,
        d_model=24,
        num_heads=3,
        mechanism=mechanism,
        **options,
    )
    return models.Decoder(config, rngs=nnx.Rngs(0))


def decoding_equals_the_full_pass(name: str) -> None:
    decoder = small_decoder(nn.MECHANISMS[name](), exclusive=True)
    tokens = jax.random.randint(jax.random.key(4), (2, 6), 0, 11)
    logits = jax.jit(decoder.__call__)(tokens)
    decode = jax.jit(decoder.decode)
    prefill, cache = decode(tokens[:, :5], decoder.init_cache(2, 6))
    last, cache = decode(tokens[:, 5:], cache)
    decoded = jnp.concatenate([prefill, last], axis=1)
    assert_close(decoded, logits, f"decoding with {name}")


def training_lowers_the_loss() -> None:
    decoder = small_decoder(nn.Softmax(), dropout_rate=0.1)
    graph, params, rest = nnx.split(decoder, nnx.Param, ...)

    def loss_fn(params, batch, rng):
        model = nnx.merge(graph, params, rest)
        logits = model(batch.tokens, rng=rng)
        return train.cross_entropy(logits, batch.targets, weights=batch.weights)

    optimizer = train.adamw(3e-3)
    step = train.make_train_step(loss_fn, optimizer)
    state = train.init_train_state(params, optimizer, seed=0)
    batch = data.copy_batch(seed=0, step=0, batch_size=4, length=16)
    losses = []
    for _ in range(10):
        state, metrics = step(state, batch)
        losses.append(float(metrics.loss))
    assert int(state.step) == 10
    assert int(metrics.total_skips) == 0
    if not losses[-1] < losses[0] - 0.1:
        raise AssertionError(f"the loss did not fall in ten steps: {losses}")


def main() -> None:
    start = time.monotonic()
    jax.config.update("jax_numpy_rank_promotion", "raise")
    every_module_imports()
    softmax_equals_its_equation()
    linear_forms_agree()
    gradients_agree()
    exclusive_output_is_orthogonal_to_its_value()
    for name, kind in nn.MECHANISMS.items():
        if not kind.cannot_decode:
            decoding_equals_the_full_pass(name)
    training_lowers_the_loss()
    python = ".".join(map(str, sys.version_info[:3]))
    print(
        f"attn_jax {attn_jax.__version__} works on Python {python}, "
        f"jax {jax.__version__}, flax {flax.__version__} "
        f"({time.monotonic() - start:.0f} s; {Path(attn_jax.__file__).parent})"
    )


if __name__ == "__main__":
    main()
