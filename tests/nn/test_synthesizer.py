"""Options of the Synthesizers and of their mixtures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import nn
from attn_jax.nn import core as nn_core
from attn_jax.ops import _rows, masks
from tests.nn import oracle
from tests.nn.cases import (
    F32,
    LONGEST,
    SHORT,
    B,
    D,
    E,
    H,
    M,
    T,
    attention,
    mechanism,
    normal,
    numbers,
)
from tests.ops import oracle_synthesizer
from tests.ops.oracles import assert_close, assert_same_bits

F64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}


def built(name, **options):
    """A layer as it is initialised."""
    config = nn.AttentionConfig(
        d_model=M, num_heads=2, mechanism=mechanism(name, **options)
    )
    return nn.Attention(config, rngs=nnx.Rngs(0))


def run(module, x):
    return jax.jit(lambda x: module(x, mask=masks.causal()))(x)


def logits_of(core, x):
    """Of every token over all of them, as they stand."""
    x = jnp.asarray(x)
    around = {"positions": None, "seen": None}
    return core.logits(x, core.keys(x, None), x.shape[-2], **around)


def test_a_fixed_random_synthesizer_is_state_but_no_parameter():
    learnt, fixed = built("random"), built("random", trainable=False)
    _, params, rest = nnx.split(fixed, nnx.Param, ...)
    assert "mechanism" not in nnx.to_pure_dict(params)
    kept = nnx.to_pure_dict(rest)["mechanism"]["random"]
    assert kept.shape == (2, LONGEST, LONGEST)
    whole = nnx.to_pure_dict(nnx.state(fixed))["mechanism"]["random"]
    assert_same_bits(whole, kept, "in the full state")
    assert_same_bits(kept, learnt.mechanism.random[...], "initial values")
    x = normal(0, B, SHORT, M)
    assert_same_bits(run(fixed, x), run(learnt, x), "output")

    def gradient(module):
        graph, params, rest = nnx.split(module, nnx.Param, ...)

        def loss(params):
            return jnp.sum(jnp.sin(nnx.merge(graph, params, rest)(jnp.asarray(x))))

        return nnx.to_pure_dict(jax.jit(jax.grad(loss))(params))

    frozen, trained = gradient(fixed), gradient(learnt)
    assert np.any(trained.pop("mechanism")["random"])
    assert jax.tree.structure(frozen) == jax.tree.structure(trained)
    for got, want in zip(
        jax.tree.leaves(frozen), jax.tree.leaves(trained), strict=True
    ):
        assert_close(got, want, F32, "gradient of what is trained")


@pytest.mark.parametrize("name", ["random", "factorized_random"])
@pytest.mark.parametrize("std", [0.02, 0.7])
def test_initial_logits_have_the_std_asked_for(name, std):
    config = nn.AttentionConfig(
        d_model=8,
        num_heads=8,
        mechanism=nn.MECHANISMS[name](max_length=64, init_std=std),
    )
    core = nn.Attention(config, rngs=nnx.Rngs(0)).mechanism
    if name == "random":
        logits = np.asarray(core.random[...])
    else:
        assert core.r1.shape == core.r2.shape == (8, 64, 8)
        logits = np.asarray(logits_of(core, np.zeros((64, 8))))
        assert len(np.unique(logits[0], axis=0)) == 64
        assert np.any(core.r1[...] != core.r2[...])
    assert logits.std() == pytest.approx(std, rel=0.1)
    assert abs(logits.mean()) < 0.05 * std


def test_a_random_synthesizer_without_noise_averages_values():
    module = built("random", init_std=0.0)
    x = normal(0, B, T, M)
    mean = module.value(jnp.asarray(x)).mean(axis=1, keepdims=True)
    want = module.output(jnp.repeat(mean, T, axis=1))
    assert_close(jax.jit(module)(x), want, F32)


def test_rank_of_a_factorized_random_synthesizer():
    core = built("factorized_random", rank=3).mechanism
    assert core.r1.shape == (2, LONGEST, 3)


DENSE_OPTIONS = [
    ("dense", {"share_heads": True}),
    ("dense", {"bias": False}),
    ("dense", {"hidden": 3}),
    ("convolution", {"kernel": 2, "bias": False, "share_heads": True, "hidden": 3}),
    ("gated", {"bias": False, "share_heads": True, "hidden": 3}),
]


@pytest.mark.parametrize(("name", "options"), DENSE_OPTIONS, ids=str)
def test_options_of_the_dense_family(name, options, x64):
    module = attention(mechanism=mechanism(name, **options), **F64)
    params = numbers(module)
    core = params["mechanism"]
    shared = 1 if "share_heads" in options else H
    width = options.get("hidden", D)
    assert core["w1"].shape[-3:] == (H, M, width)
    assert core["w1"].ndim == 3 or core["w1"].shape[0] == options["kernel"]
    assert core["w2"].shape == (shared, width, LONGEST)
    biases = {"b1", "b2", "c1"} & core.keys()
    assert bool(biases) == ("bias" not in options)
    x = normal(0, B, T, M, dtype=np.float64)
    want = oracle.attention(name, params, x, np.tril(np.ones((T, T), bool)))
    assert_close(run(module, x), want, 1e-12)


@pytest.mark.parametrize(
    ("length", "options", "factors"),
    [
        (11, {}, (4, 3)),
        (12, {"a": 2}, (2, 6)),
        (12, {"b": 2}, (6, 2)),
        (12, {"a": 1}, (1, 12)),
        (10, {"bias": False, "share_heads": True}, (5, 2)),
    ],
    ids=str,
)
def test_factors_of_a_factorized_dense_synthesizer(length, options, factors, x64):
    """a blocks of b positions; of a prime length, the last ones are cut off."""
    config = nn.FactorizedDenseSynthesizer(max_length=length, **options)
    assert config.factors() == factors
    module = attention(mechanism=config, **F64)
    params = numbers(module)["mechanism"]
    x = normal(0, B, length, M, dtype=np.float64)
    assert params["w2"].shape[-1] == sum(factors)
    want = oracle.factorized_dense(params, x, x, a=factors[0])[..., :length]
    assert_close(jax.jit(lambda x: logits_of(module.mechanism, x))(x), want, 1e-12)


@pytest.mark.parametrize("length", range(1, 61))
def test_default_factors_are_the_most_square(length):
    """Of all pairs of divisors but 1 · n; a prime is covered as tightly."""
    a, b = nn.FactorizedDenseSynthesizer(max_length=length).factors()
    pairs = [(n, length // n) for n in range(2, length) if length % n == 0]
    if pairs:
        assert (a, b) == min((p for p in pairs if p[0] >= p[1]), key=sum)
    else:
        assert a * b >= length > a * (b - 1)
        assert 0 <= a - b <= 1


def test_factors_of_16_give_256_distinct_logits():
    module = attention(mechanism=nn.FactorizedDenseSynthesizer(max_length=256))
    assert module.config.mechanism.factors() == (16, 16)
    queries = module.mechanism.queries(
        jnp.asarray(normal(0, 1, M)), None, mask=None, positions=None, seen=None
    )
    for row in module.mechanism.logits_of(queries, None, 256, seen=None)[:, 0]:
        assert len(np.unique(row)) == 256


def test_one_tap_is_a_dense_synthesizer():
    one = attention(mechanism=mechanism("convolution", kernel=1))
    dense = attention("dense")
    state = nnx.to_pure_dict(nnx.state(one))
    state["mechanism"]["w1"] = state["mechanism"]["w1"][0]
    filled_in = nnx.state(dense)
    nnx.replace_by_pure_dict(filled_in, state)
    nnx.update(dense, filled_in)
    x = normal(0, B, T, M)
    assert_close(run(one, x), run(dense, x), F32)


@pytest.mark.parametrize("given", [False, True])
def test_a_convolution_follows_positions(given):
    """Documents whose positions say where they begin; and a gap, which nobody fills."""
    module = attention(mechanism=mechanism("convolution"), seed=3)
    x = jnp.asarray(normal(0, 1, T, M))
    starts = jnp.asarray([[0, 1, 2, 0, 1, 2, 3]])
    apart = masks.dense(
        jnp.asarray(np.kron(np.eye(2), np.ones((4, 4)))[None, 1:, 1:] > 0)
    )
    mask = masks.causal() & apart
    if not given:
        mask = masks.causal() & masks.segments(jnp.asarray([[5, 5, 5, 1, 1, 1, 1]]))
    options = {"positions": starts} if given else {}
    got = module(x, mask=mask, **options)
    for start, stop in ((0, 3), (3, 7)):
        alone = module(x[:, start:stop], mask=masks.causal())
        assert_close(got[:, start:stop], alone, F32, f"tokens {start} to {stop}")
    gap = module(x, mask=masks.causal(), positions=jnp.asarray([[0, 1, 2, 6, 7, 8, 9]]))
    moved = x.at[:, 2].add(1)
    core = module.mechanism

    def hidden(x, positions):
        around = {"mask": masks.causal(), "positions": positions, "seen": positions}
        return core.queries(x, x, **around)

    positions = jnp.asarray([[0, 1, 2, 6, 7, 8, 9]])
    before, after = hidden(x, positions), hidden(moved, positions)
    assert np.isfinite(gap).all()
    assert (after != before).any((0, 1, 3)).tolist() == [False] * 2 + [True] + 4 * [
        False
    ]


def mixed(*members, **options):
    return nn.MixtureSynthesizer(members=members, **options).for_length(LONGEST)


def parts(module, x):
    """The logits of each member of a mixture, with the axes of the batch."""
    h, t = module.config.num_heads, x.shape[-2]
    each = [logits_of(core, x) for core in module.mechanism.members]
    return [np.broadcast_to(part, (len(x), h, t, t)) for part in each]


def test_a_mixture_starts_with_equal_weights_that_sum_to_one():
    """The paper's: positive, summing to 1, one weight a head and member."""
    module, x = built("mixture"), normal(0, B, SHORT, M)
    assert module.mechanism.alpha.shape == (2, 2)
    np.testing.assert_array_equal(module.mechanism.alphas(), 0.5)
    one, two = parts(module, x)
    assert_close(logits_of(module.mechanism, x), 0.5 * one + 0.5 * two, F32)


