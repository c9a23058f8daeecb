"""Synthesizers against the paper's formulas, written out in float64."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax import ops
from attn_jax.ops import masks, synthesizer_factorized
from attn_jax.ops._rows import BLOCK
from attn_jax.ops.softmax import dot_product_logits
from tests.ops import oracle_synthesizer as oracle
from tests.ops import oracles
from tests.ops.oracles import assert_close, assert_same_bits

B, T, S, N, H, G, E, M, D, R, NA, NB = 2, 5, 7, 12, 6, 3, 11, 13, 8, 2, 3, 4


def normal(*shapes, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes]


def wide(*xs):
    return [np.asarray(x).astype(np.float64) for x in xs]


@functools.partial(jax.jit, static_argnames="op")
def vjp(op, cotangent, *inputs, **options):
    """The output of an op and the gradients of its inputs."""
    out, pullback = jax.vjp(lambda *xs: op(*xs, **options), *inputs)
    return out, *pullback(cotangent.astype(out.dtype))


def check_logits(op, formula, inputs, ceiling=1e-12):
    """Outputs and gradients of a function that makes logits."""
    xs = wide(*inputs)
    want = formula(*xs)
    (cotangent,) = normal(want.shape, seed=7)
    out, *slopes = vjp(op, cotangent, *inputs)
    chex.assert_type(out, jnp.promote_types(inputs[0].dtype, jnp.float32))
    assert_close(out, want, ceiling)
    for k, slope in enumerate(slopes):
        difference = oracles.finite_differences(
            lambda x, k=k: np.sum(formula(*xs[:k], x, *xs[k + 1 :]) * cotangent), xs[k]
        )
        assert_close(slope, difference, max(ceiling, 1e-8), f"input {k}")


# ------------------------------------------------------------------------------ logits

DENSE = {"x": (T, M), "w1": (2, M, 3), "b1": (2, 3), "w2": (2, 3, N), "b2": (2, N)}


@pytest.mark.parametrize("lead", [(), (2, 1)], ids=str)
def test_dense_logits_equal_the_oracle(x64, lead):
    x, *layers = normal(*DENSE.values())
    (x,) = normal((*lead, T, M))
    check_logits(ops.dense_synthesizer_logits, oracle.dense_logits, (x, *layers))


def test_dense_logits_without_biases(x64):
    x, w1, b1, w2, b2 = normal(*DENSE.values())
    got = ops.dense_synthesizer_logits(x, w1, None, w2, None)
    assert_close(got, oracle.dense_logits(*wide(x, w1, 0 * b1, w2, 0 * b2)), 1e-12)


def test_dense_logits_reduce_to_b2_when_w2_is_0():
    x, w1, b1, w2, b2 = normal(*DENSE.values(), dtype=np.float32)
    got = ops.dense_synthesizer_logits(x, w1, b1, 0 * w2, b2)
    assert_same_bits(got, jnp.broadcast_to(b2[:, None], (2, T, N)))


@pytest.mark.parametrize("shapes", [((2, 3, T, 3), (2, 3, T, 4)), ((T, 1, 2),) * 2])
def test_factorized_dense_logits_equal_the_oracle(x64, shapes):
    inputs = normal(*shapes)
    check_logits(ops.factorized_dense_logits, oracle.factorized_dense_logits, inputs)


def test_factorized_dense_logits_reduce_to_a_when_b_is_a_single_1():
    (a,) = normal((H, T, NA), dtype=np.float32)
    assert_same_bits(ops.factorized_dense_logits(a, jnp.ones((H, T, 1))), a)


def test_factors_of_equal_width_give_as_many_logits_as_products():
    """Tiling both would give 16 distinct ones of 256."""
    a, b = normal((1, 1, 16), (1, 1, 16), dtype=np.float32)
    assert len(np.unique(ops.factorized_dense_logits(a, b))) == 256


def test_factorized_random_logits_equal_the_oracle(x64):
    inputs = normal((3, 5, R), (3, 7, R))
    check_logits(ops.factorized_random_logits, oracle.factorized_random_logits, inputs)


def test_factorized_random_logits_reduce_to_0_when_r1_is_0():
    r1, r2 = normal((H, N, R), (H, N, R), dtype=np.float32)
    assert (ops.factorized_random_logits(0 * r1, r2) == 0).all()
    assert (ops.factorized_random_logits(r1, r2) != 0).all()


def test_mixture_equals_the_oracle_and_broadcasts_batch_axes(x64):
    inputs = normal((3, 2, 5), (2, 1, 3, 2, 5), (1, 2, 3, 2, 5), (3, 3))
    check_logits(
        lambda *xs: ops.mix_logits(xs[:-1], xs[-1]),
        lambda *xs: oracle.mixture(xs[:-1], xs[-1]),
        inputs,
    )


def test_mixture_reduces_to_one_of_its_members():
    members = normal((H, T, N), (H, T, N), dtype=np.float32)
    alphas = jnp.asarray([[0.0, 1.0]] * H)
    assert_same_bits(ops.mix_logits(members, alphas), members[1])


@pytest.mark.parametrize("alone", [0, 1])
def test_random_mixed_with_vanilla_reduces_to_either_to_the_bit(alone):
    """Alphas (1, 0) are random attention, (0, 1) dot products: through the softmax."""
    d = 5
    logits, q, k, v = normal(
        (H, N, N), (B, S, H, d), (B, S, G, d), (B, S, G, E), dtype=np.float32
    )
    members = logits[:, :S, :S], dot_product_logits(q, k)
    alphas = jnp.asarray([[1.0 - alone, alone]] * H)
    mixed = ops.mix_logits(members, alphas)
    assert_same_bits(mixed, jnp.broadcast_to(members[alone], mixed.shape))
    mask = masks.causal()
    got = ops.synthesizer_attention(mixed, v, mask=mask)
    if alone:
        want = ops.softmax_attention(q, k, v, mask=mask, implementation="dense")
    else:
        want = ops.synthesizer_attention(logits[:, :S], v, mask=mask)
    assert_same_bits(got, want)


def test_rows_of_factorized_random_logits_differ():
    """A sum that loses the position of the query would give one row for all."""
    r1, r2 = normal((H, N, R), (H, N, R), dtype=np.float32)
    logits = ops.factorized_random_logits(r1, r2)
    for head in range(H):
        assert len(np.unique(logits[head], axis=0)) == N


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_logits_are_computed_in_float32(dtype):
    shapes = [*DENSE.values(), (H, T, NA), (H, T, NB), (H, T, R), (H, N, R)]
    x, w1, b1, w2, b2, a, b, r1, r2 = normal(*shapes, dtype=dtype)
    alphas = jnp.asarray([[0.25, 0.75]] * H, dtype)
    dense = (x, w1, b1, w2, b2)
    for got, want in (
        (ops.dense_synthesizer_logits(*dense), oracle.dense_logits(*wide(*dense))),
        (
            ops.factorized_dense_logits(a, b),
            oracle.factorized_dense_logits(*wide(a, b)),
        ),
        (
            ops.factorized_random_logits(r1, r2),
            oracle.factorized_random_logits(*wide(r1, r2)),
        ),
        (
            ops.mix_logits([a, -a], alphas),
            oracle.mixture(wide(a, -a), *wide(alphas)),
        ),
    ):
        chex.assert_type(got, jnp.float32)
        assert_close(got, want, 1e-6)


# --------------------------------------------------------------------------- attention

RNG = np.random.default_rng(1)
KEYS, QUERIES = RNG.random((B, S)) < 0.6, RNG.random((B, T)) < 0.6
TABLE = RNG.random((B, H, T, S)) < 0.5
START = np.array([-2, 1])

MASKS = {
    "none": (lambda: None, []),
    "causal": (lambda: masks.causal().offset(2), [oracles.causal(2)]),
    "causal, an offset each": (
        lambda: masks.causal().offset(jnp.asarray(START)),
        [oracles.causal(START)],
    ),
    "padding": (
        lambda: masks.padding(jnp.asarray(KEYS), jnp.asarray(QUERIES)),
        [oracles.padding(KEYS, QUERIES)],
    ),
    "behind every key": (lambda: masks.window(1).offset(4), [oracles.window(1, 0, 4)]),
    "dense": (lambda: masks.dense(jnp.asarray(TABLE)), [oracles.dense(TABLE)]),
}


def sight(name, t=T, s=S, h=H):
    return oracles.allowed(MASKS[name][1], B, h, t, s)


def check_attention(inputs, cotangent, mask, allowed, ceiling):
    """synthesizer_attention(logits, v): output and both gradients."""
    got = vjp(ops.synthesizer_attention, cotangent, *inputs, mask=mask)
    want = oracle.attention(*wide(*inputs), allowed, *wide(cotangent))
    for name, x, y in zip(("out", "logits", "v"), got, want, strict=True):
        assert_close(x, y, ceiling, name)
    chex.assert_type([got[0], got[2]], inputs[1].dtype)


@pytest.mark.parametrize(
    ("name", "lead"),
    [
        *((name, (B,)) for name in MASKS),
        ("causal", ()),
        ("padding", ()),
        ("dense", (1,)),
    ],
    ids=str,
)
def test_attention_equals_the_oracle_under_every_mask(x64, name, lead):
    """Logits longer than v, of their own for each example or shared by all."""
    logits, v, cotangent = normal((*lead, H, T, N), (B, S, G, E), (B, T, H, E))
    check_attention((logits, v), cotangent, MASKS[name][0](), sight(name), 1e-12)


@pytest.mark.parametrize(
    ("lead", "h", "g", "e"),
    [((), 3, 3, 1), ((2, 3), 4, 1, 4), ((1,), 8, 8, 80), ((1,), 8, 2, 5)],
    ids=str,
)
def test_attention_equals_the_oracle_for_every_shape(x64, lead, h, g, e):
    """Grouped heads, any width, sizes that collide (t = s = n = h = e)."""
    logits, v, cotangent = normal((*lead, h, 4, 4), (*lead, 4, g, e), (*lead, 4, h, e))
    allowed = oracles.allowed([oracles.causal()], 1, 1, 4, 4)[0]
    check_attention((logits, v), cotangent, masks.causal(), allowed, 1e-12)


@pytest.mark.parametrize(
    ("dtype", "ceiling"),
    [(jnp.float32, 1e-6), (jnp.bfloat16, 4e-3), (jnp.float16, 5e-4)],
)
def test_error_stays_below_the_ceiling_of_the_dtype(dtype, ceiling):
    shapes = (B, H, T, N), (B, S, G, E), (B, T, H, E)
    logits, v, cotangent = normal(*shapes, dtype=dtype)
    mask, allowed = MASKS["padding"][0](), sight("padding")
    check_attention((logits, v), cotangent, mask, allowed, ceiling)


def test_attention_reduces_to_the_mean_of_the_visible_values_when_logits_are_0():
    (v,) = normal((B, S, G, E), dtype=np.float32)
    out = ops.synthesizer_attention(jnp.zeros((H, S, N)), v, mask=masks.causal())
    for i in range(S):
        mean = np.asarray(v)[:, : i + 1].mean(1)
        assert_close(out[:, i], np.repeat(mean, H // G, 1), 1e-6)


def test_logits_are_not_scaled():
    """ln 3 against 0 weighs 3 to 1, whatever the width."""
    logits = jnp.log(jnp.asarray([[[3.0, 1.0]]]))
    v = jnp.asarray([4.0, 8.0])[:, None, None] * jnp.ones((1, 1, 16))
    out = ops.synthesizer_attention(logits, v)
    np.testing.assert_allclose(out, jnp.full((1, 1, 16), 5.0), rtol=1e-6)


@pytest.mark.parametrize("mask", [None, masks.causal()], ids=["full", "causal"])
def test_logits_without_batch_axes_are_softmaxed_once(mask):
    """In every function that takes them: no exponential has a batch axis."""
    logits, r, v = normal((H, S, N), (H, N, R), (B, S, G, E), dtype=np.float32)

    def batched(v):
        plain = ops.synthesizer_attention(logits, v, mask=mask)
        return plain + ops.factorized_random_attention(r, r, v, mask=mask)

    sizes = [x.size for name, x in results(jax.make_jaxpr(batched)(v)) if name == "exp"]
    assert sizes == [H * S * S] * 2


def results(jaxpr):
    """(primitive, what it makes) of every equation, those of inner jaxprs included."""
    for equation in jaxpr.eqns:
        yield from ((equation.primitive.name, x.aval) for x in equation.outvars)
        params = jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        )
        for inner in params:
            if hasattr(inner, "eqns"):
                yield from results(inner)


# -------------------------------------------------------------------------- factorized


def random_oracle(r1, r2, v, allowed, cotangent):
    """The output and the gradients of r1, r2 and v."""
    logits = oracle.factorized_random_logits(r1, r2)
    out, dlogits, dv = oracle.attention(logits, v, allowed, cotangent)
    return out, *oracle.factorized_random_pullback(r1, r2, dlogits), dv


def dense_oracle(a, b, v, allowed, cotangent):
    """The output and the gradients of a, b and v."""
    logits = oracle.factorized_dense_logits(a, b)
    out, dlogits, dv = oracle.attention(logits, v, allowed, cotangent)
    return out, *oracle.factorized_dense_pullback(a, b, dlogits), dv


def test_gradients_of_the_oracles_are_the_slopes_of_their_outputs(x64):
    allowed = oracles.allowed([oracles.causal([-1, 1])], 2, 2, 3, 3)
    for formula, shapes in (
        (oracle.attention, [(2, 3, 4)]),
        (random_oracle, [(2, 3, R), (2, 5, R)]),
        (dense_oracle, [(2, 2, 3, 2), (2, 2, 3, 3)]),
    ):
        *inputs, cotangent = wide(*normal(*shapes, (2, 3, 1, 2), (2, 3, 2, 2)))
        slopes = formula(*inputs, allowed, cotangent)[1:]
        for k, slope in enumerate(slopes):
            want = oracles.finite_differences(
                lambda x, k=k, f=formula, xs=inputs, c=cotangent: np.sum(
                    f(*xs[:k], x, *xs[k + 1 :], allowed, c)[0] * c
                ),
                inputs[k],
            )
            assert_close(slope, want, 1e-8, f"{formula.__name__} {k}")


def random_inputs(t=T, dtype=np.float64, h=H, g=G, e=E, s=S, n=N, lead=(B,)):
    """r1, r2, v and a cotangent."""
    shapes = (h, n, R), (h, n, R), (*lead, s, g, e), (*lead, t, h, e)
    return normal(*shapes, dtype=dtype)


def dense_inputs(t=T, dtype=np.float64, h=H, g=G, e=E, s=S, widths=(NA, NB), lead=(B,)):
    """a, b, v and a cotangent."""
    rows = [(*lead, h, t, n) for n in widths]
    return normal(*rows, (*lead, s, g, e), (*lead, t, h, e), dtype=dtype)


@pytest.mark.parametrize("name", MASKS)
def test_factorized_random_attention_equals_the_oracle(x64, name):
    """The positions asked for: any t of the n, in any order, twice for one of them."""
    *inputs, cotangent = random_inputs()
    queries = np.array([3, 11, 0, 3, 7])
    mask, allowed = MASKS[name][0](), sight(name)
    options = {"mask": mask, "queries": jnp.asarray(queries)}
    got = vjp(RANDOM, cotangent, *inputs, **options)
    r1, r2, v = wide(*inputs)
    out, dr1, dr2, dv = random_oracle(
        r1[:, queries], r2, v, allowed, wide(cotangent)[0]
    )
    all_dr1 = np.zeros_like(r1)
    np.add.at(all_dr1, (slice(None), queries), dr1)
    for k, (x, y) in enumerate(zip(got, (out, all_dr1, dr2, dv), strict=True)):
        assert_close(x, y, 1e-12, f"result {k}")


@pytest.mark.parametrize("name", MASKS)
def test_factorized_dense_attention_equals_the_oracle(x64, name):
    *inputs, cotangent = dense_inputs()
    got = vjp(DENSE_OP, cotangent, *inputs, mask=MASKS[name][0]())
    want = dense_oracle(*wide(*inputs), sight(name), *wide(cotangent))
    for k, (x, y) in enumerate(zip(got, want, strict=True)):
        assert_close(x, y, 1e-12, f"result {k}")


def random_plain(r1, r2, v, *, mask=None):
    t = v.shape[-3]
    logits = ops.factorized_random_logits(r1[:, :t], r2)
    return ops.synthesizer_attention(logits, v, mask=mask)


def dense_plain(a, b, v, *, mask=None):
    return ops.synthesizer_attention(ops.factorized_dense_logits(a, b), v, mask=mask)


LONG = 2 * BLOCK + 3
LONG_SIZES = {"t": LONG, "s": LONG, "h": 2, "g": 1, "e": 2}
RANDOM, DENSE_OP = ops.factorized_random_attention, ops.factorized_dense_attention
FORMS = {
    "random": (RANDOM, random_plain, functools.partial(random_inputs, n=LONG + 1)),
    "dense": (
        DENSE_OP,
        dense_plain,
        functools.partial(dense_inputs, widths=(23, 23)),
    ),
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_blocks_of_rows_equal_the_plain_composition(x64, form, padded):
    """Two blocks and three rows; with padding, a block and more sees nothing."""
    op, plain, make = FORMS[form]
    *inputs, cotangent = make(**LONG_SIZES)
    mask = None
    if padded:
        real = jnp.arange(LONG)[None] < jnp.asarray([[LONG - 2], [BLOCK - 1]])
        mask = masks.causal() & masks.padding(real, real)
    got = vjp(op, cotangent, *inputs, mask=mask)
    want = vjp(plain, cotangent, *inputs, mask=mask)
    for k, (x, y) in enumerate(zip(got, want, strict=True)):
        assert_close(x, y, 1e-12, f"result {k}")
    if padded:
        assert (got[0][1, BLOCK - 1 :] == 0).all()


@pytest.mark.parametrize("form", FORMS)
def test_blocks_under_any_other_mask(x64, form):
    """Not below a diagonal: blocks that all have all the keys, one of them filled."""
    op, plain, make = FORMS[form]
    *inputs, cotangent = make(**LONG_SIZES)
    real = jnp.arange(LONG)[None] < jnp.asarray([[LONG - 2], [BLOCK - 1]])
    mask = masks.prefix(BLOCK + 3) & masks.padding(real, real)
    got = vjp(op, cotangent, *inputs, mask=mask)
    want = vjp(plain, cotangent, *inputs, mask=mask)
    for k, (x, y) in enumerate(zip(got, want, strict=True)):
        assert_close(x, y, 1e-12, f"result {k}")


@pytest.mark.parametrize("form", FORMS)
def test_no_array_of_logits_is_kept(form):
    """Forward and backward hold at most one block of rows at a time."""
    op, plain, make = FORMS[form]
    *inputs, cotangent = make(**LONG_SIZES, dtype=np.float32, lead=())
    sizes = []
    for f in (op, plain):
        jaxpr = jax.make_jaxpr(functools.partial(vjp, f))(
            cotangent, *inputs, mask=masks.causal()
        )
        floats = (x for _, x in results(jaxpr) if jnp.issubdtype(x.dtype, jnp.floating))
        sizes.append(max(x.size for x in floats))
    assert sizes[0] <= 2 * BLOCK * 23**2 < 2 * LONG**2 <= sizes[1]


@pytest.mark.parametrize("form", FORMS)
def test_no_token_moves_what_came_before_it_at_any_edge_of_a_block(form):
    op, _, make = FORMS[form]
    *rows, v, _ = make(**LONG_SIZES, dtype=np.float32)
    want = op(*rows, v, mask=masks.causal())
    for token in (0, BLOCK - 1, BLOCK, BLOCK + 1, LONG - 1):
        moved = [x.at[..., token, :].set(1e30) for x in rows]
        got = op(*moved, v.at[:, token].set(1e30), mask=masks.causal())
        assert_same_bits(got[:, :token], want[:, :token], f"token {token}")
        assert (got[:, token] != want[:, token]).any()


def test_the_positions_asked_for_equal_those_rows_of_all():
    """Also fewer keys than positions, and a decoded token against its row."""
    r1, r2, v, _ = random_inputs(dtype=np.float32)
    full = RANDOM(r1, r2, v)
    queries = jnp.asarray([6, 0, 6])
    assert_close(RANDOM(r1, r2, v, queries=queries), full[:, queries], 1e-6)
    causal = RANDOM(r1, r2, v, mask=masks.causal())
    for i in range(S):
        mask = masks.causal().offset(i)
        row = RANDOM(r1, r2, v, queries=jnp.asarray([i]), mask=mask)
        assert_close(row, causal[:, i : i + 1], 1e-6)
    for i in (0, 4):
        row = RANDOM(r1, r2, v[:, : i + 1], queries=jnp.asarray([i]))
        assert_close(row, causal[:, i : i + 1], 1e-6)


def test_a_position_that_is_out_of_range_gives_nan_under_jit():
    """Only there, and not where the mask lets it see nothing."""
    r1, r2, v, _ = random_inputs(dtype=np.float32)
    queries = jnp.asarray([-1, 3, N, N - 1])
    out = jax.jit(lambda i: RANDOM(r1, r2, v, queries=i))(queries)
    assert jnp.isnan(out[:, [0, 2]]).all()
    assert_close(out[:, [1, 3]], RANDOM(r1, r2, v, queries=queries[1::2]), 1e-6)
    real = jnp.asarray([[False, True, False, True]] * B)
    mask = masks.padding(jnp.ones((B, S), bool), real)
    out = jax.jit(lambda i: RANDOM(r1, r2, v, queries=i, mask=mask))(queries)
    assert (out[:, [0, 2]] == 0).all()
    assert jnp.isfinite(out).all()


def test_dense_rows_decode_as_the_full_forward_pass():
    """A token's row depends on the token alone; so do heads, three of them."""
    shapes = (B, S, M), (3, M, D), (3, D), (3, D, N), (3, N), (B, S, 3, E)
    x, *layers, v = normal(*shapes, dtype=np.float32)
    full = ops.synthesizer_attention(
        ops.dense_synthesizer_logits(x, *layers), v, mask=masks.causal()
    )
    for i in range(S):
        logits = ops.dense_synthesizer_logits(x[:, i : i + 1], *layers)
        step = ops.synthesizer_attention(logits, v, mask=masks.causal().offset(i))
        assert_close(step, full[:, i : i + 1], 1e-6)


