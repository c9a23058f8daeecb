"""Linear attention has two views: a layer over all tokens, and a recurrent cell."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import nn
from attn_jax.models import Decoder, DecoderConfig
from attn_jax.ops import masks
from attn_jax.ops.feature_maps import relu_features
from tests.nn.cases import F32, SIZES, B, D, E, G, M, T, filled, normal
from tests.nn.errors import assert_raises
from tests.ops.oracles import assert_close, assert_same_bits

LONG = 4096
# Everything that a layer can have at once.
RICH = {"rotary": True, "exclusive": True, "use_bias": True, "qk_norm": True}


def pair(**options):
    """A layer and a cell with its parameters."""
    options = {"mechanism": nn.Linear()} | SIZES | options
    config = nn.AttentionConfig(**options)
    layer = filled(lambda: nn.Attention(config, rngs=nnx.Rngs(0)))
    cell = filled(lambda: nn.LinearAttentionCell(config, rngs=nnx.Rngs(0)), seed=1)
    nnx.update(cell, nnx.state(layer))
    return layer, cell


def causally(layer, x):
    return layer(x, mask=masks.causal())


def recurrently(cell, x):
    return nnx.RNN(cell)(x)


def with_gradients(module, call, x):
    """The output, and the gradients of all parameters and of x."""
    graph, params = nnx.split(module)

    def forward(params, x):
        return call(nnx.merge(graph, params), x)

    def both(params, x):
        out, pullback = jax.vjp(forward, params, x)
        return out, pullback(jnp.cos(out))

    return jax.jit(both)(params, x)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param(RICH, id="rich"),
        pytest.param(
            {"mechanism": nn.Linear(feature_map=relu_features, eps=1e-3)}, id="relu"
        ),
    ],
)
def test_both_views_give_the_same_numbers_and_gradients(options):
    layer, cell = pair(**options)
    x = normal(0, B, T, M)
    want, gradients = with_gradients(layer, causally, x)
    got, others = with_gradients(cell, recurrently, x)
    assert_close(got, want, F32, "output")
    left, right = jax.tree.leaves_with_path(others), jax.tree.leaves(gradients)
    for (path, g), w in zip(left, right, strict=True):
        assert_close(g, w, 10 * F32, jax.tree_util.keystr(path))


def test_parameters_have_the_same_names_and_initial_values():
    """So that either loads the other's."""
    config = nn.AttentionConfig(mechanism=nn.Linear(), **SIZES, **RICH)
    one, other = (
        nnx.to_flat_state(nnx.state(kind(config, rngs=nnx.Rngs(3))))
        for kind in (nn.Attention, nn.LinearAttentionCell)
    )
    assert [path for path, _ in one] == [path for path, _ in other]
    for (path, x), (_, y) in zip(one, other, strict=True):
        assert_same_bits(y[...], x[...], str(path))


def test_a_layer_takes_the_parameters_of_a_cell():
    layer, cell = pair(**RICH)
    there = filled(lambda: nn.Attention(layer.config, rngs=nnx.Rngs(0)), seed=2)
    nnx.update(there, nnx.state(cell))
    x = normal(0, B, T, M)
    run = jax.jit(causally)
    assert_same_bits(run(there, x), run(layer, x), "output")


def in_pieces(decode, cache, x, size):
    """Decodes x: b t m in pieces of `size` tokens, and what is left over at the end."""
    count = x.shape[1] // size
    whole = x[:, : count * size].reshape(x.shape[0], count, size, *x.shape[2:])

    def piece(cache, tokens):
        y, cache = decode(tokens, cache)
        return cache, y

    cache, out = jax.lax.scan(piece, cache, jnp.swapaxes(whole, 0, 1))
    out = jnp.swapaxes(out, 0, 1)
    rest, _ = decode(x[:, count * size :], cache)
    out = out.reshape(x.shape[0], count * size, *out.shape[3:])
    return jnp.concatenate([out, rest], axis=1)


@pytest.fixture(scope="module")
def at_once():
    """A layer, its cell, 4,096 tokens, and what the layer decodes of them at once."""
    layer, cell = pair(**RICH)
    x = normal(0, 1, LONG, M)
    run = jax.jit(lambda x: layer.decode(x, layer.init_cache(1, LONG))[0])
    return layer, cell, x, run(x)


def test_decoding_at_once_is_the_full_pass(at_once):
    layer, _, x, want = at_once
    assert_close(jax.jit(lambda x: causally(layer, x))(x), want, F32)


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_decoding_in_pieces_equals_decoding_at_once(at_once, size):
    layer, _, x, want = at_once
    got = jax.jit(
        lambda x: in_pieces(layer.decode, layer.init_cache(1, LONG), x, size)
    )(x)
    assert_close(got, want, F32)
    # The last tokens read sums over thousands: no error may have gathered there.
    assert_close(got[:, -9:], want[:, -9:], F32, "the end")


def test_a_recurrent_network_equals_decoding_at_once(at_once):
    _, cell, x, want = at_once
    got = jax.jit(recurrently)(cell, x)
    assert_close(got, want, F32)
    assert_close(got[:, -9:], want[:, -9:], F32, "the end")


