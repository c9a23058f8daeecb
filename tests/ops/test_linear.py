"""Linear attention: every form against the paper's quadratic sums in float64."""

import contextlib
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import ops
from attn_jax.ops import linear_chunked, masks
from tests.ops import oracles
from tests.ops.oracles import assert_close, assert_same_bits

B, T, S, H, G, D, E = 5, 7, 6, 4, 2, 3, 2
CHUNK = 3


def relu_plus(x):
    return jax.nn.relu(x) + 1e-3


def two_sided(x):
    return jnp.concatenate([ops.elu_plus_one(x), ops.elu_plus_one(-x)], -1)


def identity(x):
    return x


FEATURES = {
    ops.elu_plus_one: oracles.elu_plus_one,
    relu_plus: oracles.relu_plus,
    two_sided: oracles.two_sided,
    ops.relu_features: oracles.relu,
    ops.squared_relu_features: oracles.squared_relu,
    ops.exp_features: oracles.exp_features,
    ops.polynomial_features: oracles.polynomial,
    identity: oracles.identity,
}


def arrays(
    lead=(B,), t=T, s=None, h=H, g=G, d=D, e=E, p=None, dtype=np.float64, seed=0
):
    """Random q, k, v, the cotangents of (out, kv, z) and an initial state."""
    rng = np.random.default_rng(seed)
    s, p = t if s is None else s, d if p is None else p
    qkv = [rng.normal(size=(*lead, *x)) for x in ((t, h, d), (s, g, d), (s, g, e))]
    shapes = (t, h, e), (g, p, e), (g, p)
    cotangents = [rng.normal(size=(*lead, *shape)) for shape in shapes]
    state = rng.normal(size=(*lead, g, p, e)), rng.random(size=(*lead, g, p)) + 0.5
    as_jax = functools.partial(jnp.asarray, dtype=dtype)
    wide = jnp.promote_types(dtype, jnp.float32)
    return (
        [as_jax(x) for x in qkv],
        [as_jax(cotangents[0]), *(jnp.asarray(x, wide) for x in cotangents[1:])],
        ops.LinearState(*(jnp.asarray(x, wide) for x in state)),
    )


FORMS = {
    "attention": ops.linear_attention,
    "scan": ops.linear_attention_scan,
    "chunked": ops.linear_attention_chunked,
    "recurrent": ops.linear_attention_recurrent,
}
CAUSAL_FORMS = ("scan", "chunked", "recurrent")
STATEFUL = ("chunked", "recurrent")


STATIC = ("form", "feature_map", "normalize", "chunk_size")


@functools.partial(jax.jit, static_argnames=STATIC)
def attend(form, qkv, cotangents, state=None, **options):
    """The output, the state after it and the gradients, of one form."""

    def outputs(q, k, v, state):
        given = {} if state is None else {"initial_state": state}
        return FORMS[form](q, k, v, **given, **options)

    results, pullback = jax.vjp(outputs, *qkv, state)
    if form in STATEFUL:
        out, (kv, z) = results
        q, k, v, before = pullback((cotangents[0], ops.LinearState(*cotangents[1:])))
        found = {"out": out, "kv": kv, "z": z, "q": q, "k": k, "v": v}
    else:
        q, k, v, before = pullback(cotangents[0])
        found = {"out": results, "q": q, "k": k, "v": v}
    if state is not None:
        found |= {"kv0": before.kv, "z0": before.k}
    return found


def check(
    form,
    inputs,
    ceiling,
    mask=None,
    rules=None,
    *,
    with_state=False,
    counted=None,
    answered=None,
    **options,
):
    """One form equals the oracle in its outputs, its state and every gradient."""
    qkv, cotangents, state = inputs
    rules = [oracles.causal()] if rules is None else rules
    *lead, t, h, _ = qkv[0].shape
    sight = oracles.allowed(rules, int(np.prod(lead)), h, t, qkv[1].shape[-3])
    state = state if with_state else None
    chunk = {"chunk_size": CHUNK} if form == "chunked" else {}
    got = attend(form, qkv, cotangents, state, mask=mask, **(chunk | options))
    wide = [np.asarray(x).astype(np.float64) for x in cotangents]
    if form not in STATEFUL:
        wide[1:] = [0 * x for x in wide[1:]]
    want = oracles.linear_attention(
        *(np.asarray(x).astype(np.float64) for x in qkv),
        sight.reshape(*lead, *sight.shape[1:]),
        FEATURES[options.get("feature_map", ops.elu_plus_one)],
        options.get("eps") or 0.0,
        state,
        counted,
        answered,
        wide,
        options.get("normalize", True),
    )
    for name, x in got.items():
        assert_close(x, getattr(want, name), ceiling, name)
    chex.assert_type(got["out"], qkv[2].dtype)
    return got


RNG = np.random.default_rng(2)
REAL = np.array(
    [
        [1, 1, 1, 1, 1, 1, 1],
        [0, 0, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 0, 0],
        [0, 1, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 0],
    ],
    bool,
)
"""No padding, on the left, on the right, all over the place, nothing else."""

IDS = np.array(
    [
        [4, 4, 1, 7, 7, 7, 7],
        [9, 9, 5, 5, 5, 6, 6],
        [3, 3, 3, 1, 9, 9, 9],
        [0, 0, 0, 0, 2, 2, 0],
        [9, 9, 9, 8, 8, 9, 9],
    ]
)
"""Runs in any order; padding under an id of its own, and under one in use."""

RUNS = np.sort(IDS, axis=1)
"""Segments without padding."""

LAST = REAL & np.isin(IDS - [[7], [6], [1], [2], [9]], 0)
"""The tokens of the last segment: those that the state returned sums over."""


def test_gradients_of_the_oracle_are_the_slopes_of_its_outputs(x64):
    (q, k, v), cotangents, state = arrays((2,), t=3)
    given = dict(
        zip("qkv", (np.asarray(x, np.float64) for x in (q, k, v)), strict=True)
    )
    kv0, z0 = map(np.asarray, state)
    cotangents = [np.asarray(x) for x in cotangents]
    counted = np.array([[1, 1, 0], [0, 1, 1]], bool)
    sight = oracles.allowed([oracles.causal([0, -1])], 2, H, 3, 3)

    def attention(kv0, z0, **given):
        return oracles.linear_attention(
            **given,
            allowed=sight,
            feature_map=oracles.elu_plus_one,
            eps=0.3,
            state=(kv0, z0),
            counted=counted,
            cotangents=cotangents,
        )

    given |= {"kv0": kv0, "z0": z0}
    gradients = attention(**given)
    for name, x in given.items():

        def value(x, name=name):
            found = attention(**given | {name: x})
            outputs = found.out, found.kv, found.z
            return sum(np.sum(x * y) for x, y in zip(outputs, cotangents, strict=True))

        slopes = oracles.finite_differences(value, x)
        assert_close(getattr(gradients, name), slopes, 1e-7, name)


