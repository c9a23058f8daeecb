"""Tiles equal the definition: outputs, every gradient, what is masked, memory."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from attn_jax.ops import masks, softmax_attention, softmax_blockwise

B, T, S, H, G, D, E = 2, 13, 17, 6, 3, 4, 5


@pytest.fixture(autouse=True)
def slabs_of_four_rows(monkeypatch):
    """Whatever leaves block_size out goes by slabs; a length of 13 has four of them."""
    monkeypatch.setattr(softmax_blockwise, "SLAB", 4)


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


REAL_T = jnp.ones((B, T), bool).at[0, :2].set(False).at[1, 9:].set(False)
REAL_S = jnp.ones((B, S), bool).at[0, :6].set(False).at[1, 9:].set(False)
IDS = jnp.array([[7] * 2 + [1] * 3 + [5] * 5 + [9] * 3, [0] * 3 + [2] * 6 + [3] * 4])
SOME = jax.random.bernoulli(jax.random.key(9), 0.3, (B, H, T, S))
ROWS = jax.random.bernoulli(jax.random.key(8), 0.3, (1, T, 1))
CAUSAL = masks.causal()

# name: mask, keys' length
MASKS = {
    "full": (masks.full(), S),
    "causal": (CAUSAL, T),
    "offsets": (CAUSAL.offset(jnp.array([4, -3])), S),
    "window": (masks.window(3, 1), T),
    "window-offset": ((CAUSAL & masks.window(3)).offset(4), S),
    "prefix": (masks.prefix(jnp.array([3, 7])), T),
    "padding": (masks.padding(REAL_S, REAL_T), S),
    "packed": (CAUSAL & masks.segments(IDS) & masks.padding(REAL_T), T),
    "segments": (masks.segments(IDS), T),
    "dense": (masks.dense(SOME), S),
    "dense-rows": (masks.dense(ROWS), S),
}


def relative(a, b):
    return np.linalg.norm(np.ravel(a - b)) / max(np.linalg.norm(np.ravel(b)), 1e-6)


def both(mask, *args, block_size, **options):
    """Outputs and gradients in tiles and by the definition."""

    def run(args, options, **how):
        def loss(args, options):
            out = softmax_attention(*args, mask=mask, **options, **how)
            return jnp.sum(jnp.sin(3 * out)), out

        grads, out = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(args, options)
        return out, grads

    tiled = run(args, options, implementation="blockwise", block_size=block_size)
    return tiled, run(args, options, implementation="dense")


@pytest.mark.parametrize("block_size", [4, 64])
@pytest.mark.parametrize("name", MASKS)
def test_tiles_equal_the_definition(x64, name, block_size):
    mask, s = MASKS[name]
    args = normal(0, B, T, H, D), normal(1, B, s, G, D), normal(2, B, s, G, E)
    got, want = both(mask, *args, block_size=block_size)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert relative(a, b) < 1e-12


@pytest.mark.parametrize("name", MASKS)
def test_slabs_equal_the_definition(x64, name):
    """The forward pass of short sequences: 11 rows, 3 of them in the last slab."""
    mask, s = MASKS[name]
    mask, s = jax.tree.map(lambda x: cut(x, 11), mask), 11 if s == T else s
    args = normal(0, B, 11, H, D), normal(1, B, s, G, D), normal(2, B, s, G, E)
    got, want = both(mask, *args, block_size=None, bias=normal(3, B, H, 11, s))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert relative(a, b) < 1e-12


def cut(x, t):
    """A rule's array for t rows in place of T, and as many keys where there were T."""
    for axis, size in enumerate(np.shape(x)):
        if size == T and x.ndim > 1:
            x = jax.lax.slice_in_dim(x, 0, t, axis=axis)
    return x


@pytest.mark.parametrize(
    ("t", "s", "heads"), [(256, 256, 2), (300, 300, 4), (400, 600, 2)]
)
def test_slabs_of_the_usual_size(monkeypatch, t, s, heads):
    """One, two below the diagonal, and two of which each has all the keys."""
    monkeypatch.setattr(softmax_blockwise, "SLAB", 256)
    args = [normal(i, 1, n, heads, D) for i, n in enumerate((t, s, s))]
    mask = CAUSAL if t == s else CAUSAL.offset(s - t)
    got, want = both(mask, *args, block_size=None)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert relative(a, b) < 1e-6