def test_a_plain_sum_adds_the_logits():
    kind = mixed(nn.RandomSynthesizer(), nn.DenseSynthesizer(), normalize="sum")
    module, x = attention(mechanism=kind), normal(0, B, SHORT, M)
    assert module.mechanism.alpha is None
    np.testing.assert_array_equal(module.mechanism.alphas(), np.ones((H, 2)))
    assert_close(logits_of(module.mechanism, x), sum(parts(module, x)), F32)


def test_a_pair_shares_one_sigmoid_a_head():
    """What softmax makes of (α, 0)."""
    kind = mixed(nn.RandomSynthesizer(), nn.Softmax(), normalize="sigmoid")
    module, x = attention(mechanism=kind), normal(0, B, SHORT, M)
    alpha = np.asarray(module.mechanism.alpha[...], np.float64)
    assert alpha.shape == (H, 1)
    first = 1 / (1 + np.exp(-alpha))
    alphas = np.concatenate([first, 1 - first], axis=-1)
    assert_close(module.mechanism.alphas(), alphas, F32)
    one, two = parts(module, x)
    want = oracle_synthesizer.mixture([one, two], alphas)
    assert_close(logits_of(module.mechanism, x), want, F32)


@pytest.mark.parametrize("normalize", ["softmax", "sigmoid", "sum"])
def test_alphas_are_computed_in_float32(normalize, x64):
    """Rounded to bfloat16, three equal ones sum to 1.002; 64 bits nobody asked for."""
    kind = mixed(nn.RandomSynthesizer(), nn.Softmax(), normalize=normalize)
    alphas = jax.eval_shape(
        lambda: attention(mechanism=kind, param_dtype=jnp.bfloat16).mechanism.alphas()
    )
    assert alphas.dtype == jnp.float32


