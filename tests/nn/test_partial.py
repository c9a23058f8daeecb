"""Attention from selected scores as a layer: what its options do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import models, nn
from attn_jax.ops import masks
from tests.models import cases
from tests.nn import oracle
from tests.nn.cases import (
    F32,
    LONGEST,
    SHORT,
    B,
    H,
    M,
    T,
    attention,
    mechanism,
    normal,
    numbers,
    placed,
)
from tests.nn.errors import assert_raises
from tests.ops import oracle_partial
from tests.ops.oracles import assert_close

F64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}
ROWS = np.stack([np.random.default_rng(i).permutation(LONGEST)[:3] for i in range(11)])
SHARED = (9, 0, 2, 5)
BOTH_WAYS = {
    "rows": {"selected": ROWS},
    "shared": {"selected": SHARED, "share_heads": False},
}


def layer(seed=0, **options):
    """A layer that sees whole sequences."""
    kind = mechanism("partial", causal=False, **options)
    return attention(mechanism=kind, seed=seed, use_bias=True)


ONE_WAY = {"selected": np.minimum(ROWS, np.arange(LONGEST)[:, None])}
NEAR = np.arange(T)[:, None] - np.arange(T)
NEAR = (NEAR >= 0) & (NEAR <= 2)


@pytest.mark.parametrize("kind", [*BOTH_WAYS, "causal"])
def test_a_layer_equals_its_oracle(kind, x64):
    """Selected keys past the end, in padding or out of sight count with their mean."""
    options = BOTH_WAYS.get(kind, ONE_WAY)
    made = mechanism("partial", causal=kind == "causal", **options)
    module = attention(mechanism=made, use_bias=True, **F64)
    params, x = numbers(module), normal(0, B, T, M, dtype=np.float64)
    real = np.arange(T) < np.array([[T], [4], [1]])
    sight = real[:, None, :, None] & real[:, None, None, :]
    rule = masks.window(2) if kind == "causal" else masks.full()
    sight = sight & NEAR if kind == "causal" else sight
    got = jax.jit(lambda x, real: module(x, mask=masks.padding(real, real) & rule))(
        x, real
    )
    core = params["mechanism"]
    q, k = oracle.queries_and_keys(core["query_key"], x, x, False, False)
    v = oracle.projected(params["value"], x)
    selected = np.asarray(options["selected"])
    y = oracle_partial.attention(
        q,
        k,
        v,
        selected[:T] if selected.ndim == 2 else selected,
        core["reconstruction"][:, :T, :T],
        core["offset"][:, :T, :T],
        core["mean"][:, :T],
        sight,
        np.zeros((B, T, H, v.shape[-1])),
    ).out
    want = np.einsum("bthe,hem->btm", y, params["output"]["kernel"])
    want = np.where(real[..., None], want + params["output"]["bias"], 0)
    assert_close(got, want, 1e-12)


@pytest.mark.parametrize("kind", BOTH_WAYS)
def test_positions_say_which_keys_are_selected(kind):
    """Padding anywhere, packed rows and explicit positions: rows of their own."""
    module = layer(**BOTH_WAYS[kind])
    rows = normal(1, B, SHORT, M)
    x, real = placed(rows, [[0, 1, 2, 3], [3, 4, 5, 6], [1, 2, 4, 5]], T)
    packed = np.concatenate([rows, rows[::-1, : T - SHORT]], axis=1)
    ids = np.repeat([[4, 1]], [SHORT, T - SHORT], axis=1)
    order = np.array([2, 0, 3, 1])

    def outputs(rows, x, real, packed):
        alone = module(rows)
        padded = module(x, mask=masks.padding(real, real))
        mask = masks.segments(jnp.asarray(np.broadcast_to(ids, (B, T))))
        places = jnp.broadcast_to(jnp.asarray(order), (B, SHORT))
        return (
            alone,
            padded,
            module(packed, mask=mask),
            module(rows[:, order], positions=places),
            module(rows[::-1, : T - SHORT]),
        )

    alone, padded, both, moved, rest = jax.jit(outputs)(rows, x, real, packed)
    assert_close(np.asarray(padded)[real].reshape(rows.shape), alone, F32, "padding")
    assert_close(both[:, :SHORT], alone, F32, "first segment")
    assert_close(both[:, SHORT:], rest, F32, "second segment")
    assert_close(moved, np.asarray(alone)[:, order], F32, "explicit positions")


def test_all_keys_selected_reduce_to_softmax():
    """As initialised: each key's logit is that of the nearest selected key."""
    kind = mechanism("partial", causal=False, selected=range(LONGEST))
    config = nn.AttentionConfig(d_model=M, num_heads=2, mechanism=kind)
    module = nn.Attention(config, rngs=nnx.Rngs(0))
    plain = nn.Attention(nn.AttentionConfig(d_model=M, num_heads=2), rngs=nnx.Rngs(0))

    def both(x):
        return [one(x, mask=masks.window(2, 1)) for one in (module, plain)]

    got, want = jax.jit(both)(normal(0, B, T, M))
    assert_close(got, want, F32)


