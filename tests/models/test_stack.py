"""Blocks scanned or unrolled, kept or recomputed: the same numbers either way."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import models, nn
from attn_jax.ops import masks
from tests.models.cases import F32, LAYERS, VOCAB, B, F, M, T, config, decoder, ids
from tests.models.oracle import layer
from tests.ops.oracles import assert_close, assert_same_bits

# (scan_layers, remat), each against a scan that keeps what it computes.
OTHERS = [
    *(
        pytest.param(name, False, True, id=f"{name}-unrolled-remat")
        for name in nn.MECHANISMS
    ),
    pytest.param("softmax", False, False, id="softmax-unrolled"),
    pytest.param("softmax", True, True, id="softmax-scan-remat"),
    pytest.param("softmax", True, "products", id="softmax-scan-products"),
]


# What layers hand on to each other or keep beside their mechanism: one row has it all.
RICH = {
    "exclusive_gate": "sigmoid",
    "output_gate": True,
    "value_residual": True,
    "embedding_norm": True,
}


def options(name):
    """Dropout takes long to compile and knows nothing of mechanisms: one has it."""
    rate = 0.2 if name == "softmax" else 0.0
    more = RICH if name == "linear" else {}
    return {"exclusive": True, "norm_placement": "post", "dropout_rate": rate, **more}


def unrolled(params):
    """Stacked parameters of a scanned decoder as those of an unrolled one."""
    stack = dict(params["stack"])
    stack["blocks"] = {i: layer(stack["blocks"], i) for i in range(LAYERS)}
    return params | {"stack": stack}


REAL = np.arange(T) >= np.array([[2], [0], [0]])
TOKENS = np.where(REAL, ids(0, B, T), 5)
WEIGHTS = np.random.default_rng(1).normal(size=(B, T, VOCAB)) * REAL[..., None]


def compiled(model, params=None):
    """tokens -> logits and gradients of a left-padded batch, with dropout's key."""
    graph, state = nnx.split(model)
    if params is not None:
        nnx.replace_by_pure_dict(state, params)
    mask = masks.padding(jnp.asarray(REAL), jnp.asarray(REAL))

    def loss(state, tokens):
        model = nnx.merge(graph, state)
        logits = model(tokens, mask=mask, rng=jax.random.key(0))
        return jnp.sum(logits * jnp.asarray(WEIGHTS, logits.dtype)), logits

    run = jax.jit(jax.grad(loss, has_aux=True))

    def outputs(tokens):
        gradients, logits = run(state, tokens)
        return np.asarray(logits), nnx.to_pure_dict(gradients)

    return outputs


class Scanned:
    """A scan that keeps everything: its parameters and what comes out of them."""

    def __init__(self, name):
        model = decoder(name, **options(name))
        self.params = nnx.to_pure_dict(nnx.state(model))
        self.run = compiled(model)
        self.logits, self.gradients = self.run(TOKENS)


@pytest.fixture(scope="module")
def scanned():
    return functools.cache(Scanned)


@pytest.mark.parametrize("name", nn.MECHANISMS)
def test_what_padding_holds_reaches_no_gradient(name, scanned):
    """Contract 8: an id that is no token, and one that is, are alike in padding."""
    one = scanned(name)
    still = [
        jax.tree_util.keystr(path, simple=True, separator=".")
        for path, x in jax.tree.leaves_with_path(one.gradients)
        if not (np.isfinite(x).all() and np.any(x))
    ]
    # Queries see all that they select here, and nothing counts with its mean.
    assert still in ([], ["stack.blocks.attention.mechanism.mean"])
    assert not still or name == "partial"
    for garbage in (-1, 10**6, 7):
        logits, gradients = one.run(np.where(REAL, TOKENS, garbage))
        assert_same_bits(logits, one.logits, "logits")
        for got, want in zip(
            jax.tree.leaves(gradients), jax.tree.leaves(one.gradients), strict=True
        ):
            assert_same_bits(got, want, "gradient")


@pytest.mark.parametrize(("name", "scan", "remat"), OTHERS)
def test_neither_scan_nor_remat_changes_a_number(name, scan, remat, scanned):
    """Contract 81 among it: what is recomputed draws the same dropout."""
    one = scanned(name)
    params, want, want_gradients = one.params, one.logits, one.gradients
    if not scan:
        params, want_gradients = unrolled(params), unrolled(want_gradients)
    model = decoder(name, scan_layers=scan, remat=remat, **options(name))
    logits, gradients = compiled(model, params)(TOKENS)
    assert_close(logits, want, F32, "logits")
    assert jax.tree.structure(gradients) == jax.tree.structure(want_gradients)
    for (path, got), right in zip(
        jax.tree.leaves_with_path(gradients),
        jax.tree.leaves(want_gradients),
        strict=True,
    ):
        # The gradient of a key is small where a softmax is nearly one-hot.
        assert_close(got, right, 10 * F32, jax.tree_util.keystr(path))


@pytest.mark.parametrize("name", ["softmax", "linear"])
def test_decoding_unrolled_equals_decoding_scanned(name):
    more = {"exclusive": True, **RICH} if name == "linear" else {}
    one, two = decoder(name, **more), decoder(name, scan_layers=False, **more)
    state = nnx.state(two)
    nnx.replace_by_pure_dict(state, unrolled(nnx.to_pure_dict(nnx.state(one))))
    nnx.update(two, state)
    tokens, valid = ids(2, B, T), np.ones((B, 4), bool)
    valid[1, :3] = valid[2, 2:] = False

    def run(model):
        def both(tokens, valid):
            cache = model.init_cache(B, T)
            first, cache = model.decode(tokens[:, :4], cache, valid=valid)
            last, cache = model.decode(tokens[:, 4:], cache)
            return jnp.concatenate([first, last], axis=1), cache

        return jax.jit(both)(tokens, valid)

    (left, scan), (right, tuples) = run(one), run(two)
    assert_close(left, right, F32)
    assert scan.length.tolist() == tuples.length.tolist() == [7, 4, 5]
    assert len(tuples.layers) == LAYERS
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *tuples.layers)
    for got, want in zip(
        jax.tree.leaves(scan.layers), jax.tree.leaves(stacked), strict=True
    ):
        assert_close(got, want, F32, "cache")


