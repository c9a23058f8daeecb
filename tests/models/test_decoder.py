"""A whole decoder: against its oracle, in other dtypes, under masks and dropout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax.ops import masks
from tests.models import oracle
from tests.models.cases import (
    F32,
    LAYERS,
    LONGEST,
    VOCAB,
    B,
    D,
    E,
    F,
    G,
    H,
    M,
    T,
    decoder,
    ids,
)
from tests.nn.cases import numbers
from tests.ops.oracles import assert_close, assert_same_bits

F64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}
CAUSAL = np.tril(np.ones((T, T), bool))

ARCHITECTURES = {
    "pre-norm, rotary, tied": {},
    "post-norm, sinusoidal, untied, as in 2017": {
        "norm_placement": "post",
        "positions": "sinusoidal",
        "tie_embeddings": False,
        "embedding_scale": M**0.5,
        "activation": "relu",
        "use_bias": True,
    },
    "pre-norm, learned, tied, biases": {"positions": "learned", "use_bias": True},
    "post-norm, learned, tied, RMS": {
        "norm_placement": "post",
        "positions": "learned",
        "norm": "rms",
        "norm_epsilon": 1e-2,
    },
    "pre-norm, alibi, untied, exclusive": {
        "positions": "alibi",
        "tie_embeddings": False,
        "exclusive": True,
    },
    "pre-norm, learned, other outputs than logits": {
        "positions": "learned",
        "tie_embeddings": False,
        "output_size": 6,
    },
    "pre-norm, no positions, RMS, normalised queries": {
        "positions": "none",
        "norm": "rms",
        "qk_norm": True,
    },
    "exclusive, gated, beside the first layer's values, a norm behind embeddings": {
        "exclusive": True,
        "exclusive_gate": "tanh",
        "output_gate": True,
        "value_residual": True,
        "embedding_norm": True,
    },
}


def test_the_config_reaches_every_layer():
    """Widths, biases and norms of each part, two layers stacked."""
    model = decoder(use_bias=True, qk_norm=True)
    shapes = jax.tree.map(jnp.shape, nnx.to_pure_dict(nnx.state(model)))
    norm = {"scale": (LAYERS, M), "bias": (LAYERS, M)}

    def linear(into, out):
        return {"kernel": (LAYERS, *into, *out), "bias": (LAYERS, *out)}

    assert shapes == {
        "embedding": {"embedding": (VOCAB, M)},
        "stack": {
            "norm": {"scale": (M,), "bias": (M,)},
            "blocks": {
                "attention_norm": norm,
                "forward_norm": norm,
                "forward": {"up": linear((M,), (F,)), "down": linear((F,), (M,))},
                "attention": {
                    "value": linear((M,), (G, E)),
                    "output": linear((H, E), (M,)),
                    "mechanism": {
                        "query_key": {
                            "query": linear((M,), (H, D)),
                            "key": linear((M,), (G, D)),
                            "query_norm": {"scale": (LAYERS, D)},
                            "key_norm": {"scale": (LAYERS, D)},
                        }
                    },
                },
            },
        },
    }
    plain = nnx.to_pure_dict(nnx.state(decoder()))
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(plain)]
    assert not [name for name in names if "bias" in name or "query_norm" in name]


def full_and_decoded(model, tokens):
    def both(tokens):
        cache = model.init_cache(B, T)
        first, cache = model.decode(tokens[:, :-1], cache)
        last, cache = model.decode(tokens[:, -1:], cache)
        return model(tokens), jnp.concatenate([first, last], axis=1), cache

    return jax.jit(both)(tokens)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_decoder_equals_its_oracle_in_float64(architecture, x64):
    model = decoder(**ARCHITECTURES[architecture], **F64)
    tokens = ids(0, B, T)
    want = oracle.decoder(numbers(model), tokens, model.config, CAUSAL)
    full, decoded, cache = full_and_decoded(model, tokens)
    assert full.dtype == decoded.dtype == jnp.float64
    assert_close(full, want, 1e-11, "full pass")
    assert_close(decoded, want, 1e-11, "decoding")
    # Contract 66: 64-bit mode leaves the dtypes of a cache alone, step after step.
    kinds = [a.dtype for a in jax.tree.leaves(cache)]
    assert kinds == [a.dtype for a in jax.tree.leaves(model.init_cache(B, T))]


@pytest.mark.parametrize("name", ["softmax", "linear"])
def test_decoder_in_bfloat16(name):
    """Contract 68: computation in bfloat16 stays within 4 in a hundred of float32."""
    tokens = ids(0, B, T)
    model, wide = decoder(name, dtype=jnp.bfloat16), decoder(name)
    assert {a.dtype for a in jax.tree.leaves(nnx.state(model))} == {
        jnp.dtype(jnp.float32)
    }
    want = jax.jit(wide)(tokens)
    full, decoded, _ = full_and_decoded(model, tokens)
    assert full.dtype == decoded.dtype == jnp.float32
    assert_close(full, want, 4e-2, "full pass")
    assert_close(decoded, want, 4e-2, "decoding")


@pytest.mark.parametrize("name", ["softmax", "linear"])
def test_a_prefix_mask_makes_a_prefix_language_model(name):
    """Inside its prefix a row sees both ways, after it only the past."""
    model, prefix = decoder(name), np.array([4, 1, 0])
    run = jax.jit(lambda tokens, n: model(tokens, mask=masks.prefix(n)))
    tokens = ids(1, B, T)
    base = np.asarray(run(tokens, prefix))
    for at in range(T):
        changed = tokens.copy()
        changed[:, at] = (changed[:, at] + 1) % VOCAB
        moved = np.any(np.asarray(run(changed, prefix)) != base, axis=-1)
        first = np.where(at < prefix, 0, at)
        want = np.arange(T) >= first[:, None]
        np.testing.assert_array_equal(moved, want, err_msg=f"token {at}")
    assert_close(base[2], jax.jit(model)(tokens)[2], F32, "a prefix of 0 is causal")


def test_a_window_reaches_one_step_further_with_each_layer():
    """Contract 28, 29: rows are longer than twice the window."""
    model = decoder()
    run = jax.jit(lambda tokens: model(tokens, mask=masks.window(1)))
    tokens = ids(2, B, T)
    base = np.asarray(run(tokens))
    for at in (0, 2, T - 1):
        changed = tokens.copy()
        changed[:, at] = (changed[:, at] + 1) % VOCAB
        moved = np.any(np.asarray(run(changed)) != base, axis=(0, 2))
        distance = np.arange(T) - at
        np.testing.assert_array_equal(moved, (distance >= 0) & (distance <= 2))


def test_a_window_stays_inside_its_segment():
    """Contract 30: packed rows under a window equal rows of their own."""
    model, tokens = decoder(), ids(2, 1, LONGEST)
    packed = np.repeat([[3, 1]], [5, LONGEST - 5], axis=1)
    run = jax.jit(
        lambda tokens, segments: model(
            tokens, mask=masks.window(2) & masks.segments(segments)
        )
    )
    together = run(tokens, packed)
    for part in (slice(5), slice(5, LONGEST)):
        alone = run(tokens[:, part], packed[:, part])
        assert_close(together[:, part], alone, F32)


@pytest.mark.parametrize("name", ["softmax", "linear"])
def test_leading_axes_equal_vmap_and_a_loop(name):
    model, tokens = decoder(name), ids(3, 2, B, T)

    def each(tokens):
        return model(tokens), jax.vmap(model)(tokens), model(tokens[0, 0])

    direct, mapped, row = jax.jit(each)(tokens)
    want = np.stack([jax.jit(model)(rows) for rows in tokens])
    assert_close(direct, want, F32, "two leading axes")
    assert_close(mapped, want, F32, "vmap")
    assert_close(row, want[0, 0], F32, "no leading axis")


def test_eager_calls_equal_compiled_ones():
    model, tokens = decoder(exclusive=True), jnp.asarray(ids(4, B, T))
    full, decoded, _ = full_and_decoded(model, tokens)
    assert_close(model(tokens), full, F32, "full pass")
    logits, _ = model.decode(tokens, model.init_cache(B, T))
    assert_close(logits, decoded, F32, "decoding")


def test_a_second_eager_call_compiles_nothing(caplog):
    """A notebook that decodes token by token must not compile at every token."""
    model, other = (decoder(seed=seed) for seed in (0, 1))
    tokens, mask = jnp.asarray(ids(4, B, 1)), masks.padding(jnp.ones((B, 1), bool))

    def calls(model):
        cache = model.init_cache(B, T)
        for _ in range(2):
            _, cache = model.decode(tokens, cache)
        return model(tokens, mask=mask)

    calls(model)
    with jax.log_compiles():
        calls(model)
        calls(other)
        assert "Compiling" not in caplog.text
        jax.jit(lambda x: x + 1)(tokens)
        assert "Compiling" in caplog.text


def test_concrete_tokens_may_meet_traced_parameters():
    """As in a loss that closes over its batch."""
    model = decoder(positions="learned")
    graph, params = nnx.split(model)
    tokens = jnp.asarray(ids(4, B, T))
    places = jnp.broadcast_to(jnp.arange(T), (B, T))
    cache = model.init_cache(B, T)

    def outputs(params):
        model = nnx.merge(graph, params)
        return model(tokens, positions=places), model.decode(tokens, cache)[0]

    full, decoded = jax.jit(outputs)(params)
    assert_close(full, decoded, F32)


@pytest.mark.parametrize(
    ("rows", "length"), [(2, 0), (0, 3)], ids=["no tokens", "no rows"]
)
def test_empty_batches(rows, length):
    model, tokens = decoder(), jnp.zeros((rows, length), jnp.int32)

    def both(tokens):
        return model(tokens), model.decode(tokens, model.init_cache(rows, T))

    logits, (decoded, cache) = jax.jit(both)(tokens)
    assert logits.shape == decoded.shape == (rows, length, VOCAB)
    assert cache.length.tolist() == [0] * rows


def test_dropout_is_a_function_of_its_key_and_blind_to_the_future():
    """Contract 15: causality holds with dropout on; a key decides what drops."""
    model, tokens = decoder(dropout_rate=0.3), ids(5, B, T)
    run = jax.jit(lambda tokens, rng: model(tokens, rng=rng))
    one, two = (np.asarray(run(tokens, jax.random.key(seed))) for seed in (0, 1))
    assert_same_bits(run(tokens, jax.random.key(0)), one, "the same key")
    assert np.any(one != two)
    changed = tokens.copy()
    changed[:, 4] = (changed[:, 4] + 1) % VOCAB
    after = np.asarray(run(changed, jax.random.key(0)))
    assert_same_bits(after[:, :4], one[:, :4], "before the change")
    assert np.any(after[:, 4:] != one[:, 4:])
    evaluated = jax.jit(model)(tokens)
    assert_same_bits(evaluated, jax.jit(decoder())(tokens), "without a key")
    assert np.linalg.norm(evaluated - one) > 0.1 * np.linalg.norm(evaluated)


def count(primitive, jaxpr):
    """How often a primitive stands in a program, inner ones included."""
    inner = [
        getattr(value, "jaxpr", value)
        for equation in jaxpr.eqns
        for value in equation.params.values()
        if hasattr(value, "eqns") or hasattr(value, "jaxpr")
    ]
    here = sum(equation.primitive.name == primitive for equation in jaxpr.eqns)
    return here + sum(count(primitive, each) for each in inner)


def test_dropout_stands_on_embeddings_and_on_every_layers_output():
    """Vaswani et al. 2017, section 5.4: each with numbers of its own."""
    model = decoder(dropout_rate=0.3, scan_layers=False)
    tokens = jnp.asarray(ids(5, B, T))
    drawn = jax.make_jaxpr(lambda rng: model(tokens, rng=rng))(jax.random.key(0))
    assert count("random_bits", drawn.jaxpr) == 1 + 2 * model.config.num_layers
    assert count("random_bits", jax.make_jaxpr(model)(tokens).jaxpr) == 0


def test_dropout_has_the_mean_of_evaluation():
    """With layers that add nothing, logits are linear in the dropped embedding."""
    model = decoder(
        dropout_rate=0.4, norm="rms", norm_epsilon=1e6, num_layers=1, positions="none"
    )
    for kernel in (
        model.stack.blocks.attention.output.kernel,
        model.stack.blocks.forward.down.kernel,
    ):
        kernel[...] = jnp.zeros_like(kernel[...])
    tokens = jnp.asarray(ids(6, B, T))
    keys = jax.random.split(jax.random.key(0), 2000)
    runs = jax.jit(jax.vmap(lambda rng: model(tokens, rng=rng)))(keys)
    want, spread = np.asarray(jax.jit(model)(tokens)), np.std(runs, axis=0)
    assert np.all(spread > 0)
    error = np.abs(np.mean(runs, axis=0) - want) / (spread / len(keys) ** 0.5)
    assert error.max() < 5