# -------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("token", [0, 3, S - 1])
def test_no_token_moves_what_came_before_it(token):
    """From tokens to outputs, each of three heads, to the bit."""
    shapes = (B, S, M), (3, M, D), (3, D), (3, D, N), (3, N), (B, S, 3, E)
    x, *layers, v = normal(*shapes, dtype=np.float32)

    def output(x, v):
        logits = ops.dense_synthesizer_logits(x, *layers)
        return ops.synthesizer_attention(logits, v, mask=masks.causal())

    want, got = output(x, v), output(x.at[:, token].set(9), v.at[:, token].set(1e30))
    assert_same_bits(got[:, :token], want[:, :token])
    assert (got[:, token] != want[:, token]).any((0, -1)).all()


def test_each_head_is_computed_from_its_own_weights():
    """With t = h = n, where a reshape could pass for a transpose."""
    shapes = (B, 3, M), (3, M, D), (3, D), (3, D, 3), (3, 3), (B, 3, 3, E)
    x, *layers, v = normal(*shapes, dtype=np.float32)
    logits = ops.dense_synthesizer_logits(x, *layers)
    out = ops.synthesizer_attention(logits, v, mask=masks.causal())
    for j in range(3):
        own = [layer[j : j + 1] for layer in layers]
        alone = ops.synthesizer_attention(
            ops.dense_synthesizer_logits(x, *own),
            v[:, :, j : j + 1],
            mask=masks.causal(),
        )
        assert_close(out[:, :, j : j + 1], alone, 1e-6)