def test_remat_needs_less_memory():
    """Contract 81: with dropout, what a block kept for its backward pass is gone."""

    def bytes_needed(remat):
        made = models.DecoderConfig(
            vocab_size=VOCAB,
            max_length=96,
            num_layers=6,
            d_model=16,
            num_heads=4,
            dropout_rate=0.1,
            remat=remat,
        )
        graph, state = nnx.split(
            nnx.eval_shape(lambda: models.Decoder(made, rngs=nnx.Rngs(0)))
        )

        def loss(state, tokens, rng):
            return jnp.sum(nnx.merge(graph, state)(tokens, rng=rng) ** 2)

        tokens = jax.ShapeDtypeStruct((4, 96), jnp.int32)
        rng = jax.eval_shape(lambda: jax.random.key(0))
        compiled = jax.jit(jax.grad(loss)).lower(state, tokens, rng).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    block, products, none = map(bytes_needed, ("block", "products", "none"))
    assert block < 0.6 * none
    assert block < products < none


def initial(**options):
    """Initial values, drawn in one compiled function."""
    made = config(**options)
    state = jax.jit(lambda: nnx.state(models.Decoder(made, rngs=nnx.Rngs(3))))()
    return nnx.to_pure_dict(state)


@pytest.fixture(scope="module")
def reference():
    return initial()


def test_a_scan_keeps_one_array_of_the_feed_forward_width():
    graph, state = nnx.split(decoder(num_layers=3))
    tokens = jnp.asarray(ids(0, B, T))

    def kept(state):
        return jax.vjp(lambda s: nnx.merge(graph, s)(tokens), state)[1]

    shapes = [x.shape for x in jax.tree.leaves(jax.eval_shape(kept, state))]
    wide = [shape for shape in shapes if shape[0] == 3 and shape[-1] == F]
    # Beside the weights: what the first product gives, and nothing made from it.
    assert sorted(wide) == [(3, M, F), (3, B * T, F)]


def test_scanned_and_unrolled_layers_start_from_the_same_values(reference):
    got = initial(scan_layers=False)
    want = unrolled(reference)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for left, right in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert_same_bits(left, right)
    first, second = (want["stack"]["blocks"][i] for i in range(LAYERS))
    assert np.any(first["forward"]["up"]["kernel"] != second["forward"]["up"]["kernel"])


@pytest.mark.parametrize("name", ["linear", "factorized_dense", "mixture"])
def test_mechanisms_start_from_the_same_shared_values(name, reference):
    """So that a comparison of mechanisms compares nothing else."""
    got, want = initial(name=name, exclusive=True), reference
    blocks, shared = got["stack"]["blocks"], want["stack"]["blocks"]
    own, its = blocks["attention"].pop("mechanism"), dict(shared["attention"])
    assert jax.tree.leaves(own)
    its.pop("mechanism")
    want = want | {"stack": want["stack"] | {"blocks": shared | {"attention": its}}}
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for (path, left), right in zip(
        jax.tree.leaves_with_path(got), jax.tree.leaves(want), strict=True
    ):
        assert_same_bits(left, right, jax.tree_util.keystr(path))


def test_residual_layers_start_small_in_deep_models():
    """1 / sqrt(2 layers) on the last kernel of each residual branch."""
    wide = {"d_model": 64, "d_ff": 256, "head_dim": 16, "value_dim": 16}
    blocks = initial(num_layers=8, **wide)["stack"]["blocks"]
    output, down = blocks["attention"]["output"], blocks["forward"]["down"]
    assert np.std(output["kernel"]) == pytest.approx((64 * 16) ** -0.5, rel=0.05)
    assert np.std(down["kernel"]) == pytest.approx((256 * 16) ** -0.5, rel=0.05)


@pytest.mark.parametrize("scan_layers", [True, False], ids=["scanned", "unrolled"])
def test_rows_are_taken_of_every_layers_cache(scan_layers):
    """More rows than before, of which one twice; the cache given stays as it is."""
    model, tokens = decoder(scan_layers=scan_layers), jnp.asarray(ids(7, B, T))
    rows = jnp.array([2, 0, 0, 1])

    def both(tokens):
        _, cache = model.decode(tokens[:, :-1], model.init_cache(B, T))
        taken = model.take(cache, rows)
        return taken.length, model.decode(tokens[rows, -1:], taken)[0], model(tokens)

    length, logits, want = jax.jit(both)(tokens)
    assert length.tolist() == [T - 1] * len(rows)
    assert_close(logits[:, 0], want[rows, -1], F32)


def test_a_row_that_a_cache_does_not_have_is_refused(plain_errors):
    model = decoder()
    cache = model.init_cache(B, T)
    with pytest.raises(ValueError, match=rf"rows: got numbers from 0 to {B};.*0 to 2"):
        model.take(cache, jnp.array([0, B]))
    with pytest.raises(TypeError, match=r"rows: got float32\[2\]; expected Int\[k\]"):
        model.take(cache, jnp.zeros(2))
    assert model.take(cache, jnp.zeros(0, int)).length.shape == (0,)
