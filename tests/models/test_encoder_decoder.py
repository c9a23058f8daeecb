"""The encoder-decoder: against its oracle, under masks, and decoding from a memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import models, nn
from attn_jax.ops import masks
from tests.models import oracle
from tests.models.cases import (
    F32,
    GARBAGE,
    LAYERS,
    LONGEST,
    SHORT,
    VOCAB,
    B,
    D,
    E,
    G,
    H,
    M,
    T,
    encoder_decoder,
    ids,
    placed,
)
from tests.models.test_decoder import count
from tests.nn.cases import Compiled, numbers
from tests.ops.oracles import assert_close, assert_same_bits

S = 9
SOURCE, TARGET = ids(0, B, S), ids(1, B, T)
LENGTHS = np.array([S, 2, 4])
REAL = np.arange(S) < LENGTHS[:, None]

# Mechanisms of the encoder, the decoder and between them.
PAPER = ("softmax", "softmax", "softmax")
ROLES = [
    PAPER,
    ("factorized_random", "linear", "softmax"),
    ("linear", "factorized_random", "linear"),
]


def roles(names):
    encoder, decoder, cross = (nn.MECHANISMS[name]() for name in names)
    return {
        "encoder_mechanism": encoder,
        "mechanism": decoder,
        "cross_mechanism": cross,
    }


ARCHITECTURES = {
    "as in 2017": ({}, PAPER),
    "pre-norm, concatenated, untied": (
        {
            "norm_placement": "pre",
            "position_layout": "concatenated",
            "tie_embeddings": False,
            "use_bias": False,
            "num_encoder_layers": 3,
        },
        PAPER,
    ),
    "post-norm with final norms, rotary, exclusive, gelu": (
        {
            "final_norm": True,
            "positions": "rotary",
            "exclusive": True,
            "activation": "gelu_exact",
            "embedding_scale": None,
            "qk_norm": True,
        },
        ("random", "linear", "linear"),
    ),
    "pre-norm without a last norm, learned, RMS, linear first": (
        {
            "norm_placement": "pre",
            "final_norm": False,
            "positions": "learned",
            "norm": "rms",
            "scan_layers": False,
        },
        ("linear", "dense", "softmax"),
    ),
}


def padded(real):
    return masks.padding(real, real)


def decoded(model, source, real, target, pieces=(3, 4)):
    """Logits in pieces from a cache, and the last cache."""
    memory = model.encode(source, mask=padded(real))
    cache = model.init_cache(memory, T, memory_mask=padded(real))
    outs, start = [], 0
    for length in pieces:
        logits, cache = model.decode(target[:, start : start + length], cache)
        outs.append(logits)
        start += length
    return jnp.concatenate(outs, axis=1), cache


def stacked(params):
    """Blocks of an unrolled model as those of a scanned one."""
    out = dict(params)
    for part in ("encoder", "decoder"):
        blocks = out[part]["blocks"]
        if 0 in blocks:
            rows = [blocks[i] for i in range(len(blocks))]
            out[part] = out[part] | {
                "blocks": jax.tree.map(lambda *x: np.stack(x), *rows)
            }
    return out


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_encoder_decoder_equals_its_oracle_in_float64(architecture, x64):
    options, names = ARCHITECTURES[architecture]
    wide = {"dtype": jnp.float64, "param_dtype": jnp.float64}
    model = encoder_decoder(**wide | roles(names) | options)

    def both(source, target, real):
        full = model(source, target, source_mask=padded(real))
        return full, *decoded(model, source, real, target)

    full, pieces, cache = jax.jit(both)(SOURCE, TARGET, REAL)
    params = stacked(numbers(model))
    want = oracle.encoder_decoder(params, SOURCE, TARGET, model.config, REAL, names)
    assert full.dtype == pieces.dtype == jnp.float64
    assert_close(full, want, 1e-11, "full pass")
    assert_close(pieces, want, 1e-11, "decoding")
    assert cache.length.tolist() == [T] * B


class Model(Compiled):
    """An encoder-decoder on B rows, compiled once for the tests of its roles."""

    def __init__(self, names):
        super().__init__(encoder_decoder(**roles(names)))

        def full(model, source, target, real, seen):
            return model(
                source, target, source_mask=padded(real), target_mask=padded(seen)
            )

        def begin(model, source, real):
            memory = model.encode(source, mask=padded(real))
            return model.init_cache(memory, T, memory_mask=padded(real))

        self._full = self.jit("full", full)
        self.begin = self.jit("begin", begin)
        self.step = self.jit(
            "step",
            lambda model, tokens, cache, valid: model.decode(
                tokens, cache, valid=valid
            ),
        )
        self.take = self.jit("take", lambda model, cache, rows: model.take(cache, rows))

    def full(self, source=SOURCE, target=TARGET, real=REAL, seen=None):
        seen = np.ones(target.shape, bool) if seen is None else seen
        return np.asarray(self._full(source, target, real, seen))


@pytest.fixture(scope="module", params=ROLES, ids="-".join)
def one(request):
    return Model(request.param)


def test_what_pads_a_source_has_no_influence(one):
    """Contract 22: ids that are no tokens, and how many of them there are."""
    want = one.full(np.where(REAL, SOURCE, 5))
    garbage = np.where(REAL, SOURCE, np.resize(GARBAGE, SOURCE.shape))
    assert_same_bits(one.full(garbage), want, "garbage")
    left, real = placed(
        [SOURCE[b, :n] for b, n in enumerate(LENGTHS)],
        [np.arange(S - n, S) for n in LENGTHS],
        S,
    )
    assert_close(one.full(left, real=real), want, F32, "padded on the left")
    one_token = np.arange(S) < 1
    other = one.full(real=np.broadcast_to(one_token, (B, S)))
    assert np.linalg.norm(other - want) > 1e-2 * np.linalg.norm(want)


def test_the_source_reaches_every_logit_and_the_future_none(one):
    want = one.full()
    changed = SOURCE.copy()
    changed[:, 0] = (changed[:, 0] + 1) % VOCAB
    assert np.any(one.full(changed) != want, axis=-1).all()
    for at in (0, 3, T - 1):
        changed = TARGET.copy()
        changed[:, at] = (changed[:, at] + 1) % VOCAB
        after = one.full(target=changed)
        assert_same_bits(after[:, :at], want[:, :at], f"before token {at}")
        assert np.any(after[:, at] != want[:, at], axis=-1).all()


def test_ragged_targets_equal_unpadded_ones(one):
    """Padded on the left, on the right and in between, in both ways."""
    places = [[0, 1, 2, 3], [3, 4, 5, 6], [1, 2, 4, 5]]
    target, seen = placed(TARGET[:, :SHORT], places)
    want = one.full()[:, :SHORT]
    full = one.full(target=target, seen=seen)
    assert np.isfinite(full).all()
    for b, at in enumerate(places):
        assert_close(full[b, at], want[b], F32, f"row {b}")
    cache, done = one.begin(SOURCE, REAL), np.zeros(B, int)
    for counts in ([3, 1, 2], [1, 3, 0]):
        now = [TARGET[b, done[b] : done[b] + n] for b, n in enumerate(counts)]
        tokens, valid = placed(now, [np.arange(3 - n, 3) for n in counts], 3)
        logits, cache = one.step(tokens, cache, valid)
        assert np.isfinite(logits).all()
        for b, n in enumerate(counts):
            right = want[b, done[b] : done[b] + n]
            assert_close(np.asarray(logits)[b, 3 - n :], right, F32, f"row {b}")
        done += counts
    assert cache.length.tolist() == done.tolist()


def test_rows_of_a_cache_go_on_with_their_own_source(one):
    rows = np.array([2, 0, 0, 1])
    valid = np.ones((B, 3), bool)
    cache = one.step(TARGET[:, :3], one.begin(SOURCE, REAL), valid)[1]
    taken = one.take(cache, rows)
    assert taken.length.tolist() == [3] * 4
    tail = ids(4, 4, 3)
    got = one.step(tail, taken, np.ones((4, 3), bool))[0]
    for i, row in enumerate(rows):
        whole = np.concatenate([TARGET[row, :3], tail[i], [0]])
        target = np.broadcast_to(whole, (B, T))
        want = one.full(target=target.astype(np.int32))
        assert_close(got[i], want[row, 3:6], F32, f"row {row}")


def test_a_row_without_a_source_is_finite_and_alone(one):
    """Law 2: attention to nothing gives 0."""
    real = REAL.copy()
    real[1] = False
    logits, want = one.full(real=real), one.full()
    assert np.isfinite(logits).all()
    assert_close(logits[[0, 2]], want[[0, 2]], F32, "the others")
    cache = one.begin(SOURCE, real)
    got, _ = one.step(TARGET[:, :3], cache, np.ones((B, 3), bool))
    assert_close(got, logits[:, :3], F32, "decoding")


def test_what_the_source_needs_is_computed_once(one):
    """Steps leave the context as it is; the linear one has no axis of its length."""
    cache = one.begin(SOURCE, REAL)
    after = one.step(TARGET[:, :3], cache, np.ones((B, 3), bool))[1]
    for got, want in zip(
        jax.tree.leaves(after.context), jax.tree.leaves(cache.context), strict=True
    ):
        assert_same_bits(got, want)
    sums = one.module.config.cross_mechanism == nn.Linear()
    shapes = [x.shape for x in jax.tree.leaves(cache.context.core)]
    assert all(shape[:2] == (LAYERS, B) for shape in shapes)
    assert [S in shape for shape in shapes] == [not sums] * 2


def test_packed_pairs_equal_rows_of_their_own():
    """Segments join source and target of a pair; nothing crosses to another pair."""
    model = encoder_decoder()
    source, target = np.repeat([[0, 1]], [4, S - 4], 1), np.repeat([[0, 1]], [3, 4], 1)

    def packed(x, y, source, target):
        return model(
            x,
            y,
            source_mask=masks.segments(source),
            target_mask=masks.segments(target),
        )

    together = jax.jit(packed)(SOURCE[:1], TARGET[:1], source, target)[0]
    for pair in (0, 1):
        x, y = SOURCE[:1, source[0] == pair], TARGET[:1, target[0] == pair]
        alone = jax.jit(model)(x, y)[0]
        assert_close(together[target[0] == pair], alone, F32, f"pair {pair}")


def test_every_parameter_learns_and_padding_reaches_none():
    model = encoder_decoder(dropout_rate=0.1)
    graph, state = nnx.split(model)
    seen = np.arange(T) < np.array([[T], [3], [5]])
    weights = np.random.default_rng(1).normal(size=(B, T, VOCAB)) * seen[..., None]

    def loss(state, source, target):
        logits = nnx.merge(graph, state)(
            source,
            target,
            source_mask=padded(jnp.asarray(REAL)),
            target_mask=padded(jnp.asarray(seen)),
            rng=jax.random.key(0),
        )
        return jnp.sum(logits * jnp.asarray(weights, logits.dtype))

    run = jax.jit(jax.grad(loss))
    want = run(state, np.where(REAL, SOURCE, 1), np.where(seen, TARGET, 1))
    got = run(state, np.where(REAL, SOURCE, -1), np.where(seen, TARGET, 10**6))
    for (path, a), b in zip(
        jax.tree.leaves_with_path(got), jax.tree.leaves(want), strict=True
    ):
        name = jax.tree_util.keystr(path)
        assert np.isfinite(a).all(), name
        # Softmax does not see what all keys have in common.
        assert np.any(np.abs(a) > 1e-7) or "['key']['bias']" in name, name
        assert_same_bits(a, b, name)


def test_dropout_stands_where_the_paper_has_it():
    """Vaswani et al. 2017, section 5.4: both embeddings, each layer's output."""
    model = encoder_decoder(dropout_rate=0.3, scan_layers=False)
    source, target = jnp.asarray(SOURCE), jnp.asarray(TARGET)
    drawn = jax.make_jaxpr(lambda rng: model(source, target, rng=rng))(
        jax.random.key(0)
    )
    assert count("random_bits", drawn.jaxpr) == 2 + (2 + 3) * LAYERS
    quiet = jax.make_jaxpr(model)(source, target)
    assert count("random_bits", quiet.jaxpr) == 0