@pytest.mark.parametrize("name", ["packed", "segments", "dense"])
def test_slabs_of_filled_arrays(monkeypatch, name):
    """300 tokens: a mask's arrays are filled up to 384 for the backward pass."""
    monkeypatch.setattr(softmax_blockwise, "SLAB", 256)
    real = jnp.arange(300)[None] < jnp.array([[300], [200]])
    ids = jnp.broadcast_to(jnp.arange(300) // 110, (B, 300))
    allowed = jax.random.bernoulli(jax.random.key(9), 0.5, (B, 1, 300, 300))
    mask = {
        "packed": CAUSAL & masks.padding(real, real) & masks.segments(ids),
        "segments": masks.segments(ids),
        "dense": masks.dense(allowed),
    }[name]
    args = [normal(i, B, 300, 2, D) for i in range(3)]
    got, want = both(mask, *args, block_size=None, bias=normal(3, B, 1, 300, 300))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert relative(a, b) < 1e-6


@pytest.mark.parametrize(
    ("shape", "block_size"),
    [
        ((B, H, T, T), 5),
        ((H, T, T), None),
        ((1, 1, T), 5),
        ((B, H, 1, T), 5),
        ((B, H, 1, T), None),
    ],
)
def test_every_option_has_its_gradient(x64, shape, block_size):
    """Bias of each broadcast shape, cap and scale; contract line 115."""
    args = normal(0, B, T, H, D), normal(1, B, T, 2, D), normal(2, B, T, 2, E)
    options = {
        "bias": normal(3, *shape),
        "logit_cap": jnp.asarray(1.5),
        "scale": jnp.asarray(0.7),
    }
    mask = CAUSAL & masks.padding(REAL_T)
    got, want = both(mask, *args, block_size=block_size, **options)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert relative(a, b) < 1e-12


def test_a_large_bias_reaches_no_filled_row():
    """The last tile is filled with queries that aren't there: 2^100 times 0 is NaN."""
    args = [normal(i, B, T, H, D) for i in range(3)]
    bias = jnp.full((1, 1, 1, T), 100.0)
    got, want = both(CAUSAL, *args, block_size=4, bias=bias)
    chex.assert_tree_all_finite(got)
    chex.assert_trees_all_close(got[0], want[0], rtol=1e-3, atol=1e-4)
    chex.assert_trees_all_close(got[1][0], want[1][0], rtol=1e-3, atol=1e-3)


def test_the_gradient_of_a_16_bit_bias_is_summed_in_32():
    args = [normal(i, 1, 256, 1, 1) for i in range(3)]
    bias = normal(3, 1, 1, 8).astype(jnp.bfloat16)
    args[1:] = [x[:, :8] for x in args[1:]]

    def gradient(**how):
        def loss(bias):
            return jnp.sum(softmax_attention(*args, bias=bias, **how) * 100)

        return jax.jit(jax.grad(loss))(bias)

    got = gradient(implementation="blockwise", block_size=1)
    assert got.dtype == jnp.bfloat16
    want = gradient(implementation="dense")
    assert relative(np.asarray(got, float), np.asarray(want, float)) < 4e-3


@pytest.mark.parametrize("leading", [(), (2, 3)])
def test_any_leading_axes(leading):
    args = [normal(i, *leading, T, H, D) for i in range(3)]
    got, want = both(CAUSAL, *args, block_size=4)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert relative(a, b) < 1e-6


@pytest.mark.parametrize("block_size", [4, None])
def test_what_nobody_sees_has_no_influence(block_size):
    """Hidden keys, blind queries: outputs and gradients to the bit; law 3."""
    mask = CAUSAL & masks.padding(REAL_T, REAL_T)
    clean = [normal(i, B, T, H, D) for i in range(3)]

    @jax.jit
    def run(args):
        def loss(args):
            out = softmax_attention(
                *args, mask=mask, implementation="blockwise", block_size=block_size
            )
            return jnp.sum(jnp.sin(out)), out

        return jax.grad(loss, has_aux=True)(args)

    want = run(clean)
    for poison in (np.nan, np.inf, 1e30):
        dirty = [jnp.where(REAL_T[..., None, None], x, poison) for x in clean]
        chex.assert_trees_all_equal(run(dirty), want)


def test_blind_rows_are_zero():
    """An offset before every key, and one padded example; law 2."""
    q, k, v = (normal(i, B, T, H, D) for i in range(3))
    mask = CAUSAL.offset(jnp.array([-T, 0])) & masks.padding(jnp.ones((B, T), bool))
    out = softmax_attention(q, k, v, mask=mask, implementation="blockwise")
    chex.assert_trees_all_equal(out[0], jnp.zeros_like(out[0]))
    assert np.all(np.abs(out[1]).sum((-1, -2)) > 0)


@pytest.mark.parametrize("block_size", [4, None])
def test_causal_to_the_bit(block_size):
    """At the start, inside a tile, at its edges and at the end; law 4."""
    args = [normal(i, 1, T, H, D) for i in range(3)]

    @jax.jit
    def run(args):
        return softmax_attention(
            *args, mask=CAUSAL, implementation="blockwise", block_size=block_size
        )

    before = run(args)
    for token in (0, 3, 4, 5, T - 1):
        after = run([x.at[:, token].set(1e30) for x in args])
        chex.assert_trees_all_equal(before[:, :token], after[:, :token])
        assert not np.array_equal(before[:, token:], after[:, token:])


@pytest.mark.parametrize(
    ("dtype", "ceiling"),
    [(jnp.float32, 2e-6), (jnp.bfloat16, 5e-3), (jnp.float16, 1e-3)],
)
def test_error_by_dtype_at_4096_keys(dtype, ceiling):
    q, k, v = (normal(i, 1, 64 if i == 0 else 4096, 2, 16) for i in range(3))
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    out = softmax_attention(q, k, v, implementation="blockwise")
    assert out.dtype == dtype
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    weights = np.exp(np.einsum("bthd,bshd->bhts", q, k) / 4)
    weights /= weights.sum(-1, keepdims=True)
    want = np.einsum("bhts,bshe->bthe", weights, v)
    assert relative(np.asarray(out, np.float64), want) < ceiling


def test_memory_grows_with_the_length_not_its_square():
    def temporary(t):
        x = jax.ShapeDtypeStruct((1, t, 2, 16), jnp.float32)

        def loss(q, k, v):
            return jnp.sum(softmax_attention(q, k, v, mask=CAUSAL))

        step = jax.jit(jax.grad(loss, (0, 1, 2)))
        return step.lower(x, x, x).compile().memory_analysis().temp_size_in_bytes

    assert temporary(8192) < 2.2 * temporary(4096)


def test_tiles_that_the_mask_rules_out_are_not_visited():
    """NaN in keys that stand in no visible tile would reach a tile that was visited."""
    q, k, v = (normal(i, 1, 64, 1, 4) for i in range(3))
    far = jnp.arange(64)[None, :, None, None] >= 32
    k, v = jnp.where(far, jnp.nan, k), jnp.where(far, jnp.nan, v)
    out = softmax_attention(
        q[:, :32],
        k,
        v,
        mask=CAUSAL.offset(0),
        implementation="blockwise",
        block_size=16,
    )
    want = softmax_attention(q[:, :32], k[:, :32], v[:, :32], mask=CAUSAL)
    chex.assert_trees_all_close(out, want, rtol=1e-5, atol=1e-6)


def test_rows_of_a_batch_stay_on_their_devices():
    """Under a mesh; what rows share, here a bias, has the sum of their gradients."""
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    real = jnp.arange(T)[None, :] < jnp.array([[T], [3], [0], [7]])
    shapes = (4, T, H, D), (4, T, G, D), (4, T, G, E), (1, H, T, T)
    arrays = [normal(i, *shape) for i, shape in enumerate(shapes)]

    def run(way, real, *arrays):
        def output(q, k, v, bias):
            mask = CAUSAL & masks.padding(real, real)
            options = {"mask": mask, "bias": bias, "implementation": way}
            return softmax_attention(q, k, v, **options)

        out, pullback = jax.vjp(output, *arrays)
        return out, *pullback(jnp.sin(out))

    want = jax.jit(run, static_argnums=0)("dense", real, *arrays)
    shared = jax.device_put((real, *arrays[:3]), rows)
    bias = jax.device_put(arrays[3], NamedSharding(mesh, PartitionSpec()))
    with jax.set_mesh(mesh):
        tiles = jax.jit(run, static_argnums=0)
        compiled = tiles.lower("blockwise", *shared, bias).compile()
    got = compiled(*shared, bias)
    assert got[0].sharding.is_equivalent_to(rows, 4)
    for left, right in zip(got, want, strict=True):
        assert relative(left, right) < 1e-5
    assert f"[4,{T}," not in compiled.as_text(), "rows were gathered"


def test_block_size_needs_blocks(plain_errors):
    x = normal(0, 1, 3, 1, 2)
    with pytest.raises(ValueError, match=r"block_size: got 4 .*'dense'.*leave it out"):
        softmax_attention(x, x, x, implementation="dense", block_size=4)
    with pytest.raises(ValueError, match=r"block_size: got 0; expected an int >= 1"):
        softmax_attention(x, x, x, block_size=0)


@pytest.mark.parametrize("block_size", [4, None])
@pytest.mark.parametrize("rule", [masks.causal(), masks.window(9)])
def test_a_key_that_only_filled_rows_would_see_may_hold_anything(rule, block_size):
    """Key 7 stands past the last query, and before those that fill its block."""
    q, k, v = normal(1, 6, 1, 2), normal(2, 12, 1, 2), normal(3, 12, 1, 2)
    options = {"implementation": "blockwise", "block_size": block_size}
    options["mask"] = rule.offset(1)

    def out_and_gradient(k, v):
        out, pull = jax.vjp(lambda q: softmax_attention(q, k, v, **options), q)
        return out, *pull(out)

    got = out_and_gradient(k.at[7].set(jnp.nan), v.at[7].set(jnp.nan))
    for hidden, clean in zip(got, out_and_gradient(k, v), strict=True):
        assert (hidden == clean).all()