@pytest.mark.parametrize("features", FEATURES.values())
def test_pullbacks_of_the_oracle_are_the_slopes_of_its_features(features):
    x = RNG.normal(size=(2, 3))
    g = RNG.normal(size=features.phi(x).shape)
    slopes = oracles.finite_differences(lambda x: np.sum(features.phi(x) * g), x)
    assert_close(features.pullback(x, g), slopes, 1e-8)


@pytest.mark.parametrize("form", CAUSAL_FORMS)
def test_causal_forms_equal_the_oracle(x64, form):
    check(form, arrays(), 1e-12, masks.causal(), with_state=form in STATEFUL)


@pytest.mark.parametrize("form", CAUSAL_FORMS)
def test_no_mask_means_causal_to_a_form_that_is_causal_by_nature(form):
    (q, k, v), *_ = arrays(dtype=np.float32)
    said = FORMS[form](q, k, v, mask=masks.causal())
    for mask in (None, masks.causal().offset(0)):
        jax.tree.map(assert_same_bits, FORMS[form](q, k, v, mask=mask), said)


@pytest.mark.parametrize("form", CAUSAL_FORMS)
def test_padding_equals_the_oracle(x64, form):
    """Left, right and in between, keys and queries apart."""
    keys, queries = REAL, REAL.copy()
    queries[:, [0, 4]] = ~queries[:, [0, 4]]
    with_state = form in STATEFUL
    check(
        form,
        arrays(),
        1e-12,
        masks.causal() & masks.padding(jnp.asarray(keys), jnp.asarray(queries)),
        [oracles.causal(), oracles.padding(keys, queries)],
        with_state=with_state,
        counted=keys,
        answered=queries,
    )


@pytest.mark.parametrize("form", CAUSAL_FORMS)
def test_padded_keys_alone_equal_the_oracle(x64, form):
    """A query beside padding still answers, from the state where there is one."""
    check(
        form,
        arrays(),
        1e-12,
        masks.padding(jnp.asarray(REAL)) & masks.causal(),
        [oracles.causal(), oracles.padding(REAL)],
        with_state=form == "recurrent",
        counted=REAL,
    )


@pytest.mark.parametrize("form", CAUSAL_FORMS)
def test_segments_in_a_row_equal_the_oracle(x64, form):
    """The state is that after the last real token of the last segment."""
    got = check(
        form,
        arrays(),
        1e-12,
        masks.causal()
        & masks.segments(jnp.asarray(IDS))
        & masks.padding(jnp.asarray(REAL), jnp.asarray(REAL)),
        [oracles.causal(), oracles.segments(IDS), oracles.padding(REAL, REAL)],
        counted=LAST,
    )
    for name in ("out", "q"):
        assert (np.asarray(got[name])[~REAL] == 0).all()
    for name in ("kv", "z") if form in STATEFUL else ():
        assert (got[name][-1] == 0).all()


@pytest.mark.parametrize("form", STATEFUL)
def test_segments_without_padding_equal_the_oracle(x64, form):
    ids = np.array([[4, 4, 1, 7, 7, 7, 7], [5, 5, 5, 5, 5, 5, 5]])
    check(
        form,
        arrays((2,)),
        1e-12,
        masks.causal() & masks.segments(jnp.asarray(ids)),
        [oracles.causal(), oracles.segments(ids)],
        counted=ids == ids[:, -1:],
    )


@pytest.mark.parametrize("form", ["attention", *CAUSAL_FORMS])
def test_a_query_beside_padding_sees_its_segment_or_is_refused(form):
    """Padding under an id in use: the last query may look at the first two keys."""
    (q, k, v), *_ = arrays((1,), t=5, dtype=np.float32)
    ids, real = np.array([[0, 0, 1, 1, 0]]), np.array([[1, 1, 1, 1, 0]], bool)
    rules = [oracles.causal(), oracles.segments(ids), oracles.padding(real)]
    want = oracles.linear_attention(q, k, v, oracles.allowed(rules, 1, H, 5, 5))
    mask = masks.causal() & masks.padding(jnp.asarray(real))
    with contextlib.suppress(ValueError):
        found = FORMS[form](q, k, v, mask=mask & masks.segments(jnp.asarray(ids)))
        assert_close(found[0] if form in STATEFUL else found, want.out, 1e-6)


START = np.array([-2, 1, 3, 0, 6])
CROSS_IDS = np.array(
    [
        [4, 4, 1, 1, 8, 8],
        [2, 2, 5, 6, 6, 6],
        [3] * 6,
        [0, 0, 2, 2, 2, 5],
        [8, 8, 8, 9, 9, 9],
    ]
)
CROSS_REAL = RNG.random((B, S)) < 0.7