def test_initial_sizes_are_the_papers():
    """Embeddings of variance 1 after their factor; no small last kernels."""
    made = models.EncoderDecoderConfig(
        vocab_size=500,
        max_length=8,
        num_layers=4,
        d_model=64,
        num_heads=4,
        positions="learned",
    )
    state = jax.jit(lambda: nnx.state(models.EncoderDecoder(made, rngs=nnx.Rngs(3))))()
    params = nnx.to_pure_dict(state)
    table, blocks = params["embedding"], params["decoder"]["blocks"]
    assert np.std(table["embedding"]) == pytest.approx(1 / 8, rel=0.02)
    assert np.std(table["positions"]) == pytest.approx(1, rel=0.1)
    for kernel, into in (
        (blocks["attention"]["output"]["kernel"], 64),
        (blocks["cross"]["output"]["kernel"], 64),
        (blocks["forward"]["down"]["kernel"], 256),
    ):
        assert np.std(kernel) == pytest.approx(into**-0.5, rel=0.05)
    assert made.encoder().embedding_factor == 8
    pre = models.EncoderDecoderConfig(
        vocab_size=5,
        max_length=8,
        num_layers=4,
        d_model=64,
        num_heads=4,
        norm_placement="pre",
    )
    assert pre.residual_scale == pytest.approx(12**-0.5)
    assert pre.encoder().residual_scale == pytest.approx(8**-0.5)