@pytest.mark.parametrize("name", ["softmax", "random", "factorized_dense"])
def test_a_mixture_of_one_reduces_to_its_member(name):
    kind, options = mechanism(name), {"rotary": True}
    if name == "softmax":
        kind, options = nn.Softmax(logit_cap=0.8), {"rotary": True, "alibi": True}
    module = attention(mechanism=mixed(kind), **options)
    alone = attention(mechanism=kind, **options)
    state = nnx.to_pure_dict(nnx.state(module))
    state["mechanism"] = state["mechanism"]["members"][0]
    old = nnx.state(alone)
    nnx.replace_by_pure_dict(old, state)
    nnx.update(alone, old)
    x = normal(0, B, T, M)
    assert_close(run(module, x), run(alone, x), F32)


def everything(**options):
    """A mixture of every mechanism of the table that has logits."""
    names = [name for name, kind in nn.MECHANISMS.items() if kind.mixes]
    members = [nn.MECHANISMS[name]() for name in names if name != "mixture"]
    assert len(members) >= 8
    return attention(mechanism=mixed(*members, nn.Softmax(logit_cap=0.5)), **options)


def test_a_mixture_of_everything_decodes_as_it_attends():
    """Token by token, and in two pieces with padding between."""
    module = everything(exclusive=True, rotary=True)
    x = normal(0, B, T, M)
    real = np.arange(T) != np.array([[0], [3], [6]])

    def outputs(x, real):
        full = module(x, mask=masks.causal())
        cache, tokens = module.init_cache(B, T), []
        for t in range(T):
            out, cache = module.decode(x[:, t : t + 1], cache)
            tokens.append(out)
        ragged = module(x, mask=masks.causal() & masks.padding(real, real))
        cache, pieces = module.init_cache(B, T), []
        for part in (slice(0, 5), slice(5, T)):
            out, cache = module.decode(x[:, part], cache, valid=real[:, part])
            pieces.append(out)
        return full, jnp.concatenate(tokens, 1), ragged, jnp.concatenate(pieces, 1)

    full, tokens, ragged, pieces = jax.jit(outputs)(x, real)
    assert_close(tokens, full, F32, "token by token")
    assert_close(pieces, ragged, F32, "two ragged pieces")


