"""What a layer adds to its mechanism: contexts, positions, heads, dropout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import nn, ops
from attn_jax.ops import masks
from tests.nn import oracle
from tests.nn.cases import (
    F32,
    SHORT,
    B,
    D,
    E,
    G,
    H,
    M,
    T,
    attention,
    mechanism,
    normal,
    numbers,
    placed,
)
from tests.ops.oracles import assert_close, assert_same_bits

CROSS = [name for name, kind in nn.MECHANISMS.items() if kind.cross]
SELF_ONLY = [name for name in nn.MECHANISMS if name not in CROSS]
WITH_LOGITS = [name for name, kind in nn.MECHANISMS.items() if kind.mixes]
F64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}


@pytest.mark.parametrize("name", CROSS)
@pytest.mark.parametrize(("t", "s"), [(T, 5), (3, T), (1, 5)])
def test_cross_attention_equals_its_oracle(name, t, s, x64):
    module = attention(name, rotary=True, **F64)
    x = normal(0, B, t, M, dtype=np.float64)
    context = normal(1, B, s, M, dtype=np.float64)
    want = oracle.attention(
        name, numbers(module), x, np.ones((t, s), bool), context=context, rotary=True
    )
    assert_close(jax.jit(module)(x, context), want, 1e-12)


@pytest.mark.parametrize("name", CROSS)
def test_a_context_read_once_equals_cross_attention(name):
    """Padded queries and keys hold NaN; one row has no context at all."""
    module = attention(name, rotary=True, use_bias=True)
    real = np.array([[1, 1, 1, 1, 1], [0, 0, 1, 0, 1], [0, 0, 0, 0, 0]], bool)
    seen = np.arange(T) != np.array([[0], [3], [6]])
    x = np.where(seen[..., None], normal(0, B, T, M), np.nan)
    context = np.where(real[..., None], normal(1, B, 5, M), np.nan)

    def both(x, context, real, seen):
        mask = masks.padding(real, seen)
        cache = module.init_context(context, mask=masks.padding(real, real))
        positions = nn.token_positions(masks.padding(seen), (B,), T)
        pieces = [
            module.attend_context(
                x[:, at], cache, positions=positions[:, at], valid=seen[:, at]
            )
            for at in (slice(3), slice(3, T))
        ]
        return module(x, context, mask=mask), jnp.concatenate(pieces, axis=1)

    want, got = jax.jit(both)(x, context, real, seen)
    assert_close(got, want, F32)
    assert not np.any(np.asarray(got)[~seen])
    plain = jax.jit(lambda x, c: module.attend_context(x, module.init_context(c)))
    x, context = normal(0, B, T, M), normal(1, B, 5, M)
    assert_close(plain(x, context), jax.jit(module)(x, context), F32, "no mask")


@pytest.mark.parametrize("name", SELF_ONLY)
def test_a_mechanism_of_one_sequence_keeps_no_context(name):
    module = attention(name)
    with pytest.raises(ValueError, match=r"context: got one for .* use Softmax"):
        module.init_context(jnp.zeros((B, 5, M)))


def with_gradients(module, call):
    """(cotangent, *arrays) -> the output of call(module, *arrays) and its gradients."""
    graph, params = nnx.split(module)

    def both(cotangent, *arrays):
        out, pullback = jax.vjp(
            lambda params: call(nnx.merge(graph, params), *arrays), params
        )
        return out, jax.tree.leaves(pullback(cotangent))

    return jax.jit(both)


@pytest.mark.parametrize("name", CROSS)
def test_cross_attention_with_padding_equals_unpadded_rows(name):
    """Contract 22: source and target have masks of their own; padding holds NaN."""
    module = attention(name, rotary=True, use_bias=True)
    x, context, weights = (normal(i, B, n, M) for i, n in enumerate((SHORT, 3, SHORT)))
    plain = with_gradients(module, lambda module, x, c: module(x, c))
    want, want_gradients = plain(weights, x, context)
    targets = [[0, 1, 2, 3], [3, 4, 5, 6], [1, 2, 4, 5]]
    sources = [[2, 3, 4], [0, 1, 2], [0, 2, 4]]
    long_x, queries = placed(x, targets, T)
    long_weights, _ = placed(weights, targets, T, padding=2.0)
    long_context, keys = placed(context, sources, 5)
    masked = with_gradients(
        module, lambda module, x, c, k, q: module(x, c, mask=masks.padding(k, q))
    )
    got, gradients = masked(long_weights, long_x, long_context, keys, queries)
    assert np.all(np.asarray(got)[~queries] == 0)
    assert_close(np.asarray(got)[queries].reshape(B, SHORT, M), want, F32)
    for left, right in zip(gradients, want_gradients, strict=True):
        assert_close(left, right, F32, "gradient")


@pytest.mark.parametrize("name", ["softmax", "linear", "dense"])
def test_padding_in_decoding_reaches_no_gradient(name):
    module, x = attention(name, use_bias=True), normal(0, B, 3, M)
    valid = np.array([[True, True, False], [False, True, True], [False] * 3])

    def decode(module, x, valid):
        return module.decode(x, module.init_cache(B, T), valid=valid)[0]

    run = with_gradients(module, decode)
    got, gradients = run(
        normal(1, B, 3, M), np.where(valid[..., None], x, np.nan), valid
    )
    want, want_gradients = run(normal(1, B, 3, M), x, valid)
    assert_same_bits(got, want, "output")
    for left, right in zip(gradients, want_gradients, strict=True):
        assert_same_bits(left, right, "gradient")


@pytest.mark.parametrize("name", CROSS)
def test_cross_attention_inside_segments(name):
    """Packed targets see the source of their own segment, both counted from 0."""
    module = attention(name, rotary=True)
    x, context = normal(0, 1, T, M), normal(1, 1, 5, M)
    run = jax.jit(lambda x, c, q, k: module(x, c, mask=masks.segments(q, k)))
    queries, keys = np.repeat([[1, 2]], [3, 4], axis=1), np.repeat([[1, 2]], [3, 2], 1)
    packed = run(x, context, queries, keys)
    for q, k in ((slice(3), slice(3)), (slice(3, T), slice(3, 5))):
        alone = module(jnp.asarray(x[:, q]), jnp.asarray(context[:, k]))
        assert_close(packed[:, q], alone, F32)


@pytest.mark.parametrize("name", SELF_ONLY)
def test_mechanisms_of_self_attention_refuse_a_context(name, plain_errors):
    module = attention(name)
    with pytest.raises(
        ValueError, match=r"context: got one for \w+; expected None: it"
    ):
        module(jnp.ones((B, T, M)), jnp.ones((B, 5, M)))


@pytest.mark.parametrize("name", CROSS)
def test_exclusive_layers_refuse_a_context(name, plain_errors):
    module = attention(name, exclusive=True)
    with pytest.raises(ValueError, match=r"context: .*own value.*exclusive=False"):
        module(jnp.ones((B, T, M)), jnp.ones((B, 5, M)))


def test_sizes_of_parameters_and_caches():
    """Contract 65: head and value widths of their own, and grouped heads."""
    module = attention()
    shapes = jax.tree.map(jnp.shape, nnx.to_pure_dict(nnx.state(module)))
    assert shapes == {
        "value": {"kernel": (M, G, E)},
        "output": {"kernel": (H, E, M)},
        "mechanism": {
            "query_key": {"query": {"kernel": (M, H, D)}, "key": {"kernel": (M, G, D)}}
        },
    }
    cache = module.init_cache(B, T)
    assert cache.core.k.shape == (B, T, G, D)
    assert cache.core.v.shape == (B, T, G, E)
    state = attention("linear").init_cache(B, T).core
    assert state.kv.shape == (B, G, D, E)
    assert state.k.shape == (B, G, D)


def test_head_dim_defaults_to_an_equal_share():
    config = nn.AttentionConfig(d_model=12, num_heads=4)
    assert (config.kv_heads, config.key_dim, config.values_dim) == (4, 3, 3)
    config = nn.AttentionConfig(d_model=12, num_heads=4, head_dim=7)
    assert (config.key_dim, config.values_dim) == (7, 7)


@pytest.mark.parametrize("name", ["softmax", "linear", "mixture"])
def test_cache_dtype_is_a_choice(name):
    module = attention(name)
    cache = module.init_cache(B, T, jnp.bfloat16)
    kinds = {a.dtype for a in jax.tree.leaves(cache.core)}
    # Sums over tokens need at least float32.
    assert kinds == {jnp.dtype(jnp.float32 if name == "linear" else jnp.bfloat16)}
    x = normal(0, B, T, M)
    out, after = jax.jit(module.decode)(x, cache)
    assert out.dtype == jnp.float32
    assert {a.dtype for a in jax.tree.leaves(after.core)} == kinds
    want = jax.jit(lambda x: module(x, mask=masks.causal()))(x)
    assert_close(out, want, F32 if name == "linear" else 1e-2)


@pytest.mark.parametrize("name", CROSS)
def test_rotary_depends_on_differences_of_positions_alone(name, x64):
    module = attention(name, rotary=True, **F64)
    x = normal(0, B, T, M, dtype=np.float64)
    run = jax.jit(lambda x, p: module(x, mask=masks.causal(), positions=p))
    counted = np.broadcast_to(np.arange(T), (B, T))
    want = jax.jit(lambda x: module(x, mask=masks.causal()))(x)
    assert_close(run(x, counted), want, 1e-12, "positions counted from 0")
    if name == "softmax":
        assert_close(run(x, counted + 1000), want, 1e-9, "positions from 1000")
        shifted = counted + np.array([[3], [50], [0]])
        assert_close(run(x, shifted), want, 1e-10, "one shift a row")
    spread = run(x, 2 * counted)
    assert np.linalg.norm(spread - want) > 1e-2 * np.linalg.norm(want)


def test_rotary_base_stretches_the_wavelengths(x64):
    module = attention(rotary=True, rotary_base=30.0, **F64)
    x = normal(0, B, T, M, dtype=np.float64)
    params, everyone = numbers(module), np.ones((T, T), bool)
    want = oracle.attention("softmax", params, x, everyone, rotary=30.0)
    assert_close(jax.jit(module)(x), want, 1e-12)


def test_explicit_positions_are_rows_and_columns_of_a_synthesizer(x64):
    module = attention("random", **F64)
    x = normal(0, B, SHORT, M, dtype=np.float64)
    positions = np.array([[2, 3, 4, 5], [0, 1, 2, 3], [0, 2, 4, 10]])
    got = jax.jit(lambda x, p: module(x, positions=p))(x, positions)
    params = numbers(module)
    for row, at in enumerate(positions):
        picked = {"random": params["mechanism"]["random"][:, at][:, :, at]}
        want = oracle.attention(
            "random", params | {"mechanism": picked}, x[row : row + 1], True
        )
        assert_close(got[row : row + 1], want, 1e-12, f"row {row}")


@pytest.mark.parametrize("name", WITH_LOGITS)
def test_alibi_equals_its_oracle(name, x64):
    module = attention(name, alibi=True, **F64)
    x = normal(0, B, T, M, dtype=np.float64)
    causal = np.tril(np.ones((T, T), bool))
    want = oracle.attention(name, numbers(module), x, causal, alibi=True)
    counted = np.broadcast_to(np.arange(T), (B, T))

    def ways(x, positions):
        plain = module(x, mask=masks.causal())
        placed = module(x, mask=masks.causal(), positions=positions)
        return plain, placed, module.decode(x, module.init_cache(B, T))[0]

    for out in jax.jit(ways)(x, counted):
        assert_close(out, want, 1e-12)


def test_alibi_goes_by_the_distance_of_positions(x64):
    module = attention(alibi=True, **F64)
    x = normal(0, B, T, M, dtype=np.float64)
    run = jax.jit(lambda x, p: module(x, positions=p))
    everyone = np.ones((T, T), bool)
    want = oracle.attention("softmax", numbers(module), x, everyone, alibi=True)
    counted = np.broadcast_to(np.arange(T), (B, T))
    assert_close(run(x, counted + 5), want, 1e-12, "only distances count")
    assert_close(run(x, T - counted), want, 1e-12, "in either direction")
    assert np.linalg.norm(run(x, 2 * counted) - want) > 1e-2 * np.linalg.norm(want)


@pytest.mark.parametrize("name", ["linear", "lsh"])
def test_what_takes_no_bias_refuses_alibi(name, plain_errors):
    with pytest.raises(ValueError, match=r"alibi: .*(no logits|no bias).*use rotary"):
        attention(name, alibi=True)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)], ids=str)
def test_exclusive_output_is_orthogonal_to_the_tokens_own_value(heads):
    """Contract 38, seen through an output projection that changes nothing."""
    h, g = heads
    sizes = {"num_heads": h, "num_kv_heads": g, "d_model": h * E}
    one, other = attention(exclusive=True, **sizes), attention(**sizes)
    for module in (one, other):
        module.output.kernel[...] = jnp.eye(h * E).reshape(h, E, h * E)

    def outputs(x):
        z, y = (m(x, mask=masks.causal()).reshape(B, T, h, E) for m in (one, other))
        return z, y, jnp.repeat(one.value(x), h // g, axis=2)

    found = jax.jit(outputs)(normal(0, B, T, h * E))
    z, y, v = (np.asarray(a, np.float64) for a in found)
    lengths = np.linalg.norm(y, axis=-1) * np.linalg.norm(v, axis=-1)
    assert np.abs(np.sum(z * v, axis=-1) / lengths).max() < 1e-6
    assert np.abs(np.sum(y * v, axis=-1) / lengths).min(axis=(0, 2)).max() > 1e-2
    # Contract 39: the first token sees itself alone, so nothing is left of it.
    assert np.abs(z[:, 0]).max() < 1e-6
    assert np.abs(z[:, 1:]).max() > 0.1


@pytest.mark.parametrize("name", ["softmax", "dense"])
def test_exclusive_attention_of_a_token_whose_value_is_zero(name):
    """Contract 7: v has no direction to take out, and its gradient is finite."""
    module = attention(name, exclusive=True)
    x, weights = normal(0, B, T, M), normal(1, B, T, M)
    x[:, 3] = 0

    def both(x):
        out, pullback = jax.vjp(lambda x: module(x, mask=masks.causal()), x)
        return out, pullback(jnp.asarray(weights))[0], module.value(x)

    out, gradient, v = (np.asarray(a) for a in jax.jit(both)(x))
    assert np.all(v[:, 3] == 0)
    assert np.any(out[:, 3])
    assert np.any(gradient[:, 3])
    assert np.isfinite(out).all()
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", ["linear", "random", "dense"])
def test_shared_parts_start_from_the_same_values(name):
    """Models that differ in the mechanism differ in nothing else."""

    def initial(name, **options):
        config = nn.AttentionConfig(
            d_model=M, num_heads=2, mechanism=mechanism(name), **options
        )
        state = jax.jit(lambda: nnx.state(nn.Attention(config, rngs=nnx.Rngs(3))))
        return nnx.to_pure_dict(state())

    want = initial("softmax")
    got = initial(name, exclusive=True, dropout_rate=0.5)
    for part in ("value", "output"):
        assert_same_bits(got[part]["kernel"], want[part]["kernel"], part)
    if "query_key" in got["mechanism"]:
        for part in ("query", "key"):
            kernels = (p["mechanism"]["query_key"][part]["kernel"] for p in (got, want))
            assert_same_bits(*kernels, part)
    other = nn.Attention(nn.AttentionConfig(d_model=M, num_heads=2), rngs=nnx.Rngs(4))
    assert np.any(other.value.kernel[...] != want["value"]["kernel"])


def test_output_scale_scales_the_initial_output_projection():
    def kernel(scale):
        config = nn.AttentionConfig(d_model=64, num_heads=4, output_scale=scale)
        return nn.Attention(config, rngs=nnx.Rngs(0)).output.kernel[...]

    assert_close(kernel(0.25), 0.25 * np.asarray(kernel(1.0)), F32)
    assert np.std(kernel(1.0)) == pytest.approx(64**-0.5, rel=0.05)


@pytest.mark.parametrize("name", nn.MECHANISMS)
def test_dropout_leaves_the_mask_in_place(name):
    """Contract 15: causality and padding hold with dropout, on a batch of batches.

    Where a later token may move an earlier output, padding alone is changed.
    """
    exact = nn.MECHANISMS[name].causal_to_the_bit
    module = attention(name, dropout_rate=0.4)
    rng = jax.random.key(0)
    real = np.ones((2, B, T), bool)
    real[:, 0, :2] = False

    run = jax.jit(
        lambda x, real, rng: module(
            x, mask=masks.causal() & masks.padding(real, real), rng=rng
        )
    )
    x = normal(0, 2, B, T, M)
    changed = x.copy()
    changed[:, :, 4] += 1 if exact else 0
    changed[~real] = np.nan
    before, after = run(x, real, rng), run(changed, real, rng)
    assert_same_bits(after[:, :, :4], before[:, :, :4], "before the change")
    assert np.any(after[:, :, 4:] != before[:, :, 4:]) == exact
    assert np.all(np.asarray(after)[~real] == 0)
    dropped = np.asarray(before)[real] == 0
    assert 0.3 < dropped.mean() < 0.5


def test_dropout_is_a_function_of_its_key():
    module = attention(dropout_rate=0.4)
    x = normal(0, B, T, M)
    run = jax.jit(lambda x, rng: module(x, rng=rng))
    evaluated = jax.jit(module)(x)
    one, two = (np.asarray(run(x, jax.random.key(seed))) for seed in (1, 2))
    assert_same_bits(run(x, jax.random.key(1)), one, "the same key")
    assert np.any(one != two)
    kept = one != 0
    assert_close(one[kept], np.asarray(evaluated)[kept] / 0.6, F32, "scale")
    assert_close(jax.jit(attention())(x), evaluated, F32, "without a key")


def test_logit_cap_bounds_the_logits(x64):
    """A cap far above the logits changes nothing, one near 0 makes weights uniform."""
    x = normal(0, B, T, M, dtype=np.float64)

    def output(cap):
        module = attention(mechanism=nn.Softmax(logit_cap=cap), **F64)
        return module, jax.jit(module)(x)

    module, free = output(None)
    assert_close(output(1e7)[1], free, 1e-9)
    mean = np.asarray(module.value(jnp.asarray(x))).mean(axis=1, keepdims=True)
    uniform = module.output(jnp.repeat(jnp.repeat(mean, H // G, axis=2), T, axis=1))
    assert_close(output(1e-9)[1], uniform, 1e-8)


def two_sided(x):
    return jnp.concatenate([ops.elu_plus_one(x), ops.elu_plus_one(-x)], -1)


def test_linear_attention_with_a_feature_map_and_eps_of_its_own():
    """p differs from d, and what is added to the denominator is seen in decoding."""
    linear = nn.Linear(feature_map=two_sided, eps=0.5)
    module, plain = attention(mechanism=linear), attention("linear")
    cache = module.init_cache(B, T)
    assert cache.core.kv.shape == (B, G, 2 * D, E)
    x = normal(0, B, T, M)
    full = jax.jit(lambda x: module(x, mask=masks.causal()))(x)
    out, _ = jax.jit(module.decode)(x, cache)
    assert_close(out, full, F32)
    q = module.mechanism.query_key.queries(jnp.asarray(x), None)
    k = module.mechanism.query_key.keys(jnp.asarray(x), None)
    y = ops.linear_attention(
        q,
        k,
        module.value(jnp.asarray(x)),
        mask=masks.causal(),
        feature_map=two_sided,
        eps=0.5,
    )
    assert_close(full, module.output(y), F32)
    other = jax.jit(lambda x: plain(x, mask=masks.causal()))(x)
    assert np.linalg.norm(other - full) > 1e-2 * np.linalg.norm(full)


def test_a_norm_in_place_of_the_normaliser_holds_for_a_context_too(x64):
    """Cross-attention against the oracle, at once and from a state; a norm a layer."""
    module = attention("linear_normed", **F64)
    assert module.mechanism.norm.scale.shape == (E,)
    x = normal(0, B, T, M, dtype=np.float64)
    context = normal(1, B, SHORT, M, dtype=np.float64)
    real = np.arange(SHORT) < np.array([[SHORT], [2], [0]])

    def both(x, context):
        mask = masks.padding(jnp.asarray(real))
        seen = module.init_context(context, mask=mask)
        return module(x, context, mask=mask), module.attend_context(x, seen)

    allowed = np.broadcast_to(real[:, None, None], (B, H, T, SHORT))
    params = numbers(module)
    want = oracle.attention("linear_normed", params, x, allowed, context=context)
    for got in jax.jit(both)(x, context):
        assert_close(got, want, 1e-12)
        assert np.all(np.asarray(got)[2] == 0)


def test_sums_that_leave_float16_reach_the_norm(x64):
    """What nothing divides is not rounded to 16 bits before it is normalised."""
    relu = nn.Linear(feature_map=ops.relu_features, normalize=False)
    wide, narrow = (
        attention(mechanism=relu, **dtypes)
        for dtypes in (F64, {"dtype": jnp.float16, "param_dtype": jnp.float16})
    )
    nnx.update(wide, jax.tree.map(jnp.float64, nnx.state(narrow)))
    x = (20 * normal(0, B, T, M)).astype(np.float16)
    q, k = (
        getattr(wide.mechanism.query_key, name)(jnp.asarray(x, jnp.float64), None)
        for name in ("queries", "keys")
    )
    options = {"feature_map": ops.relu_features, "normalize": False}
    sums = ops.linear_attention(q, k, wide.value(jnp.asarray(x)), **options)
    assert np.abs(sums).max() > np.finfo(np.float16).max
    got, want = (jax.jit(module)(x) for module in (narrow, wide))
    assert got.dtype == jnp.float16
    assert_close(got, want, 1e-2)


@pytest.mark.parametrize("name", ["softmax", "linear", "factorized_random"])
def test_a_donated_cache_is_written_in_place(name):
    """The new cache takes the memory of the old one."""
    module = attention(name)
    graph, state = nnx.split(module)
    cache = module.init_cache(B, T)
    step = jax.jit(
        lambda state, x, cache: nnx.merge(graph, state).decode(x, cache),
        donate_argnums=2,
    )
    compiled = step.lower(state, jnp.ones((B, 1, M)), cache).compile()
    held = sum(x.nbytes for x in jax.tree.leaves(cache.core))
    assert compiled.memory_analysis().alias_size_in_bytes >= held