def test_a_decoder_whose_layer_is_a_cell():
    """docs/linear.md at full length: logits of a model that reads token by token."""
    config = DecoderConfig(
        vocab_size=11,
        max_length=LONG,
        num_layers=1,
        d_model=M,
        num_heads=2,
        mechanism=nn.Linear(),
        positions="learned",
        scan_layers=False,
    )
    decoder = filled(lambda: Decoder(config, rngs=nnx.Rngs(0)))
    block = decoder.stack.blocks[0]
    layer = block.attention.config
    cell = filled(lambda: nn.LinearAttentionCell(layer, rngs=nnx.Rngs(0)), seed=1)
    nnx.update(cell, nnx.state(block.attention))

    def step(carry, token):
        x = decoder.embedding(token, carry.position)
        carry, y = cell(carry, block.attention_norm(x))
        x = x + y
        x = x + block.forward(block.forward_norm(x))
        return carry, decoder.embedding.logits(decoder.stack.norm(x))

    def both(tokens):
        at_once, _ = decoder.decode(tokens, decoder.init_cache(1, LONG))
        start = cell.initialize_carry((1, M))
        _, recurrent = jax.lax.scan(step, start, tokens.T)
        return at_once, recurrent.swapaxes(0, 1)

    tokens = np.random.default_rng(0).integers(0, 11, (1, LONG), np.int32)
    want, got = jax.jit(both)(tokens)
    assert_close(got, want, F32)


def test_rows_of_several_lengths_in_time_major_order():
    """seq_lengths: the carry is that after each row's last token, and goes on."""
    layer, cell = pair(**RICH)
    x, lengths = normal(0, B, T, M), jnp.array([T, 2, 5])
    more = normal(1, B, 3, M)

    def run(cell, x, more):
        rnn = nnx.RNN(cell, time_major=True, return_carry=True)
        carry, y = rnn(jnp.swapaxes(x, 0, 1), seq_lengths=lengths)
        after, z = rnn(jnp.swapaxes(more, 0, 1), initial_carry=carry)
        return y, carry, z, after

    y, carry, z, after = jax.jit(run)(cell, x, more)
    assert_close(jnp.swapaxes(y, 0, 1), jax.jit(causally)(layer, x), F32)
    np.testing.assert_array_equal(carry.position, lengths)
    np.testing.assert_array_equal(after.position, lengths + 3)
    for row, length in enumerate(lengths):
        whole = np.concatenate([x[row, :length], more[row]])[None]
        want = jax.jit(causally)(layer, whole)[0, length:]
        assert_close(z[:, row], want, F32, f"row {row}")


def test_leading_axes_are_any():
    _, cell = pair(**RICH)
    x = normal(0, 2, B, M)
    run = jax.jit(lambda x: cell(cell.initialize_carry(x.shape), x))
    carry, y = run(x)
    assert carry.state.kv.shape == (2, B, G, D, E)
    assert carry.position.shape == (2, B)
    one_carry, one = run(x[1, 2])
    assert one_carry.state.k.shape == (G, D)
    assert_close(one, y[1, 2], F32)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_memory_is_kept_in_float32_at_least(dtype):
    """A running sum in bfloat16 stops growing at 256."""
    layer, cell = pair(dtype=dtype)
    x = normal(0, B, T, M)
    carry, y = jax.jit(lambda cell, x: nnx.RNN(cell, return_carry=True)(x))(cell, x)
    assert y.dtype == dtype
    assert {a.dtype for a in carry.state} == {jnp.dtype(jnp.float32)}
    assert_close(y, jax.jit(causally)(layer, x), F32 if dtype == jnp.float32 else 2e-2)


def test_a_memory_of_fixed_size_needs_linear_attention():
    config = nn.AttentionConfig(d_model=8, num_heads=2)
    assert_raises(
        ValueError,
        lambda: nn.LinearAttentionCell(config, rngs=nnx.Rngs(0)),
        "config.mechanism: got Softmax(); expected Linear()",
        "Attention.decode",
    )


def test_what_does_not_fit_is_refused(plain_errors):
    _, cell = pair()
    x = jnp.ones((B, M))
    carry = cell.initialize_carry(x.shape)
    shape = f"expected (*b, {M}), one token"
    assert_raises(
        ValueError, lambda: cell(carry, x[:, 1:]), "inputs: got shape (3, 9)", shape
    )
    assert_raises(
        ValueError,
        lambda: cell.initialize_carry((B, M + 1)),
        "input_shape: got shape (3, 11)",
        shape,
    )
    assert_raises(
        TypeError,
        lambda: cell(carry, x.astype(jnp.int32)),
        "inputs: got dtype int32; expected a floating dtype",
    )
    assert_raises(
        TypeError,
        lambda: cell((carry.state, carry.position), x),
        "carry: got tuple; expected a LinearCarry",
        "initialize_carry(inputs.shape)",
    )
    assert_raises(
        ValueError,
        lambda: cell.initialize_carry(x.shape, carry_init=nnx.initializers.ones),
        "carry_init: got",
        "expected None, since the sums begin at 0",
        "initial_carry=",
    )