@pytest.fixture
def blocks_of_three(monkeypatch):
    """Logits exist for three queries at a time; two blocks may be compiled apart."""
    monkeypatch.setattr(_rows, "BLOCK", 3)
    monkeypatch.setattr(_rows, "UNROLLED", 3)
    nn_core._attend.clear_cache()
    yield
    nn_core._attend.clear_cache()


def outputs_and_gradients():
    """Of a mixture of everything: below a diagonal, and under another mask."""
    module = everything(alibi=True)
    graph, params = nnx.split(module)
    real = np.arange(T) != np.array([[0], [3], [6]])

    def both(params, x, real):
        layer = nnx.merge(graph, params)
        padded = masks.prefix(2) & masks.padding(real, real)
        outs = layer(x, mask=masks.causal()), layer(x, mask=padded)
        return sum(jnp.sum(jnp.sin(out)) for out in outs), outs

    run = jax.jit(jax.grad(both, argnums=(0, 1), has_aux=True))
    return run(params, normal(0, B, T, M), real)


def test_blocks_of_queries_change_no_number(request):
    """Of any mechanism with logits, with positions of its own and with a bias."""
    want = outputs_and_gradients()
    request.getfixturevalue("blocks_of_three")
    got = outputs_and_gradients()
    pairs = zip(jax.tree.leaves_with_path(got), jax.tree.leaves(want), strict=True)
    for (path, x), y in pairs:
        assert_close(x, y, F32, jax.tree_util.keystr(path))