@pytest.mark.parametrize("causal", [True, False])
def test_a_new_layer_takes_the_score_of_the_nearest_selected_key(causal):
    kind = mechanism("partial", causal=causal, rank=4)
    config = nn.AttentionConfig(d_model=M, num_heads=2, mechanism=kind)
    core = nn.Attention(config, rngs=nnx.Rngs(0)).mechanism
    chosen = np.broadcast_to(kind.chosen(), (LONGEST, 4))
    assert chosen[10].tolist() == [0, 3, 6, 10]
    assert chosen[2].tolist() == ([0, 0, 1, 2] if causal else [0, 3, 6, 10])
    found = np.asarray(core.reconstruction[...])
    assert found.shape == (1, LONGEST, LONGEST, 4)
    for i, j in np.ndindex(LONGEST, LONGEST):
        distance = np.abs(chosen[i] - j)
        want = np.arange(4) == distance.argmin()
        want = want & (j <= i if causal else True)
        np.testing.assert_array_equal(found[0, i, j], want)
    assert not np.any(core.offset[...])
    assert not np.any(core.mean[...])


def test_a_map_that_is_not_trained_is_state_but_no_parameter():
    module = attention(mechanism=mechanism("partial", trainable=False, causal=False))
    _, params, rest = nnx.split(module, nnx.Param, ...)
    assert nnx.to_pure_dict(params)["mechanism"].keys() == {"query_key"}
    kept = nnx.to_pure_dict(rest)["mechanism"]
    assert kept.keys() == {"reconstruction", "offset", "mean"}
    assert not jnp.issubdtype(kept["reconstruction"].dtype, jnp.integer)


def test_only_selected_keys_get_a_gradient_through_the_scores():
    """Keys themselves, with values held apart."""
    module = layer(selected=SHARED)
    x = jnp.asarray(normal(0, B, LONGEST, M))

    def loss(keys):
        v = module.value(x)
        where = {"positions": None, "seen": None}
        y = module.mechanism.attend(x, keys, v, mask=masks.full(), **where)
        return jnp.sum(jnp.sin(y))

    slope = jax.jit(jax.grad(loss))(module.mechanism.keys(x, None))
    moved = np.any(np.asarray(slope) != 0, axis=(0, 2, 3))
    assert np.flatnonzero(moved).tolist() == sorted(SHARED)


MAP = ("reconstruction", "offset", "mean")


def encoder(share_layers, scan_layers=True):
    kind = nn.Partial(causal=False, share_layers=share_layers)
    return cases.encoder(mechanism=kind, scan_layers=scan_layers)


def blocks_with(params, change, at=()):
    """A copy of a scanned stack's blocks, `change` made to each leaf: (is map?, x)."""
    return {
        name: blocks_with(x, change, (*at, name))
        if isinstance(x, dict)
        else change(name in MAP and at[-1] == "mechanism", x)
        for name, x in params.items()
    }


def with_params(model, params):
    graph, state = nnx.split(model)
    nnx.replace_by_pure_dict(state, params)
    return graph, state, jnp.asarray(cases.ids(0, B, T))


def outputs(model, params):
    """Of a model with these parameters."""
    graph, state, tokens = with_params(model, params)
    return jax.jit(lambda state: nnx.merge(graph, state)(tokens))(state)


def run(model, params):
    """Outputs and gradients of a model with these parameters."""
    graph, state, tokens = with_params(model, params)

    def loss(state):
        x = nnx.merge(graph, state)(tokens)
        return jnp.sum(jnp.sin(x)), x

    slopes, x = jax.jit(jax.grad(loss, has_aux=True))(state)
    return x, nnx.to_pure_dict(slopes)