def test_eager_calls_and_leading_axes():
    model = encoder_decoder()
    source, target = jnp.asarray(ids(0, 2, B, S)), jnp.asarray(ids(1, 2, B, T))
    want = jax.jit(model)(source, target)
    assert_close(model(source, target), want, F32, "eager")
    assert_close(jax.jit(jax.vmap(model))(source, target), want, F32, "vmap")


@pytest.mark.parametrize("names", [PAPER, ("linear",) * 3], ids=["softmax", "linear"])
def test_nothing_in_gives_nothing_out(names):
    """No tokens of source or target, and no rows."""
    model = encoder_decoder(**roles(names))
    for b, s, t in ((B, 0, T), (B, S, 0), (0, S, T)):
        source, target = jnp.zeros((b, s), jnp.int32), jnp.zeros((b, t), jnp.int32)

        def both(source, target):
            cache = model.init_cache(model.encode(source), T)
            return model(source, target), model.decode(target, cache)[0]

        full, got = jax.jit(both)(source, target)
        assert full.shape == (b, t, VOCAB)
        assert np.isfinite(full).all()
        assert_close(got, full, F32)


def test_a_row_without_room_is_nan_and_the_others_go_on(one):
    cache = one.begin(SOURCE, REAL)
    cache = cache._replace(length=jnp.array([T, 0, 0], jnp.int32))
    cache = cache._replace(
        layers=cache.layers._replace(
            length=jnp.broadcast_to(cache.length, cache.layers.length.shape)
        )
    )
    logits, after = one.step(TARGET[:, :3], cache, np.ones((B, 3), bool))
    assert np.isnan(np.asarray(logits)[0]).all()
    assert_close(logits[1:], one.full()[1:, :3], F32)
    assert after.length.tolist() == [T, 3, 3]


def test_sizes_in_tests_tell_axes_apart():
    assert len({B, S, T, M, D, E, G, H, VOCAB, LONGEST}) == 10