def test_padding_equals_a_shorter_sequence():
    logits, v = normal((B, H, S, N), (B, S, G, E), dtype=np.float32)
    real = jnp.arange(S) < 4
    padded = ops.synthesizer_attention(logits, v, mask=masks.padding(real, real))
    short = ops.synthesizer_attention(logits[:, :, :4], v[:, :4])
    assert_close(padded[:, :4], short, 1e-6)
    assert (padded[:, 4:] == 0).all()


PARTLY = TABLE.copy()
PARTLY[0, :2] = False
PARTLY[1, 2:4, :, 3] = False
PARTLY[:, :, 2] = False
PARTLY[:, :, :, 5] = False
BLIND = {
    **{name: MASKS[name] for name in ("padding", "behind every key")},
    "before every key": MASKS["causal, an offset each"],
    "one group": (lambda: masks.dense(jnp.asarray(PARTLY)), [oracles.dense(PARTLY)]),
}


def hidden_values(allowed):
    """B S G 1: keys that no query of the group sees."""
    seen = allowed.reshape(B, G, H // G, T, S).any((2, 3))
    return ~seen.swapaxes(1, 2)[..., None]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", BLIND)
def test_what_nobody_sees_may_hold_anything(name, shared):
    """Logits of masked slots and spare columns, hidden values, rows of the blind.

    Rows that the whole batch shares count as blind when no example uses them.
    """
    mask, rules = BLIND[name]
    allowed = oracles.allowed(rules, B, H, T, S)
    lead = () if shared else (B,)
    used = allowed.any(0) if shared else allowed
    spare = np.zeros((*used.shape[:-1], N - S), bool)
    unused_slots = ~np.concatenate([used, spare], -1)
    blind_rows = ~used.any(-1)[..., None]
    unseen = hidden_values(allowed)
    assert unused_slots.any()
    shapes = (*lead, H, T, N), (*lead, H, T, NA), (*lead, H, T, NB)
    logits, a, b = normal(*shapes, dtype=np.float32)
    r1, r2, v, cotangent = random_inputs(dtype=np.float32)
    unused_queries, unused_keys = np.ones((2, H, N, 1), bool)
    unused_queries[:, :T, 0] = ~allowed.any((0, 3))
    unused_keys[:, :S, 0] = ~allowed.any((0, 2))
    cases = [
        (ops.synthesizer_attention, {}, [(logits, unused_slots)]),
        (DENSE_OP, {}, [(a, blind_rows), (b, blind_rows)]),
        (
            RANDOM,
            {"queries": jnp.arange(T)},
            [(r1, unused_queries), (r2, unused_keys)],
        ),
    ]
    for op, options, pairs in cases:
        pairs = [*pairs, (v, unseen)]
        want = vjp(op, cotangent, *(x for x, _ in pairs), mask=mask(), **options)
        for value in (np.nan, np.inf, -np.inf, 1e30):
            junk = [jnp.where(hidden, value, x) for x, hidden in pairs]
            got = vjp(op, cotangent, *junk, mask=mask(), **options)
            for x, y in zip(got, want, strict=True):
                assert_same_bits(x, y, f"{op} for {value}")
            for (x, hidden), slope in zip(pairs, got[1:], strict=True):
                assert (np.asarray(slope)[np.broadcast_to(hidden, x.shape)] == 0).all()
        blind = ~allowed.any(-1).swapaxes(1, 2)
        assert (np.asarray(want[0])[blind] == 0).all()


@pytest.mark.parametrize(
    ("dtype", "ceiling"),
    [(jnp.float32, 2e-6), (jnp.bfloat16, 5e-3), (jnp.float16, 6e-4)],
)
@pytest.mark.parametrize("form", FORMS)
def test_factorized_error_stays_below_the_ceiling_of_the_dtype(form, dtype, ceiling):
    make, formula = {
        "random": (random_inputs, random_oracle),
        "dense": (dense_inputs, dense_oracle),
    }[form]
    *inputs, cotangent = make(t=S, dtype=dtype)
    real = KEYS[:, None, :, None] & KEYS[:, None, None, :]
    mask = masks.dense(jnp.asarray(real))
    got = vjp(FORMS[form][0], cotangent, *inputs, mask=mask)
    chex.assert_type(got, dtype)
    xs = wide(*inputs)
    if form == "random":
        xs[0] = xs[0][:, :S]
    out, one, two, dv = formula(*xs, real, *wide(cotangent))
    if form == "random":
        one = np.pad(one, [(0, 0), (0, N - S), (0, 0)])
    for k, (x, y) in enumerate(zip(got, (out, one, two, dv), strict=True)):
        assert_close(x, y, ceiling, f"result {k}")


@pytest.mark.parametrize(
    ("inputs", "output"), [("bfloat16", "float32"), ("float32", "float16")]
)
def test_the_output_has_the_dtype_of_v(inputs, output):
    logits, v = normal((B, H, T, N), (B, S, G, E), dtype=inputs)
    chex.assert_type(ops.synthesizer_attention(logits, v.astype(output)), output)
    r1, r2, v, _ = random_inputs(dtype=inputs)
    chex.assert_type(RANDOM(r1, r2, v.astype(output)), output)
    a, b, v, _ = dense_inputs(dtype=inputs)
    chex.assert_type(DENSE_OP(a, b, v.astype(output)), output)


@pytest.mark.parametrize("sizes", [{"t": 0}, {"s": 0}, {"lead": (0,)}], ids=str)
def test_nothing_in_gives_zeros_of_the_right_shape(sizes):
    a, b, v, cotangent = dense_inputs(**sizes, dtype=np.float32)
    mask = masks.causal().offset(1) & masks.padding(jnp.ones(v.shape[:2], bool))
    logits = ops.factorized_dense_logits(a, b)
    r1, r2, *_ = random_inputs(dtype=np.float32)
    rows = jnp.arange(a.shape[-2])
    for op, inputs, options in (
        (ops.synthesizer_attention, (logits, v), {}),
        (DENSE_OP, (a, b, v), {}),
        (RANDOM, (r1, r2, v), {"queries": rows}),
    ):
        out, *slopes = vjp(op, cotangent, *inputs, mask=mask, **options)
        chex.assert_trees_all_equal(out, jnp.zeros_like(cotangent))
        chex.assert_trees_all_equal(slopes, [jnp.zeros_like(x) for x in inputs])


def test_jit_equals_eager_and_vmap_a_loop():
    a, b, v, _ = dense_inputs(dtype=np.float32)
    (logits,) = normal((H, T, N), dtype=np.float32)
    mask = MASKS["padding"][0]()

    def both(a, b, v, mask):
        mixed = ops.mix_logits(
            [logits, ops.factorized_dense_logits(a, b)], jnp.full((H, 2), 0.5)
        )
        plain = ops.synthesizer_attention(mixed, v, mask=mask)
        return plain, DENSE_OP(a, b, v, mask=mask)

    got = both(a, b, v, mask)
    with jax.disable_jit():
        chex.assert_trees_all_close(got, both(a, b, v, mask), rtol=1e-5, atol=1e-6)
    mapped = jax.vmap(both)(a, b, v, mask)
    chex.assert_trees_all_close(got, mapped, rtol=1e-5, atol=1e-6)
    one = both(a[1], b[1], v[1], jax.tree.map(lambda x: x[1], mask))
    second = jax.tree.map(lambda x: x[1], got)
    chex.assert_trees_all_close(second, one, rtol=1e-5, atol=1e-6)


def test_the_second_call_traces_nothing():
    """Values may change, those of positions and offsets too."""
    jitted = (
        ops.synthesizer_attention,
        ops.factorized_dense_attention,
        synthesizer_factorized._factorized_random_attention,
    )

    def call(seed, start):
        logits, r1, r2, v = normal(
            (H, 4, N), (H, N, R), (H, N, R), (S, G, E), dtype=np.float32, seed=seed
        )
        mask = masks.causal().offset(start)
        queries = jnp.arange(start, start + 4)
        ops.synthesizer_attention(logits, v, mask=mask)
        DENSE_OP(logits[..., :3], logits[..., :4], v, mask=mask)
        RANDOM(r1, r2, v, queries=queries, mask=mask)
        return [op._cache_size() for op in jitted]

    assert call(0, 1) == call(1, 3)


@pytest.mark.parametrize("form", FORMS)
def test_forward_mode_and_second_derivatives(x64, form):
    """Directional slopes of outputs and of gradients, with blind rows about."""
    op, make, formula = {
        "random": (RANDOM, functools.partial(random_inputs, n=S), random_oracle),
        "dense": (DENSE_OP, dense_inputs, dense_oracle),
    }[form]
    *primals, cotangent = make(t=S, h=2, g=1, e=3)
    tangents = normal(*(x.shape for x in primals), seed=9)
    mask = masks.causal().offset(jnp.asarray(START))
    allowed = oracles.allowed([oracles.causal(START)], B, 2, S, S)

    def everything(*xs):
        out, pullback = jax.vjp(functools.partial(op, mask=mask), *xs)
        return out, *pullback(cotangent)

    def theirs(step):
        moved = [x + step * dx for x, dx in zip(primals, tangents, strict=True)]
        return formula(*wide(*moved), allowed, *wide(cotangent))

    _, slopes = jax.jvp(everything, primals, tangents)
    for slope, above, below in zip(slopes, theirs(1e-5), theirs(-1e-5), strict=True):
        assert_close(slope, (above - below) / 2e-5, 1e-8)


# ------------------------------------------------------------------------------ errors

LOGITS, VALUES = jnp.ones((2, 6, 5, 8)), jnp.ones((2, 7, 3, 11))
A, B_, R1 = jnp.ones((2, 6, 5, 3)), jnp.ones((2, 6, 5, 4)), jnp.ones((6, 12, 2))
X, W1, W2 = jnp.ones((2, 5, 13)), jnp.ones((6, 13, 8)), jnp.ones((6, 8, 12))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ops.dense_synthesizer_logits(X, W1[:, :7], None, W2, None),
            r"w1: got m = 7 .*h m d.* m = 13 in x",
        ),
        (
            lambda: ops.dense_synthesizer_logits(X, W1, None, W2, jnp.ones((6, 11))),
            r"b2: got n = 11 .*n = 12 in w2",
        ),
        (
            lambda: ops.dense_synthesizer_logits(X, W1[0], None, W2, None),
            r"w1: got shape \(13, 8\) with 2 axes; expected 3.*h m d",
        ),
        (
            lambda: ops.factorized_dense_logits(A, B_[:, :2]),
            r"b: got h = 2 .*h = 6 in a",
        ),
        (
            lambda: ops.factorized_dense_logits(jnp.concatenate([A, A]), B_),
            r"b: got batch axes \(2,\) .*\(4,\).*same or 1",
        ),
        (
            lambda: ops.factorized_random_logits(R1, R1[..., :1]),
            r"r2: got r = 1 .*r = 2 in r1",
        ),
        (
            lambda: ops.mix_logits([LOGITS, LOGITS[..., :7]], jnp.ones((6, 2))),
            r"logits\[1\]: got n = 7 .*n = 8 in logits\[0\]",
        ),
        (
            lambda: ops.mix_logits([LOGITS], jnp.ones((6, 2))),
            r"alphas: got 2 weights .* for 1 arrays",
        ),
        (lambda: ops.mix_logits([], jnp.ones((6, 0))), r"logits: got none; .*one"),
        (
            lambda: ops.synthesizer_attention(LOGITS[..., :6], VALUES),
            r"logits: got n = 6 .*s = 7 keys.*n >= s.*longest",
        ),
        (
            lambda: ops.synthesizer_attention(LOGITS[:, :5], VALUES),
            r"v: got 3 heads for logits's 5; .*divides",
        ),
        (
            lambda: ops.synthesizer_attention(LOGITS[:, :2], VALUES),
            r"v: got 3 heads for logits's 2; .*divides",
        ),
        (
            lambda: ops.synthesizer_attention(LOGITS, VALUES[:1]),
            r"logits: got batch axes \(2,\).*v's \(1,\).*broadcast v",
        ),
        (
            lambda: ops.synthesizer_attention(LOGITS, VALUES, mask=masks.causal()),
            r"mask: causal is ambiguous for t = 5 queries and s = 7 keys.*offset",
        ),
        (
            lambda: ops.factorized_dense_attention(A, B_[..., :2], VALUES),
            r"a, b: got n = 6 .*s = 7 keys",
        ),
        (
            lambda: ops.factorized_random_attention(R1[:, :6], R1[:, :6], VALUES),
            r"r2: got n = 6 .*s = 7 keys",
        ),
        (
            lambda: ops.factorized_random_attention(
                R1, R1, VALUES, queries=jnp.arange(5), mask=masks.causal()
            ),
            r"mask: causal is ambiguous for t = 5 queries and s = 7 keys.*offset",
        ),
        (
            lambda: ops.factorized_random_attention(
                R1, R1, VALUES, queries=jnp.asarray([0, 12])
            ),
            r"queries: got positions from 0 to 12; expected 0 to 11",
        ),
        (
            lambda: ops.factorized_random_attention(
                R1, R1, VALUES, queries=jnp.asarray([-1, 3])
            ),
            r"queries: got positions from -1 to 3; expected 0 to 11",
        ),
        (
            lambda: ops.factorized_random_attention(
                R1, R1, VALUES, queries=jnp.ones((2, 5), int)
            ),
            r"queries: got shape \(2, 5\); expected one axis",
        ),
    ],
)
def test_what_does_not_fit_raises_with_numbers(call, message, plain_errors):
    with pytest.raises(ValueError, match=message):
        call()


def test_types_that_do_not_fit_raise(plain_errors):
    with pytest.raises(TypeError, match=r"logits: got dtype int32; .*astype"):
        ops.synthesizer_attention(LOGITS.astype(int), VALUES)
    with pytest.raises(TypeError, match=r"queries: got dtype float32; .*Int\[t\]"):
        ops.factorized_random_attention(R1, R1, VALUES, queries=jnp.ones(5))
    with pytest.raises(TypeError, match=r"mask: got an array .*dense\(allowed\)"):
        ops.synthesizer_attention(LOGITS, VALUES, mask=jnp.ones((5, 7), bool))


@pytest.mark.parametrize("n", [S, N])
def test_any_length_up_to_the_longest(n):
    """T < n and T = n; above, see the errors. Spare columns change nothing."""
    logits, v = normal((B, H, S, N), (B, S, G, E), dtype=np.float32)
    got = ops.synthesizer_attention(logits[..., :n], v)
    assert_same_bits(got, ops.synthesizer_attention(logits[..., :S], v))