def test_layers_that_share_a_map_equal_layers_with_the_same_one():
    """Its gradient is the sum of theirs; unrolled it is there once, too."""
    one, n = encoder(True), cases.LAYERS
    params = nnx.to_pure_dict(nnx.state(one))
    assert len(jax.tree.leaves(nnx.state(one, nn.Shared))) == len(MAP)
    want, slopes = run(one, params)

    def given(change):
        stack = {"blocks": blocks_with(params["stack"]["blocks"], change)}
        return params | {"stack": params["stack"] | stack}

    copies = given(lambda mapped, x: jnp.stack([x] * n) if mapped else x)
    got, theirs = run(encoder(False), copies)
    assert_close(got, want, F32, "output")
    core, cores = (
        x["stack"]["blocks"]["attention"]["mechanism"] for x in (slopes, theirs)
    )
    for name in MAP:
        assert_close(core[name], np.sum(cores[name], axis=0), F32, name)

    unrolled = encoder(True, scan_layers=False)
    assert len(jax.tree.leaves(nnx.state(unrolled, nn.Shared))) == len(MAP)
    layers = {}
    for i in range(n):
        layers[i] = given(lambda mapped, x, i=i: x if mapped else x[i])
        layers[i] = layers[i]["stack"]["blocks"]
        if i:
            for name in MAP:
                layers[i]["attention"]["mechanism"].pop(name)
    stack = params["stack"] | {"blocks": layers}
    assert_close(outputs(unrolled, params | {"stack": stack}), want, F32, "unrolled")


@pytest.mark.parametrize("scan_layers", [True, False])
def test_a_shared_map_is_counted_once(scan_layers):
    one, each = (encoder(share, scan_layers).config for share in (True, False))
    once = LONGEST * (LONGEST * 8 + LONGEST + 8)
    more = models.count_parameters(each) - models.count_parameters(one)
    assert more == (cases.LAYERS - 1) * once


def test_a_decoder_whose_layers_share_a_map_decodes():
    model = cases.decoder(mechanism=nn.Partial(share_layers=True))
    tokens = jnp.asarray(cases.ids(0, B, T))

    def both(tokens):
        first, cache = model.decode(tokens[:, :4], model.init_cache(B, T))
        rest, _ = model.decode(tokens[:, 4:], model.take(cache, jnp.arange(B)))
        return model(tokens), jnp.concatenate([first, rest], axis=1)

    want, got = jax.jit(both)(tokens)
    assert_close(got, want, F32)


def chosen(n=LONGEST, **options):
    return lambda: nn.Partial(max_length=n, **options).chosen()


ERRORS = {
    "more keys than positions": (
        ValueError,
        chosen(rank=12),
        "rank: got 12; expected at most max_length = 11",
    ),
    "a rank beside a selection of another": (
        ValueError,
        chosen(rank=2, selected=ROWS),
        "rank: got 2 beside 3 selected keys a query",
        "leave rank out",
    ),
    "a later key where causal": (
        ValueError,
        chosen(n=3, selected=[[0, 0], [0, 1], [1, 3]]),
        "selected: got [1, 3] for position 2; expected positions from 0 to 2, its own",
        "set causal=False",
    ),
    "shared keys where causal": (
        ValueError,
        chosen(selected=SHARED),
        "selected: got [9, 0, 2, 5] for position 0",
        "set causal=False",
    ),
    "a key past the end": (
        ValueError,
        chosen(n=9, selected=SHARED, causal=False),
        "selected: got [9, 0, 2, 5] for position 0; expected positions from 0 to 8",
    ),
    "rows of another length": (
        ValueError,
        chosen(n=12, selected=ROWS, causal=False),
        "selected: got 11 rows for max_length = 12",
        "Int[r]",
    ),
    "no keys": (
        ValueError,
        chosen(selected=np.zeros((11, 0), int)),
        "r: got 0; expected an int >= 1",
    ),
    "keys that are no integers": (
        TypeError,
        chosen(selected=[0.5]),
        "selected: got dtype float64 and shape (1,); expected integers",
    ),
    "a fixed map for all layers": (
        ValueError,
        chosen(share_layers=True, trainable=False),
        "share_layers: got True with trainable=False",
    ),
    "decoding without causality": (
        ValueError,
        lambda: layer().init_cache(B, T),
        "mechanism: got Partial, which cannot decode with a cache: without causal",
        "write with full passes",
    ),
    "more tokens than positions": (
        ValueError,
        lambda: layer()(jnp.ones((1, 12, M))),
        "x: got 12 tokens; expected at most max_length = 11",
    ),
    "a member of a mixture": (
        ValueError,
        lambda: nn.MixtureSynthesizer(members=(nn.Partial(),)),
        "members: got Partial, which has no logits to mix",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_does_not_fit_raises(case, plain_errors):
    kind, call, *parts = ERRORS[case]
    assert_raises(kind, call, *parts)


def test_a_selection_may_be_an_array_and_is_kept_as_tuples():
    made = nn.Partial(selected=jnp.asarray(ROWS), causal=False)
    assert made.selected == tuple(map(tuple, ROWS.tolist()))
    assert made == nn.Partial(selected=ROWS.tolist(), causal=False)
    hash(made)
    np.testing.assert_array_equal(made.for_length(LONGEST).chosen(), ROWS)