N, HEADS = 4096, 8


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    "kind",
    [
        nn.FactorizedRandomSynthesizer(),
        nn.MixtureSynthesizer(members=(nn.FactorizedRandomSynthesizer(), nn.Softmax())),
    ],
    ids=["factorized_random", "mixture"],
)
def test_no_h_by_n_by_n_array_is_held(kind, padded):
    """The compiled forward and backward pass needs less than a single one of them."""
    config = nn.AttentionConfig(
        d_model=16, num_heads=HEADS, mechanism=kind.for_length(N)
    )
    graph, params = nnx.split(
        nnx.eval_shape(lambda: nn.Attention(config, rngs=nnx.Rngs(0)))
    )

    def loss(params, x, real):
        mask = masks.causal()
        mask = mask & masks.padding(real, real) if padded else mask
        return jnp.sum(nnx.merge(graph, params)(x, mask=mask) ** 2)

    x, real = jax.ShapeDtypeStruct((1, N, 16), jnp.float32), jnp.ones((1, N), bool)
    compiled = jax.jit(jax.grad(loss)).lower(params, x, real).compile()
    assert 0 < compiled.memory_analysis().temp_size_in_bytes < HEADS * N * N * 4


def test_one_length_holds_for_all_members_of_a_mixture():
    """That of the member who states it, or else the model's."""
    kind = mixed(nn.RandomSynthesizer(max_length=6), nn.DenseSynthesizer())
    assert [member.max_length for member in kind.members] == [6, 6]
    assert kind.limit == 6
    assert mixed(nn.Softmax(), nn.DenseSynthesizer()).limit == LONGEST
    assert mixed(nn.Softmax()).limit is None
    module = attention(mechanism=kind)
    with pytest.raises(ValueError, match=r"length: got 7; expected at most .* 6"):
        module.init_cache(B, 7)


def test_value_heads_are_grouped_and_logits_are_not():
    module = attention("random")
    assert module.mechanism.random.shape[0] == H
    assert module.value.kernel.shape == (M, 2, E)


# Parameters of a layer beside those of values and output, with hidden = d / h a head:
# table 1 of the paper, a random matrix for each head; the last three are ours. Biases
# are counted apart.
FORMULAS = {
    "softmax": (lambda d, h, n: 2 * d**2, None),
    "random": (lambda d, h, n: h * n**2, None),
    "factorized_random": (lambda d, h, n: 2 * h * n * 8, None),
    "dense": (lambda d, h, n: d**2 + d * n, lambda d, h, n: d + h * n),
    "factorized_dense": (
        lambda d, h, n: d**2 + d * (8 + 4),
        lambda d, h, n: d + h * (8 + 4),
    ),
    "mixture": (lambda d, h, n: h * n**2 + 2 * d**2 + 2 * h, None),
    "convolution": (lambda d, h, n: 3 * d**2 + d * n, lambda d, h, n: d + h * n),
    "bottleneck": (lambda d, h, n: 16 * h * (d + n), lambda d, h, n: h * (16 + n)),
    "gated": (lambda d, h, n: 2 * d**2 + d * n, lambda d, h, n: 2 * d + h * n),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_parameters_are_those_of_table_1(name):
    d, h, n = 60, 5, 32
    weights, biases = FORMULAS[name]
    for bias in (False,) if biases is None else (False, True):
        options = {} if biases is None else {"bias": bias}
        kind = nn.MECHANISMS[name](**options).for_length(n)
        config = nn.AttentionConfig(d_model=d, num_heads=h, mechanism=kind)
        module = nnx.eval_shape(
            lambda made=config: nn.Attention(made, rngs=nnx.Rngs(0))
        )
        found = sum(x.size for x in jax.tree.leaves(nnx.state(module.mechanism)))
        assert found == weights(d, h, n) + (biases(d, h, n) if bias else 0)