ATTENTION = {
    "everyone, t != s": (S, lambda: None, [], None),
    "full": (S, masks.full, [], None),
    "padded keys, t != s": (
        S,
        lambda: masks.padding(jnp.asarray(CROSS_REAL)),
        [oracles.padding(CROSS_REAL)],
        None,
    ),
    "padding on both sides": (
        T,
        lambda: masks.padding(jnp.asarray(REAL), jnp.asarray(REAL)),
        [oracles.padding(REAL, REAL)],
        REAL,
    ),
    "segments in both directions": (
        T,
        lambda: (
            masks.segments(jnp.asarray(IDS))
            & masks.padding(jnp.asarray(REAL), jnp.asarray(REAL))
        ),
        [oracles.segments(IDS), oracles.padding(REAL, REAL)],
        REAL,
    ),
    "segments, t != s": (
        S,
        lambda: masks.segments(jnp.asarray(IDS), jnp.asarray(CROSS_IDS)),
        [oracles.segments(IDS, CROSS_IDS)],
        None,
    ),
    "causal": (T, masks.causal, [oracles.causal()], None),
    "causal, segments, padding": (
        T,
        lambda: (
            masks.causal()
            & masks.segments(jnp.asarray(IDS))
            & masks.padding(jnp.asarray(REAL), jnp.asarray(REAL))
        ),
        [oracles.causal(), oracles.segments(IDS), oracles.padding(REAL, REAL)],
        REAL,
    ),
    "causal at offsets, t != s": (
        S,
        lambda: (
            masks.causal().offset(jnp.asarray(START))
            & masks.padding(jnp.asarray(CROSS_REAL))
        ),
        [oracles.causal(START), oracles.padding(CROSS_REAL)],
        None,
    ),
    "prefix": (
        T,
        lambda: masks.prefix(jnp.asarray(START)),
        [oracles.prefix(START)],
        None,
    ),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_linear_attention_equals_the_oracle(x64, name):
    s, mask, rules, answered = ATTENTION[name]
    inputs = arrays(s=s)
    check("attention", inputs, 1e-12, mask(), rules, answered=answered)


@pytest.mark.parametrize("form", CAUSAL_FORMS)
@pytest.mark.parametrize("feature_map", [ops.elu_plus_one, identity])
def test_numerators_alone_equal_the_oracle(x64, form, feature_map):
    """With segments, padding in the middle, and features of either sign."""
    check(
        form,
        arrays(),
        1e-12,
        masks.causal()
        & masks.segments(jnp.asarray(IDS))
        & masks.padding(jnp.asarray(REAL), jnp.asarray(REAL)),
        [oracles.causal(), oracles.segments(IDS), oracles.padding(REAL, REAL)],
        counted=LAST,
        feature_map=feature_map,
        normalize=False,
    )


@pytest.mark.parametrize("form", STATEFUL)
def test_numerators_alone_go_on_from_a_state(x64, form):
    options = {"feature_map": identity, "normalize": False}
    check(form, arrays(), 1e-12, with_state=True, **options)


@pytest.mark.parametrize("name", ["padding on both sides", "prefix", "causal"])
def test_numerators_alone_of_linear_attention_equal_the_oracle(x64, name):
    """The three ways it may take."""
    s, mask, rules, answered = ATTENTION[name]
    options = {"feature_map": identity, "normalize": False}
    check("attention", arrays(s=s), 1e-12, mask(), rules, answered=answered, **options)


def test_numerators_of_large_queries_are_whole():
    """A query is scaled down inside a chunk, which no quotient would show."""
    (q, k, v), *_ = arrays(dtype=np.float32)
    out, _ = ops.linear_attention_chunked(1e25 * q, k, v, normalize=False, chunk_size=3)
    want = ops.linear_attention_scan(1e25 * q, k, v, normalize=False)
    assert_close(np.float64(out), np.float64(want), 1e-5)
    assert np.abs(want).max() > 1e24


@pytest.mark.parametrize("form", CAUSAL_FORMS)
def test_no_token_moves_numerators_before_it(form):
    """Outputs and gradients, to the bit, whatever overflows after them."""
    qkv, cotangents, _ = arrays(dtype=np.float32)
    chunk = {"chunk_size": CHUNK} if form == "chunked" else {}
    options = {"feature_map": identity, "normalize": False, **chunk}
    token = CHUNK + 1
    before = jnp.where(jnp.arange(T)[:, None, None] < token, cotangents[0], 0)
    cotangents = [before, *(0 * x for x in cotangents[1:])]
    want = attend(form, qkv, cotangents, **options)
    for value in (-9.0, 1e30, 3e38):
        changed = [x.at[:, token].set(value) for x in qkv]
        got = attend(form, changed, cotangents, **options)
        for name in ("out", "q", "k", "v"):
            assert_same_bits(
                got[name][:, :token], want[name][:, :token], f"{name} for {value}"
            )
    assert (got["out"][:, token] != want["out"][:, token]).any()


@pytest.mark.parametrize("form", ["attention", *CAUSAL_FORMS])
def test_what_is_not_divided_needs_no_eps(form, plain_errors):
    (q, k, v), *_ = arrays(dtype=np.float32)
    with pytest.raises(ValueError, match=r"eps: got 0.1 with normalize=False"):
        FORMS[form](q, k, v, eps=0.1, normalize=False)
    with pytest.raises(TypeError, match=r"normalize: got 'no'; expected True or"):
        FORMS[form](q, k, v, normalize="no")


def test_reduces_to_the_sum_of_the_visible_values_without_division():
    """When all similarities are 1."""
    (q, k, v), *_ = arrays(dtype=np.float32)

    def one(x):
        return jnp.ones_like(x[..., :1])

    options = {"feature_map": one, "normalize": False}
    everyone = ops.linear_attention(q, k, v, **options)
    past = ops.linear_attention(q, k, v, mask=masks.causal(), **options)
    for i in range(T):
        assert_close(everyone[:, i], np.repeat(np.asarray(v).sum(1), H // G, 1), 1e-6)
        some = np.asarray(v)[:, : i + 1].sum(1)
        assert_close(past[:, i], np.repeat(some, H // G, 1), 1e-6)


@pytest.mark.parametrize("t", range(2 * CHUNK + 2))
def test_every_length_equals_the_oracle(x64, t):
    check("chunked", arrays((1,), t=t), 1e-12, with_state=True)


@pytest.mark.parametrize("chunk_size", [1, 2, 7, 64])
def test_every_chunk_size_equals_the_oracle(x64, chunk_size):
    inputs = arrays((1,), t=8)
    check("chunked", inputs, 1e-12, with_state=True, chunk_size=chunk_size)


def test_many_chunks_of_the_default_size_equal_the_oracle(x64):
    check("attention", arrays((1,), t=131, h=1, g=1), 1e-11, masks.causal())


@pytest.mark.parametrize("form", CAUSAL_FORMS)
@pytest.mark.parametrize("t", [0, 1])
def test_lengths_of_0_and_1_equal_the_oracle(x64, form, t):
    real, ids = np.ones((2, t), bool), np.zeros((2, t), int)
    mask = masks.causal() & masks.padding(jnp.asarray(real))
    mask = mask & masks.segments(jnp.asarray(ids))
    check(form, arrays((2,), t=t), 1e-12, mask)


@pytest.mark.parametrize(
    ("form", "feature_map", "eps"),
    [
        ("scan", two_sided, 0.5),
        ("chunked", two_sided, None),
        ("recurrent", two_sided, 0.5),
        ("attention", two_sided, 0.5),
        ("chunked", relu_plus, 0.5),
        ("attention", relu_plus, None),
        ("chunked", ops.relu_features, None),
        ("attention", ops.relu_features, None),
        ("chunked", ops.squared_relu_features, None),
        ("recurrent", ops.exp_features, None),
        ("attention", ops.exp_features, 0.5),
        ("chunked", ops.polynomial_features, None),
        ("attention", ops.polynomial_features, None),
    ],
)
def test_feature_maps_and_eps_equal_the_oracle(x64, form, feature_map, eps):
    """phi may be twice as wide as the head; eps is added to the denominator."""
    inputs = arrays((1,), p=FEATURES[feature_map].phi(np.zeros(D)).shape[-1])
    rules = [] if form == "attention" else [oracles.causal()]
    state = form == "recurrent"
    options = {"feature_map": feature_map, "eps": eps, "with_state": state}
    check(form, inputs, 1e-12, rules=rules, **options)


@pytest.mark.parametrize(
    "sizes",
    [
        {"lead": (), "h": 3, "g": 3, "d": 1, "e": 5},
        {"lead": (2, 3), "h": 4, "g": 1, "d": 5, "e": 1},
        {"lead": (4,), "t": 4, "s": 4, "h": 4, "g": 2, "d": 4, "e": 4},
    ],
    ids=str,
)
def test_every_shape_equals_the_oracle(x64, sizes):
    """Leading axes, grouped heads, and sizes that collide (b = t = h = d = e)."""
    check("chunked", arrays(**sizes), 1e-12, with_state=True)


@pytest.mark.parametrize(
    ("form", "dtype", "ceiling"),
    [
        ("chunked", jnp.float32, 1e-6),
        ("chunked", jnp.bfloat16, 4e-3),
        ("chunked", jnp.float16, 5e-4),
        ("recurrent", jnp.bfloat16, 4e-3),
    ],
)
def test_error_stays_below_the_ceiling_of_the_dtype(form, dtype, ceiling):
    """Outputs and gradients; the state is kept in float32."""
    inputs = arrays(dtype=dtype)
    got = check(form, inputs, ceiling, with_state=True)
    chex.assert_type([got[name] for name in "qkv"], dtype)
    chex.assert_type([got[name] for name in ("kv", "z", "kv0", "z0")], jnp.float32)


@pytest.mark.parametrize(("dtype", "ceiling"), [("float32", 2e-6), ("bfloat16", 5e-3)])
def test_error_does_not_grow_with_4096_keys(dtype, ceiling):
    inputs = arrays((1,), t=3, s=4096, h=2, g=1, d=16, e=3, dtype=dtype)
    check("attention", inputs, ceiling, rules=[])


@pytest.mark.parametrize(
    ("form", "splits"), [("chunked", range(T + 1)), ("recurrent", [0, 3, T])]
)
def test_a_sequence_split_anywhere_equals_one_pass(x64, form, splits):
    """The pieces padded as they are in the whole."""
    (q, k, v), *_, state = arrays()
    sight = oracles.allowed([oracles.causal(), oracles.padding(REAL, REAL)], B, H, T, T)
    want = oracles.linear_attention(
        q, k, v, sight, state=state, counted=REAL, answered=REAL
    )
    chunk = {"chunk_size": CHUNK} if form == "chunked" else {}
    for split in splits:
        after, pieces = state, []
        for part in (slice(0, split), slice(split, T)):
            real = jnp.asarray(REAL[:, part])
            out, after = FORMS[form](
                *(x[:, part] for x in (q, k, v)),
                mask=masks.causal() & masks.padding(real, real),
                initial_state=after,
                **chunk,
            )
            pieces.append(out)
        assert_close(jnp.concatenate(pieces, 1), want.out, 1e-12, f"split {split}")
        assert_close(after.kv, want.kv, 1e-12, f"split {split}")
        assert_close(after.k, want.z, 1e-12, f"split {split}")


def test_gradients_pass_through_the_state_from_piece_to_piece(x64):
    """Pieces of 3, 2, 1 and 1 tokens, in chunks of 2, against one pass."""
    qkv, cotangents, _ = arrays()
    sight = oracles.allowed([oracles.causal()], B, H, T, T)
    want = oracles.linear_attention(*qkv, sight, cotangents=cotangents)

    def in_pieces(q, k, v):
        parts = [jnp.split(x, [3, 5, 6], 1) for x in (q, k, v)]
        first, second, third, fourth = zip(*parts, strict=True)
        out1, state = ops.linear_attention_chunked(*first, chunk_size=2)
        out2, state = ops.linear_attention_recurrent(*second, initial_state=state)
        out3, state = ops.linear_attention_chunked(
            *third, chunk_size=2, initial_state=state
        )
        out4, state = ops.linear_attention_step(*(x[:, 0] for x in fourth), state)
        return jnp.concatenate([out1, out2, out3, out4[:, None]], 1), *state

    out, pullback = jax.jit(functools.partial(jax.vjp, in_pieces))(*qkv)
    for name, x in zip(("out", "kv", "z"), out, strict=True):
        assert_close(x, getattr(want, name), 1e-12, name)
    for name, x in zip("qkv", pullback(tuple(cotangents)), strict=True):
        assert_close(x, getattr(want, name), 1e-12, name)


@pytest.mark.parametrize("normalize", [True, False])
def test_steps_equal_one_pass(x64, normalize):
    """Token by token with ragged padding, outputs and gradients."""
    qkv, cotangents, state = arrays()
    sight = oracles.allowed([oracles.causal(), oracles.padding(REAL, REAL)], B, H, T, T)
    want = oracles.linear_attention(
        *qkv,
        sight,
        state=state,
        counted=REAL,
        answered=REAL,
        cotangents=cotangents,
        normalize=normalize,
    )

    @jax.jit
    def steps(q, k, v, state):
        def step(state, now):
            *token, valid = now
            options = {"valid": valid, "normalize": normalize}
            out, state = ops.linear_attention_step(*token, state, **options)
            return state, out

        tokens = [jnp.moveaxis(x, 1, 0) for x in (q, k, v, jnp.asarray(REAL))]
        state, out = jax.lax.scan(step, state, tokens)
        return jnp.moveaxis(out, 0, 1), *state

    found, pullback = jax.vjp(steps, *qkv, state)
    for name, x in zip(("out", "kv", "z"), found, strict=True):
        assert_close(x, getattr(want, name), 1e-12, name)
    *gradients, before = pullback(tuple(cotangents))
    for name, x in zip("qkv", gradients, strict=True):
        assert_close(x, getattr(want, name), 1e-12, name)
    assert_close(before.kv, want.kv0, 1e-12)
    assert_close(before.k, want.z0, 1e-12)


@pytest.mark.parametrize("value", [0.5, np.nan, np.inf, 1e30])
def test_a_step_that_is_not_valid_changes_nothing(value):
    (q, k, v), _, state = arrays(t=1, dtype=np.float32)
    valid = np.array([True, False, True, False, False])
    token = [jnp.where(valid[:, None, None], x[:, 0], value) for x in (q, k, v)]
    out, after = ops.linear_attention_step(*token, state, valid=jnp.asarray(valid))
    full, moved = ops.linear_attention_step(*(x[:, 0] for x in (q, k, v)), state)
    assert (out[~valid] == 0).all()
    for got, old in zip(after, state, strict=True):
        assert_same_bits(got[~valid], old[~valid])
    assert_close(out[valid], full[valid], 1e-6)
    for got, new in zip(after, moved, strict=True):
        assert_close(got[valid], new[valid], 1e-6)


@pytest.mark.parametrize("form", STATEFUL)
def test_a_row_of_padding_leaves_the_state_to_the_bit(form):
    (q, k, v), _, state = arrays(dtype=np.float32)
    real = jnp.asarray(REAL).at[1].set(False)
    chunk = {"chunk_size": CHUNK} if form == "chunked" else {}
    out, after = FORMS[form](
        q,
        k,
        v,
        mask=masks.causal() & masks.padding(real, real),
        initial_state=state,
        **chunk,
    )
    assert (out[1] == 0).all()
    assert_same_bits(after.kv[1], state.kv[1])
    assert_same_bits(after.k[1], state.k[1])


@pytest.mark.parametrize(
    "sizes", [{"t": 0, "s": 5}, {"t": 5, "s": 0}, {"lead": (0,), "s": 5}], ids=str
)
def test_nothing_in_gives_zeros_of_the_right_shape(sizes):
    (q, k, v), cotangents, _ = arrays(**sizes, dtype=np.float32)
    b, s = k.shape[:2]
    real = masks.padding(jnp.ones((b, s), bool))
    for mask in (None, real, masks.causal().offset(9) & real):
        got = attend("attention", (q, k, v), cotangents, mask=mask)
        want = {"out": jnp.zeros((*q.shape[:-1], E)), "q": 0 * q, "k": 0 * k}
        chex.assert_trees_all_equal(got, want | {"v": 0 * v})


def real_tokens() -> masks.Mask:
    return masks.padding(jnp.asarray(REAL), jnp.asarray(REAL))


HIDDEN = {
    "attention": real_tokens,
    "attention without a real key in a row": lambda: masks.padding(jnp.asarray(REAL)),
    "attention at offsets": lambda: (
        masks.causal().offset(jnp.asarray(START - 3)) & masks.padding(jnp.asarray(REAL))
    ),
    "scan": lambda: masks.causal() & real_tokens(),
    "chunked": lambda: masks.causal() & real_tokens(),
    "recurrent": lambda: masks.causal() & real_tokens(),
    "chunked segments": lambda: (
        masks.causal() & real_tokens() & masks.segments(jnp.asarray(IDS))
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_nobody_sees_may_hold_anything(name):
    """Outputs, states and gradients, to the bit, with padding in the middle too."""
    mask = HIDDEN[name]
    form = name.split()[0]
    qkv, cotangents, state = arrays(dtype=np.float32)
    state = state if name in STATEFUL else None
    chunk = {"chunk_size": CHUNK} if form == "chunked" else {}
    table = np.broadcast_to(mask().allowed(T, T), (B, 1, T, T))[:, 0]
    seeing = table.any(-1)
    if state is not None:
        # Where sums came before, a query without a key of its own still answers.
        seeing = REAL
    seen = REAL if form in CAUSAL_FORMS else table.any(-2)
    assert not seeing.all()
    assert not seen.all()
    want = attend(form, qkv, cotangents, state, mask=mask(), **chunk)
    for value in (np.nan, np.inf, -np.inf, 1e30, -3e38):
        q, k, v = qkv
        poisoned = (
            jnp.where(seeing[..., None, None], q, value),
            jnp.where(seen[..., None, None], k, value),
            jnp.where(seen[..., None, None], v, -value),
        )
        got = attend(form, poisoned, cotangents, state, mask=mask(), **chunk)
        for field, x in got.items():
            assert_same_bits(x, want[field], f"{field} for {value}")
        assert (np.asarray(got["q"])[~seeing] == 0).all()
        assert (np.asarray(got["out"])[~seeing] == 0).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_what_nobody_sees_may_hold_anything_in_16_bits(dtype):
    mask = HIDDEN["chunked"]
    qkv, cotangents, state = arrays(dtype=dtype)
    options = {"mask": mask(), "chunk_size": CHUNK}
    want = attend("chunked", qkv, cotangents, state, **options)
    for value in (np.nan, np.inf, 6e4):
        value = jnp.asarray(value, dtype)
        poisoned = [jnp.where(REAL[..., None, None], x, value) for x in qkv]
        got = attend("chunked", poisoned, cotangents, state, **options)
        for field, x in got.items():
            assert_same_bits(x, want[field], f"{field} for {value}")


@pytest.mark.parametrize("form", CAUSAL_FORMS)
@pytest.mark.parametrize("token", [0, CHUNK - 1, CHUNK, CHUNK + 1, T - 1])
def test_no_token_moves_what_came_before_it(form, token):
    """Causality to the bit, forward and backward: inside chunks, at edges, at the end.

    The token holds 1e30 too, and its key and value 3e38: sums overflow after it.
    """
    qkv, cotangents, _ = arrays(dtype=np.float32)
    chunk = {"chunk_size": CHUNK} if form == "chunked" else {}
    options = {"mask": masks.causal(), **chunk}
    before = jnp.where(jnp.arange(T)[:, None, None] < token, cotangents[0], 0)
    cotangents = [before, *(0 * x for x in cotangents[1:])]
    want = attend(form, qkv, cotangents, **options)
    for name in ("q", "k", "v"):
        assert (want[name][:, token:] == 0).all(), name
    for value in (-9.0, 1e30, 3e38):
        values = (-9.0 if value == 3e38 else value, value, value)
        changed = [x.at[:, token].set(y) for x, y in zip(qkv, values, strict=True)]
        got = attend(form, changed, cotangents, **options)
        assert_same_bits(got["out"][:, :token], want["out"][:, :token])
        for name in ("q", "k", "v"):
            assert_same_bits(
                got[name][:, :token], want[name][:, :token], f"{name} for {value}"
            )
    assert (got["out"][:, token] != want["out"][:, token]).any()


@pytest.mark.parametrize("form", CAUSAL_FORMS)
@pytest.mark.parametrize("token", [CHUNK - 1, CHUNK + 1, T - 1])
def test_no_gradient_is_unwound_from_those_of_earlier_outputs(form, token):
    """Slopes of 1e20 before a token leave its gradients alone: none is subtracted."""
    qkv, cotangents, _ = arrays(dtype=np.float32)
    chunk = {"chunk_size": CHUNK} if form == "chunked" else {}
    early = jnp.arange(T)[:, None, None] < token
    found = [
        attend(
            form,
            qkv,
            [jnp.where(early, slope, cotangents[0]), *cotangents[1:]],
            mask=masks.causal(),
            **chunk,
        )
        for slope in (0.0, 1e20)
    ]
    for name in ("q", "k", "v"):
        got, want = (each[name][:, token:] for each in found)
        assert_same_bits(got, want, name)
        assert np.any(want), name


@pytest.mark.parametrize("form", CAUSAL_FORMS)
def test_no_segment_moves_another(form):
    """Sums of a segment that overflow leave the next one alone, to the bit."""
    ids = np.array([[1, 1, 1, 1, 0, 0, 0], [3, 3, 5, 5, 5, 8, 8]])
    hit, other = np.array([1, 3]), ids != np.array([[1], [5]])
    qkv, cotangents, _ = arrays((2,), dtype=np.float32)
    chunk = {"chunk_size": CHUNK} if form == "chunked" else {}
    options = {"mask": masks.causal() & masks.segments(jnp.asarray(ids)), **chunk}
    want = attend(form, qkv, cotangents, **options)
    for value in (-9.0, 1e30):
        changed = [x.at[jnp.arange(2), hit].set(value) for x in qkv]
        got = attend(form, changed, cotangents, **options)
        for name in ("out", "q", "k", "v"):
            assert_same_bits(
                np.asarray(got[name])[other],
                np.asarray(want[name])[other],
                f"{name} for {value}",
            )
        for name in ("kv", "z") if form in STATEFUL else ():
            assert_same_bits(got[name], want[name], name)


def test_reduces_to_the_mean_of_the_visible_values_when_all_keys_are_alike():
    (q, k, v), *_ = arrays(dtype=np.float32)
    alike = jnp.broadcast_to(k[:, :1], k.shape)
    everyone = ops.linear_attention(q, alike, v)
    past = ops.linear_attention(q, alike, v, mask=masks.causal())
    for i in range(T):
        mean = np.asarray(v).mean(1)
        assert_close(everyone[:, i], np.repeat(mean, H // G, 1), 1e-6)
        mean = np.asarray(v)[:, : i + 1].mean(1)
        assert_close(past[:, i], np.repeat(mean, H // G, 1), 1e-6)


def test_chunked_reduces_to_the_scan_in_chunks_of_1_and_to_one_chunk():
    (q, k, v), *_ = arrays(dtype=np.float32)
    token_by_token = ops.linear_attention_scan(q, k, v)
    for chunk_size in (1, T, 100):
        out, _ = ops.linear_attention_chunked(q, k, v, chunk_size=chunk_size)
        assert_close(out, token_by_token, 1e-6)


def test_padded_keys_equal_keys_cut_off():
    (q, k, v), *_ = arrays(s=S, dtype=np.float32)
    real = jnp.arange(S)[None] < 3
    padded = ops.linear_attention(q, k, v, mask=masks.padding(real))
    assert_close(padded, ops.linear_attention(q, k[:, :3], v[:, :3]), 1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_are_kept_in_float32(dtype):
    """8,192 features of 31: their sum leaves float16 and stalls in bfloat16."""
    n = 8192
    q = k = jnp.full((1, n, 1, 1), 30, dtype)
    v = jnp.asarray(np.random.default_rng(0).normal(size=(1, n, 1, 2)) + 1, dtype)
    means = np.asarray(v).astype(np.float64).cumsum(1)
    means = means / np.arange(1, n + 1)[:, None, None]
    out, state = ops.linear_attention_chunked(q, k, v)
    assert_close(out, means, 4e-3)
    assert_close(ops.linear_attention(q, k, v), means[:, -1:].repeat(n, 1), 4e-3)
    chex.assert_type(list(state), jnp.float32)
    np.testing.assert_allclose(state.k, 31 * n, rtol=1e-6)


@pytest.mark.parametrize("form", ["attention", *CAUSAL_FORMS])
def test_the_output_does_not_depend_on_the_scale_of_the_features(form):
    """Powers of 2 are exact, so equal to the bit, down to where sums are tiny."""
    (q, k, v), *_ = arrays((1,), dtype=np.float32)
    q, k = abs(q) + 0.1, abs(k) + 0.1
    options = {"mask": masks.causal(), "feature_map": jnp.abs}

    def output(q, k, **options):
        found = FORMS[form](q, k, v, **options)
        return found[0] if form in STATEFUL else found

    want = output(q, k, **options)
    for scale in (2.0**-40, 2.0**40):
        assert_same_bits(output(q, k * scale, **options), want)
        assert_same_bits(output(q * scale, k * scale, **options), want)
    unit = output(q, k, eps=1e-6, **options)
    assert_close(unit, want, 1e-5)


@pytest.mark.parametrize(
    ("form", "eps"), [*((form, None) for form in CAUSAL_FORMS), ("scan", 1e-6)]
)
def test_features_that_vanish_stay_finite(form, eps):
    """phi(-1e4) is 0: the denominator too, in every row but the second's."""
    qkv, cotangents, _ = arrays((1,), dtype=np.float32)
    q, k, v = qkv
    k = jnp.full_like(k, -1e4).at[:, 1].set(0.0)
    chunk = {"chunk_size": CHUNK} if form == "chunked" else {}
    got = attend(form, (q, k, v), cotangents, mask=masks.causal(), eps=eps, **chunk)
    chex.assert_tree_all_finite(got)
    assert (got["out"][:, 0] == 0).all()
    alone = np.repeat(np.asarray(v)[:, 1:2], H // G, 2)
    assert_close(got["out"][:, 1:], alone.repeat(T - 1, 1), 1e-5)


def test_elu_plus_one_in_bfloat16_stays_within_1_percent_of_exp():
    x = jnp.linspace(-20, 0, 401, dtype=jnp.bfloat16)
    got = np.asarray(ops.elu_plus_one(x), np.float64)
    exact = np.exp(np.asarray(x).astype(np.float64))
    np.testing.assert_allclose(got, exact, rtol=0.01)
    assert (got > 0).all()


@pytest.mark.parametrize(
    ("dtype", "output"),
    [("float16", "float32"), ("bfloat16", "float32"), ("float32", "float32")],
)
def test_elu_plus_one_and_its_slope(dtype, output):
    """x + 1 above 0, exp(x) below, slope 1 at 0, at least float32, no overflow."""
    x = jnp.asarray([-1e4, -80, -17.5, -3, -0.5, 0, 0.5, 3, 90, 1e4], dtype)
    got = ops.elu_plus_one(x)
    chex.assert_type(got, output)
    exact = np.asarray(x).astype(np.float64)
    np.testing.assert_allclose(got, oracles.elu_plus_one.phi(exact), rtol=1e-5)
    slope = jax.vmap(jax.grad(ops.elu_plus_one))(x)
    want = oracles.elu_plus_one.pullback(exact, np.ones_like(exact))
    half = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-5}[dtype]
    np.testing.assert_allclose(slope.astype(float), want, rtol=half, atol=1e-7)
    assert slope[5] == 1


def test_elu_plus_one_keeps_float64(x64):
    x = np.linspace(-30, 5, 71)
    got = ops.elu_plus_one(jnp.asarray(x))
    chex.assert_type(got, jnp.float64)
    np.testing.assert_allclose(got, oracles.elu_plus_one.phi(x), rtol=1e-14)


@pytest.mark.parametrize(
    ("inputs", "output"), [("bfloat16", "float32"), ("float32", "bfloat16")]
)
@pytest.mark.parametrize("form", FORMS)
def test_the_output_has_the_dtype_of_v(form, inputs, output):
    (q, k, v), *_ = arrays(dtype=inputs)
    found = jax.eval_shape(FORMS[form], q, k, v.astype(output))
    out = found[0] if form in STATEFUL else found
    assert out.dtype == output
    if form in STATEFUL:
        assert found[1].kv.dtype == found[1].k.dtype == jnp.float32


def test_debug_nans_finds_nothing():
    qkv, cotangents, _ = arrays(dtype=np.float32)
    for form in ("attention", *CAUSAL_FORMS):
        mask = HIDDEN[form]
        for value in (np.nan, np.inf, 1e30):
            poisoned = [jnp.where(REAL[..., None, None], x, value) for x in qkv]
            with jax.debug_nans(True):
                got = attend(form, poisoned, cotangents, mask=mask())
            chex.assert_tree_all_finite(got)


@pytest.mark.parametrize("form", CAUSAL_FORMS)
def test_jit_equals_eager(form):
    (q, k, v), *_ = arrays((2,), t=4, dtype=np.float32)
    mask = masks.causal() & masks.padding(jnp.asarray(REAL[1:3, :4]))
    got = FORMS[form](q, k, v, mask=mask)
    with jax.disable_jit():
        want = FORMS[form](q, k, v, mask=mask)
    jax.tree.map(lambda x, y: assert_close(x, y, 1e-6), got, want)


def test_vmap_equals_a_loop():
    qkv, cotangents, _ = arrays(dtype=np.float32)
    mask = HIDDEN["chunked segments"]
    found = functools.partial(attend, "chunked")
    got = jax.vmap(lambda *x: found(*x[:2], mask=x[2]))(qkv, cotangents, mask())
    one = jax.jit(lambda *x: found(*x[:2], mask=x[2]))
    for b in range(B):
        row = jax.tree.map(lambda x, b=b: x[b], (qkv, cotangents, mask()))
        for name, x in one(*row).items():
            assert_close(got[name][b], x, 1e-6, name)


@pytest.mark.parametrize("form", FORMS)
def test_the_second_call_traces_nothing(form):
    traces = []

    def counted(x):
        traces.append(x.shape)
        return ops.elu_plus_one(x)

    def call(seed):
        (q, k, v), *_ = arrays(dtype=np.float32, seed=seed)
        real = jnp.asarray(REAL ^ (seed > 0))
        mask = masks.causal() & masks.padding(real) & masks.segments(jnp.asarray(RUNS))
        FORMS[form](q, k, v, mask=mask, feature_map=counted, eps=1e-6 * (seed + 1))
        return len(traces)

    assert call(0) == call(1) > 0


def test_the_second_step_traces_nothing():
    traces = []

    def counted(x):
        traces.append(x.shape)
        return ops.elu_plus_one(x)

    (q, k, v), _, state = arrays(dtype=np.float32)
    counts = []
    for i in range(3):
        token = (x[:, i] for x in (q, k, v))
        valid = jnp.asarray(REAL[:, i])
        _, state = ops.linear_attention_step(
            *token, state, valid=valid, feature_map=counted
        )
        counts.append(len(traces))
    assert counts[0] == counts[1] == counts[2] > 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("mask", "name"),
    [
        (masks.window(2), "window"),
        (masks.causal() & masks.window(100), "window"),
        (masks.dense(jnp.ones((1, T, T), bool)), "dense"),
        (masks.causal() & masks.dense(jnp.ones((1, 1, 1), bool)), "dense"),
    ],
)
def test_masks_that_a_sum_cannot_honour_raise(form, mask, name, plain_errors):
    (q, k, v), *_ = arrays(dtype=np.float32)
    for call in (FORMS[form], jax.jit(FORMS[form])):
        with pytest.raises(ops.UnsupportedMaskError) as raised:
            call(q, k, v, mask=mask)
    message = str(raised.value)
    for part in ("mask: ", f"cannot honour {name}", "sum over keys", "softmax_attent"):
        assert part in message
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("form", CAUSAL_FORMS)
@pytest.mark.parametrize(
    "mask",
    [
        masks.padding(jnp.ones((B, T), bool)),
        masks.segments(jnp.asarray(RUNS)),
        masks.prefix(3),
        masks.prefix(3) & masks.causal(),
        masks.causal().offset(1),
        masks.causal() & masks.segments(jnp.asarray(RUNS), jnp.asarray(RUNS)),
    ],
    ids=["padding", "segments", "prefix", "prefix, causal", "offset", "cross segments"],
)
def test_a_form_that_is_causal_by_nature_refuses_other_masks(form, mask, plain_errors):
    (q, k, v), *_ = arrays(dtype=np.float32)
    with pytest.raises(ops.UnsupportedMaskError, match=rf"mask: .*{form}.*causal"):
        FORMS[form](q, k, v, mask=mask)


@pytest.mark.parametrize("form", CAUSAL_FORMS)
def test_a_form_that_is_causal_by_nature_refuses_other_lengths(form, plain_errors):
    (q, k, v), *_ = arrays(s=S, dtype=np.float32)
    for mask in (None, masks.causal()):
        with pytest.raises(ValueError, match=r"t = 7 .*s = 6"):
            FORMS[form](q, k, v, mask=mask)


def test_a_step_refuses_what_it_cannot_know(plain_errors):
    (q, k, v), _, state = arrays(t=1, dtype=np.float32)
    token = [x[:, 0] for x in (q, k, v)]
    for mask in (
        masks.full() & masks.padding(jnp.ones((B, 1), bool)),
        masks.causal() & masks.segments(jnp.zeros((B, 1), int)),
        masks.window(3),
        masks.prefix(2),
    ):
        with pytest.raises(ops.UnsupportedMaskError, match="mask: "):
            ops.linear_attention_step(*token, state, mask=mask)
    with pytest.raises(TypeError, match=r"valid: got dtype int32.*True = real"):
        ops.linear_attention_step(*token, state, valid=jnp.ones(B, jnp.int32))
    alone, _ = ops.linear_attention_step(*token, state)
    causal, _ = ops.linear_attention_step(*token, state, mask=masks.causal())
    assert_same_bits(causal, alone)


@pytest.mark.parametrize("form", FORMS)
def test_an_id_in_two_runs_raises(form, plain_errors):
    (q, k, v), *_ = arrays(dtype=np.float32)
    ids = jnp.asarray(IDS).at[0, -1].set(4)
    with pytest.raises(ValueError, match=r"segments.*id 4 .*run"):
        FORMS[form](q, k, v, mask=masks.causal() & masks.segments(ids))
    real = jnp.asarray(REAL).at[0, -1].set(False)
    padded = masks.padding(real, real)
    FORMS[form](q, k, v, mask=masks.causal() & masks.segments(ids) & padded)


@pytest.mark.parametrize("form", STATEFUL)
def test_a_state_and_segments_raise(form, plain_errors):
    (q, k, v), _, state = arrays(dtype=np.float32)
    mask = masks.causal() & masks.segments(jnp.asarray(RUNS))
    with pytest.raises(ValueError, match=r"initial_state: .*segments"):
        FORMS[form](q, k, v, mask=mask, initial_state=state)


@pytest.mark.parametrize("form", STATEFUL)
def test_a_state_of_another_shape_raises_with_numbers(form, plain_errors):
    (q, k, v), _, (kv, z) = arrays(dtype=np.float32)
    for wrong in (
        ops.LinearState(kv[:, :, :2], z[:, :, :2]),
        ops.LinearState(kv[..., :1], z),
        ops.LinearState(kv[:1], z[:1]),
        ops.LinearState(kv[:, :1], z[:, :1]),
    ):
        with pytest.raises(ValueError, match=r"initial_state.*5, 2, 3, 2") as raised:
            FORMS[form](q, k, v, initial_state=wrong)
        assert str(wrong.kv.shape) in str(raised.value)
        with pytest.raises(ValueError, match="state"):
            ops.linear_attention_step(*(x[:, 0] for x in (q, k, v)), wrong)


@pytest.mark.parametrize("chunk_size", [0, -1, 2.5])
def test_a_chunk_holds_at_least_one_token(chunk_size, plain_errors):
    (q, k, v), *_ = arrays(dtype=np.float32)
    with pytest.raises(ValueError, match=rf"chunk_size: got {chunk_size}.*>= 1"):
        ops.linear_attention_chunked(q, k, v, chunk_size=chunk_size)


@pytest.mark.parametrize("form", FORMS)
def test_shapes_that_do_not_fit_raise_with_numbers(form, plain_errors):
    for shapes, message in (
        (((5, 4, 3), (5, 2, 8), (5, 2, 2)), r"k: got 8 features .*q's 3"),
        (((5, 3, 3), (5, 2, 3), (5, 2, 2)), r"k: got 2 heads for q's 3"),
        (((5, 2, 3), (5, 2, 3), (6, 2, 2)), r"v: got shape \(6, 2, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            FORMS[form](*(jnp.ones(shape) for shape in shapes))
    ones = jnp.ones((5, 2, 3))
    with pytest.raises(TypeError, match=r"mask: got .*bool.*padding\(keys\)"):
        FORMS[form](ones, ones, ones, mask=jnp.ones((5, 5), bool))
    with pytest.raises(ValueError, match=r"padding\(keys\).*\(4,\).*5"):
        FORMS[form](
            ones, ones, ones, mask=masks.causal() & masks.padding(jnp.ones(4, bool))
        )


@pytest.mark.parametrize("form", FORMS)
def test_a_query_of_any_size_leaves_the_gradients_of_others_finite(form):
    """Its similarities to the keys overflow, and must not meet a gradient of 0."""
    (q, k, v), *_ = arrays((1,), dtype=np.float32)
    q = q.at[:, 4].set(3e38)
    run = functools.partial(FORMS[form], mask=masks.causal())
    out, pull = jax.vjp(lambda k, v: first_of(run(q, k, v)), k, v)
    cotangent = jnp.ones(out.shape).at[:, 4].set(0)
    assert all(np.isfinite(g).all() for g in pull(cotangent))


def first_of(result):
    """The output, also of a form that returns a state with it."""
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize("rows", [1, 2 * H * CHUNK])
def test_blocks_of_any_size_equal_the_oracle(x64, monkeypatch, rows):
    """Three blocks an example, or two: elsewhere here a block holds all examples."""
    monkeypatch.setattr(linear_chunked, "ROWS_ON_CPU", rows)
    jax.clear_caches()
    real = jnp.asarray(REAL)
    padded = masks.causal() & masks.padding(real, real)
    rules = [oracles.causal(), oracles.padding(REAL, REAL)]
    known = {"counted": REAL, "answered": REAL, "with_state": True}
    check("chunked", arrays(), 1e-12, padded, rules, **known)
    check(
        "chunked",
        arrays(),
        1e-12,
        padded & masks.segments(jnp.asarray(IDS)),
        [*rules, oracles.segments(IDS)],
        counted=LAST,
    )
    jax.clear_caches()


def test_a_feature_map_is_given_the_axes_it_was_promised():
    w = jnp.asarray(np.random.default_rng(0).random((H, D, 2)), jnp.float32)
    (q, k, v), *_ = arrays(h=H, g=H, dtype=np.float32)

    def projected(x):
        return jax.nn.softplus(jnp.einsum("bthd,hdp->bthp", x, w))

    options = {"mask": masks.causal(), "feature_map": projected}
    got = ops.linear_attention(q, k, v, **options)
    assert_close(got, ops.linear_attention_scan(q, k, v, **options), 1e-6)


@pytest.mark.parametrize("sizes", [{"e": 0}, {"d": 0}])
def test_heads_of_no_width_equal_the_scan(sizes):
    (q, k, v), *_ = arrays(dtype=np.float32, **sizes)
    got = ops.linear_attention(q, k, v, mask=masks.causal())
    want = ops.linear_attention_scan(q, k, v, mask=masks.causal())
    assert got.shape == want.shape
    assert (got == want).all()


@pytest.mark.parametrize("form", STATEFUL)
def test_a_plain_tuple_is_no_state(form, plain_errors):
    (q, k, v), _, state = arrays(dtype=np.float32)
    with pytest.raises(TypeError, match=r"initial_state: got tuple.*LinearState"):
        FORMS[form](q, k, v, initial_state=tuple(state))
