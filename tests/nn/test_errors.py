"""What can't be honoured raises before anything is computed, and says what to do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import nn
from attn_jax.ops import masks
from tests.nn.cases import LONGEST, B, M, T, attention, mechanism, normal
from tests.nn.errors import assert_raises

pytestmark = pytest.mark.usefixtures("plain_errors")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("sofmax", "softmax"),
        ("lineer", "linear"),
        ("factorised_dense", "factorized_dense"),
        ("mixtures", "mixture"),
    ],
)
def test_unknown_mechanism_names_the_nearest(name, near):
    parts = (f"mechanism: got {name!r}; did you mean {near!r}?", "expected one of")
    assert_raises(KeyError, lambda: nn.MECHANISMS[name], *parts, *nn.MECHANISMS)
    assert_raises(ValueError, lambda: nn.MECHANISMS[name], *parts)


def test_unknown_mechanism_without_a_near_one():
    parts = ("mechanism: got 'xyz'; expected one of softmax",)
    assert_raises(KeyError, lambda: nn.MECHANISMS["xyz"], *parts)


@pytest.mark.parametrize("given", ["softmax", nn.Softmax, None])
def test_a_mechanism_is_given_as_its_config(given):
    assert_raises(
        TypeError,
        lambda: nn.AttentionConfig(d_model=8, num_heads=2, mechanism=given),
        f"mechanism: got {given!r}; expected a mechanism's config",
        "MECHANISMS['softmax']()" if given == "softmax" else "MECHANISMS[name]()",
    )


SIZES = ("d_model", "num_heads", "num_kv_heads", "head_dim", "value_dim")


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [0, -1, 2.0, True])
def test_sizes_are_ints_from_one(name, value):
    options = {"d_model": 8, "num_heads": 2} | {name: value}
    assert_raises(
        ValueError,
        lambda: nn.AttentionConfig(**options),
        f"{name}: got {value!r}; expected an int >= 1",
    )


CONFIGS = {
    "heads that do not divide d_model": (
        {"d_model": 10, "num_heads": 4},
        "num_heads: got 4 for d_model = 10; expected a divisor of d_model",
        "set head_dim",
    ),
    "groups that do not divide the heads": (
        {"d_model": 12, "num_heads": 6, "num_kv_heads": 4},
        "num_kv_heads: got 4 for num_heads = 6; expected a divisor of num_heads",
        "1 always is",
    ),
    "more groups than heads": (
        {"d_model": 12, "num_heads": 2, "num_kv_heads": 3},
        "num_kv_heads: got 3 for num_heads = 2; expected a divisor of num_heads",
    ),
    "an odd head_dim with rotary": (
        {"d_model": 9, "num_heads": 3, "rotary": True},
        "head_dim: got 3; expected an even number",
        "set an even head_dim",
    ),
    "a rate of 1": (
        {"d_model": 8, "num_heads": 2, "dropout_rate": 1.0},
        "dropout_rate: got 1.0; expected a number in [0, 1)",
        "0 turns dropout off",
    ),
    "a base of 0": (
        {"d_model": 8, "num_heads": 2, "rotary_base": 0.0},
        "rotary_base: got 0.0; expected a number > 0",
    ),
    "a negative rate": (
        {"d_model": 8, "num_heads": 2, "dropout_rate": -0.1},
        "dropout_rate: got -0.1; expected a number in [0, 1)",
    ),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_configs_that_do_not_fit(case):
    options, *parts = CONFIGS[case]
    assert_raises(ValueError, lambda: nn.AttentionConfig(**options), *parts)


def test_a_feature_map_is_given_as_a_function():
    assert_raises(
        TypeError,
        lambda: nn.Linear(feature_map="relu"),
        "feature_map: got str; expected a function from *b t h d to *b t h p",
    )


POSITION_INDEXED = [
    name
    for name, kind in nn.MECHANISMS.items()
    if getattr(kind(), "max_length", 0) is None
]


@pytest.mark.parametrize("name", [*POSITION_INDEXED, "mixture"])
def test_synthesizers_need_a_longest_length(name):
    kind = nn.MECHANISMS[name]()
    assert_raises(
        ValueError,
        lambda: attention(mechanism=kind),
        "max_length: got None for ",
        "expected the longest sequence it will see, an int >= 1",
    )


@pytest.mark.parametrize("name", [*POSITION_INDEXED, "mixture"])
def test_more_tokens_than_a_synthesizer_was_built_for(name):
    module = attention(name)
    x = normal(0, B, LONGEST + 1, M)
    parts = (
        "x: got 12 tokens; expected at most max_length = 11",
        "build it for a longer one or shorten the input",
    )
    assert_raises(ValueError, lambda: module(jnp.asarray(x)), *parts)
    assert_raises(ValueError, lambda: jax.jit(module)(x), *parts)
    assert_raises(
        ValueError,
        lambda: module.init_cache(B, LONGEST + 1),
        "length: got 12; expected at most max_length = 11",
        "build it for a greater one",
    )


MECHANISM_OPTIONS = {
    "a length of 0": (
        lambda: nn.RandomSynthesizer(max_length=0),
        "max_length: got 0; expected an int >= 1",
    ),
    "factors of another length": (
        lambda: nn.FactorizedDenseSynthesizer(max_length=12, a=4, b=4),
        "a, b: got a = 4 and b = 4; expected a b = max_length = 12",
        "leave both out for a = 4 and b = 3",
    ),
    "factors of no model's length": (
        lambda: attention(mechanism=mechanism("factorized_dense", a=3, b=3)),
        "a, b: got a = 3 and b = 3; expected a b = max_length = 11",
        "leave both out for a = 4 and b = 3",
    ),
    "a factor that does not divide": (
        lambda: nn.FactorizedDenseSynthesizer(max_length=12, b=5),
        "a, b: got a = None and b = 5; expected a b = max_length = 12",
        "choose divisors of it",
    ),
    "a factor above the length": (
        lambda: nn.FactorizedDenseSynthesizer(max_length=3, a=5),
        "a, b: got a = 5 and b = None; expected a b = max_length = 3",
    ),
    "no taps": (
        lambda: nn.ConvolutionSynthesizer(kernel=0),
        "kernel: got 0; expected an int >= 1",
    ),
    "a below 1": (
        lambda: nn.FactorizedDenseSynthesizer(max_length=11, a=-1),
        "a: got -1; expected an int >= 1",
    ),
    "rank 0": (
        lambda: nn.FactorizedRandomSynthesizer(max_length=11, rank=0),
        "rank: got 0; expected an int >= 1",
    ),
    "no rank": (
        lambda: nn.FactorizedRandomSynthesizer(max_length=11, rank=None),
        "rank: got None; expected an int >= 1",
    ),
    "no width": (
        lambda: nn.AttentionConfig(d_model=None, num_heads=2),
        "d_model: got None; expected an int >= 1",
    ),
    "hidden 0": (
        lambda: nn.DenseSynthesizer(hidden=0),
        "hidden: got 0; expected an int >= 1",
    ),
    "a negative deviation": (
        lambda: nn.RandomSynthesizer(init_std=-0.1),
        "init_std: got -0.1; expected a number >= 0",
    ),
    "a cap of 0": (
        lambda: nn.Softmax(logit_cap=0.0),
        "logit_cap: got 0.0; expected a number > 0, or None",
    ),
    "a negative eps": (
        lambda: nn.Linear(eps=-1e-6),
        "eps: got -1e-06; expected a number >= 0",
        "or None to clamp it",
    ),
    "no rounds": (
        lambda: nn.LSH(num_rounds=0),
        "num_rounds: got 0; expected an int >= 1",
    ),
    "an empty bucket": (
        lambda: nn.LSH(bucket_size=0),
        "bucket_size: got 0; expected an int >= 1",
    ),
    "a negative seed": (
        lambda: nn.LSH(seed=-1),
        "seed: got -1; expected an int >= 0",
    ),
    "an eps where nothing is divided": (
        lambda: nn.Linear(eps=1e-6, normalize=False),
        "eps: got 1e-06 with normalize=False; expected None",
        "leave one of them out",
    ),
    "a feed-forward layer without a width": (
        lambda: nn.FeedForward(8, 0, rngs=None),
        "d_ff: got 0; expected an int >= 1",
    ),
    "an unknown implementation": (
        lambda: nn.Softmax(implementation="fast"),
        "implementation: got 'fast'; expected one of 'auto', 'dense'",
    ),
    "a member without logits": (
        lambda: nn.MixtureSynthesizer(members=(nn.Softmax(), nn.Linear())),
        "members: got Linear, which has no logits to mix; expected softmax or Synth",
    ),
    "a member by name": (
        lambda: nn.MixtureSynthesizer(members=("softmax",)),
        "members: got 'softmax', which has no logits to mix",
    ),
    "no members": (
        lambda: nn.MixtureSynthesizer(members=()),
        "members: got none; expected at least one mechanism",
    ),
    "a member twice": (
        lambda: nn.MixtureSynthesizer(
            members=(nn.DenseSynthesizer(), nn.Softmax(), nn.DenseSynthesizer())
        ),
        "members: got DenseSynthesizer twice with the same options; expected each once",
    ),
    "a member twice once its length is known": (
        lambda: nn.MixtureSynthesizer(
            members=(nn.RandomSynthesizer(), nn.RandomSynthesizer(max_length=11))
        ).for_length(11),
        "members: got RandomSynthesizer twice",
    ),
    "members of different lengths": (
        lambda: nn.MixtureSynthesizer(
            members=(
                nn.RandomSynthesizer(max_length=6),
                nn.Softmax(),
                nn.DenseSynthesizer(max_length=11),
            )
        ),
        "members: got different max_length: RandomSynthesizer with 6, "
        "DenseSynthesizer with 11; expected one for all",
        "state it once or not at all",
    ),
    "a sigmoid for three": (
        lambda: nn.MixtureSynthesizer(
            members=(nn.Softmax(), nn.RandomSynthesizer(), nn.DenseSynthesizer()),
            normalize="sigmoid",
        ),
        "normalize: got 'sigmoid' for 3 members; expected two",
        "use 'softmax'",
    ),
    "an unknown mixture": (
        lambda: nn.MixtureSynthesizer(members=(nn.Softmax(),), normalize="mean"),
        "normalize: got 'mean'; expected one of 'softmax', 'sigmoid', 'sum'",
    ),
}


@pytest.mark.parametrize("case", MECHANISM_OPTIONS)
def test_mechanisms_that_do_not_fit(case):
    make, *parts = MECHANISM_OPTIONS[case]
    assert_raises(ValueError, make, *parts)


def test_unknown_activation_names_the_nearest():
    assert_raises(
        ValueError,
        lambda: nn.FeedForward(4, 8, activation="gello", rngs=None),
        "activation: got 'gello'; did you mean 'gelu'? expected one of relu, gelu",
    )


def square(dtype):
    return jnp.tril(jnp.ones((T, T), dtype))


RAW = {"bool": square(bool), "int": square(int), "float": square(float)}


@pytest.mark.parametrize("kind", RAW)
def test_a_raw_array_is_no_mask(kind):
    """Contract 27: a guess about what an array means is a guess about its sign."""
    module = attention()
    assert_raises(
        TypeError,
        lambda: module(jnp.ones((B, T, M)), mask=RAW[kind]),
        f"mask: got an array of dtype {RAW[kind].dtype} and shape (7, 7)",
        "expected None or a Mask",
        "dense(allowed)",
        "padding(keys)",
    )


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda x: masks.padding(x), "padding(keys)"),
        (lambda x: masks.dense(x[None]), "dense(allowed)"),
    ],
    ids=["padding", "dense"],
)
def test_an_integer_mask_is_refused(build, name):
    assert_raises(
        TypeError,
        lambda: attention()(jnp.ones((B, T, M)), mask=build(square(jnp.int32))),
        f"{name}: got dtype int32; expected Bool",
        "compare first",
    )


CALLS = {
    "lists of tokens": (
        TypeError,
        lambda a: a([[[0.0] * M] * T] * B),
        "x: got list; expected an array; convert numbers and lists with jnp.asarray(x)",
    ),
    "a mask by name": (
        TypeError,
        lambda a: a(jnp.ones((B, T, M)), mask="causal"),
        "mask: got str; expected None or a Mask from attn_jax.ops.masks",
        "causal()",
    ),
    "positions in a list": (
        TypeError,
        lambda a: a(jnp.ones((B, T, M)), positions=[list(range(T))] * B),
        "positions: got list; expected an array",
    ),
    "valid in a list": (
        TypeError,
        lambda a: a.decode(jnp.ones((B, T, M)), a.init_cache(B, T), valid=[True] * T),
        "valid: got list; expected an array",
    ),
    "a seed for a key": (
        TypeError,
        lambda a: a(jnp.ones((B, T, M)), rng=0),
        "rng: got int; expected a typed key such as jax.random.key(0)",
    ),
    "x of another width": (
        ValueError,
        lambda a: a(jnp.ones((B, T, M + 1))),
        "x: got shape (3, 7, 11); expected (*b, t, 10)",
        "d_model = 10",
    ),
    "one vector": (
        ValueError,
        lambda a: a(jnp.ones((M,))),
        "x: got shape (10,); expected (*b, t, 10)",
        "an axis t of size 1",
    ),
    "token ids": (
        TypeError,
        lambda a: a(jnp.ones((B, T, M), jnp.int32)),
        "x: got dtype int32; expected a floating dtype",
        "embed token ids first",
    ),
    "a context of another width": (
        ValueError,
        lambda a: a(jnp.ones((B, T, M)), jnp.ones((B, 5, M - 1))),
        "context: got shape (3, 5, 9); expected (*b, t, 10)",
    ),
    "a context of other rows": (
        ValueError,
        lambda a: a(jnp.ones((B, T, M)), jnp.ones((2, 5, M))),
        "context: got leading axes (2,) for x's (3,); expected the same",
        "broadcast them first",
    ),
    "a mask for other rows": (
        ValueError,
        lambda a: a(jnp.ones((B, T, M)), mask=masks.padding(jnp.ones((2, T), bool))),
        "mask: padding(keys) has shape (2, 7) for leading axes (3,)",
    ),
    "a mask of another length": (
        ValueError,
        lambda a: a(jnp.ones((B, T, M)), mask=masks.padding(jnp.ones((B, 5), bool))),
        "mask: padding(keys) has shape (3, 5) for leading axes (3,) and 7 tokens",
    ),
    "causality across sequences": (
        ValueError,
        lambda a: a(jnp.ones((B, T, M)), jnp.ones((B, 5, M)), mask=masks.causal()),
        "mask: causal is ambiguous for t = 7 queries and s = 5 keys",
        "mask.offset(start)",
    ),
    "positions of another shape": (
        ValueError,
        lambda a: a(jnp.ones((B, T, M)), positions=jnp.arange(T)),
        "positions: got shape (7,) for tokens of shape (3, 7)",
        "jnp.broadcast_to(positions, (3, 7))",
    ),
    "float positions": (
        TypeError,
        lambda a: a(jnp.ones((B, T, M)), positions=jnp.ones((B, T))),
        "positions: got dtype float32; expected integers",
    ),
    "valid as lengths": (
        TypeError,
        lambda a: a.decode(
            jnp.ones((B, T, M)), a.init_cache(B, T), valid=jnp.ones((B,), jnp.int32)
        ),
        "valid: got dtype int32; expected Bool[b n], True = real token",
        "lengths[:, None]",
    ),
    "valid of another shape": (
        ValueError,
        lambda a: a.decode(
            jnp.ones((B, T, M)), a.init_cache(B, T), valid=jnp.ones((B, 5), bool)
        ),
        "valid: got shape (3, 5) for tokens of shape (3, 7); expected the same",
    ),
    "a cache of other rows": (
        ValueError,
        lambda a: a.decode(jnp.ones((2, T, M)), a.init_cache(B, T)),
        "x: got 2 rows for a cache of 3; expected",
        "init_cache(2, length)",
    ),
    "a negative length": (
        ValueError,
        lambda a: a.init_cache(B, -1),
        "length: got -1; expected an int >= 0",
    ),
    "a float batch": (
        ValueError,
        lambda a: a.init_cache(2.0, T),
        "batch: got 2.0; expected an int >= 0",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_calls_that_do_not_fit(case):
    kind, call, *parts = CALLS[case]
    module = attention()
    assert_raises(kind, lambda: call(module), *parts)


@pytest.mark.parametrize("name", POSITION_INDEXED)
def test_positions_a_synthesizer_has_no_row_or_column_for(name):
    module = attention(name)
    x, positions = normal(0, B, 4, M), np.arange(12).reshape(B, 4)
    assert_raises(
        ValueError,
        lambda: module(jnp.asarray(x), positions=jnp.asarray(positions)),
        "positions: got numbers from 0 to 11; expected 0 to 10 (max_length - 1)",
        "build for a greater max_length",
    )
    assert_raises(
        ValueError,
        lambda: module(jnp.asarray(x), positions=jnp.asarray(positions - 1)),
        "positions: got numbers from -1 to 10; expected 0 to 10",
    )
    real = positions != 11
    masked = jax.jit(lambda x, p, r: module(x, positions=p, mask=masks.padding(r, r)))
    clean = np.where(real, positions, 0)
    np.testing.assert_array_equal(
        masked(x, positions, real), masked(x, clean, real), strict=True
    )
    run = jax.jit(lambda x, p: module(x, positions=p))
    bad = np.isnan(run(x, positions)).any(axis=(1, 2))
    assert bad.tolist() == [False, False, True]
    bad = np.isnan(run(x, positions - 1)).any(axis=(1, 2))
    assert bad.tolist() == [True, False, False]
