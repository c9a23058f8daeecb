"""Options of the Synthesizers and of their mixtures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import nn
from attn_jax.ops import masks
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
    light_jit,
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
    return light_jit(lambda x: module(x, mask=masks.causal()))(x)


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

        return nnx.to_pure_dict(light_jit(jax.grad(loss))(params))

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
        logits = np.einsum("hir,hjr->hij", core.r1[...], core.r2[...])
        assert np.any(core.r1[...] != core.r2[...])
    assert logits.std() == pytest.approx(std, rel=0.1)
    assert abs(logits.mean()) < 0.05 * std


def test_a_random_synthesizer_without_noise_averages_values():
    module = built("random", init_std=0.0)
    x = normal(0, B, T, M)
    mean = module.value(jnp.asarray(x)).mean(axis=1, keepdims=True)
    want = module.output(jnp.repeat(mean, T, axis=1))
    assert_close(light_jit(module)(x), want, F32)


def test_rank_of_a_factorized_random_synthesizer():
    core = built("factorized_random", rank=3).mechanism
    assert core.r1.shape == (2, LONGEST, 3)


@pytest.mark.parametrize(
    "options",
    [{"share_heads": True}, {"bias": False}, {"hidden": 3}],
    ids=["share_heads", "bias", "hidden"],
)
def test_options_of_a_dense_synthesizer(options, x64):
    module = attention(mechanism=mechanism("dense", **options), **F64)
    params = numbers(module)
    core = params["mechanism"]
    shared = 1 if "share_heads" in options else H
    width = options.get("hidden", D)
    assert core["w1"].shape == (H, M, width)
    assert core["w2"].shape == (shared, width, LONGEST)
    assert ("b1" in core) == ("b2" in core) == ("bias" not in options)
    x = normal(0, B, T, M, dtype=np.float64)
    want = oracle.attention("dense", params, x, np.tril(np.ones((T, T), bool)))
    assert_close(run(module, x), want, 1e-12)


@pytest.mark.parametrize(
    ("options", "factors"),
    [
        ({}, (4, 3)),
        ({"a": 2}, (2, 6)),
        ({"b": 2}, (6, 2)),
        ({"a": 5, "b": 3}, (5, 3)),
        ({"a": 1}, (1, 11)),
        ({"bias": False}, (4, 3)),
    ],
    ids=str,
)
def test_factors_of_a_factorized_dense_synthesizer(options, factors, x64):
    """a blocks of b positions; a b may exceed the longest length."""
    config = mechanism("factorized_dense", **options)
    assert config.factors() == factors
    module = attention(mechanism=config, **F64)
    params = numbers(module)
    x = normal(0, B, LONGEST, M, dtype=np.float64)
    both = oracle.two_layers(params["mechanism"], x)
    a = factors[0]
    assert both.shape[-1] == sum(factors)
    logits = oracle_synthesizer.factorized_dense_logits(both[..., :a], both[..., a:])
    got = light_jit(
        lambda x: module.mechanism.logits(x, None, LONGEST, positions=None, seen=None)
    )(x)
    assert_close(got, logits[..., :LONGEST], 1e-12)


@pytest.mark.parametrize("length", range(1, 40))
def test_default_factors_are_the_nearest_to_the_root(length):
    a, b = nn.FactorizedDenseSynthesizer(max_length=length).factors()
    assert a * b >= length > a * (b - 1)
    assert 0 <= a - b <= 1


def mixed(*members, **options):
    return nn.MixtureSynthesizer(members=members, **options).for_length(LONGEST)


def test_a_mixture_starts_with_equal_weights_that_sum_to_one():
    """The paper's: positive, summing to 1, one weight a head and member."""
    module = built("mixture")
    assert module.mechanism.alpha.shape == (2, 2)
    x = jnp.asarray(normal(0, B, SHORT, M))
    weights = jax.nn.softmax(module.mechanism.alpha[...], axis=-1)
    np.testing.assert_array_equal(weights, 0.5)

    def logits(core, keys):
        return core.logits(x, keys, SHORT, positions=None, seen=None)

    core = module.mechanism
    keys = core.keys(x, None)
    one, two = (logits(*pair) for pair in zip(core.members, keys, strict=True))
    assert_close(logits(core, keys), 0.5 * one[None] + 0.5 * two, F32)


def test_a_plain_sum_adds_the_logits():
    module = attention(
        mechanism=mixed(nn.RandomSynthesizer(), nn.DenseSynthesizer(), normalize="sum")
    )
    core = module.mechanism
    assert core.alpha is None
    x = jnp.asarray(normal(0, B, SHORT, M))
    parts = [
        np.broadcast_to(
            each.logits(x, None, SHORT, positions=None, seen=None),
            (B, H, SHORT, SHORT),
        )
        for each in core.members
    ]
    got = core.logits(x, (None, None), SHORT, positions=None, seen=None)
    assert_close(got, parts[0] + parts[1], F32)


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


def test_a_mixture_of_many_decodes_as_it_attends():
    module = attention(
        exclusive=True,
        rotary=True,
        mechanism=mixed(
            nn.DenseSynthesizer(),
            nn.Softmax(),
            nn.FactorizedRandomSynthesizer(),
            nn.Softmax(logit_cap=0.5),
        ),
    )
    x = normal(0, B, T, M)

    def decoded(x):
        cache = module.init_cache(B, T)
        first, cache = module.decode(x[:, :5], cache)
        return jnp.concatenate([first, module.decode(x[:, 5:], cache)[0]], axis=1)

    assert_close(light_jit(decoded)(x), run(module, x), F32)


def test_the_shortest_member_limits_a_mixture():
    kind = mixed(nn.RandomSynthesizer(max_length=6), nn.DenseSynthesizer())
    assert [member.max_length for member in kind.members] == [6, LONGEST]
    assert kind.limit == 6
    assert mixed(nn.Softmax()).limit is None
    module = attention(mechanism=kind)
    with pytest.raises(ValueError, match=r"length: got 7; expected at most .* 6"):
        module.init_cache(B, 7)


def test_value_heads_are_grouped_and_logits_are_not():
    module = attention("random")
    assert module.mechanism.random.shape[0] == H
    assert module.value.kernel.shape == (M, 2, E)
