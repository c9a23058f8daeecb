"""Counts: against the paper's formulas, against real modules and their programs."""

import math

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from attn_jax.analysis import complexity, flops
from attn_jax.models import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    StackConfig,
    count_parameters,
    presets,
)
from attn_jax.nn import (
    MECHANISMS,
    Attention,
    AttentionConfig,
    ConvolutionSynthesizer,
    DenseSynthesizer,
    FactorizedDenseSynthesizer,
    GatedSynthesizer,
    Linear,
    MixtureSynthesizer,
    Partial,
    RandomSynthesizer,
    Softmax,
)
from attn_jax.ops.feature_maps import polynomial_features
from tests.models import cases
from tests.nn.cases import SIZES, D, E, G, H, M, mechanism

T, S = 7, 5
DENSE = Softmax(implementation="dense")
VARIANTS = {
    "dense-shared": DenseSynthesizer(max_length=11, hidden=3, share_heads=True),
    "dense-unbiased": DenseSynthesizer(max_length=11, bias=False),
    "factorized_dense-3": FactorizedDenseSynthesizer(max_length=12, a=3, hidden=9),
    "convolution-shared": ConvolutionSynthesizer(
        max_length=11, kernel=2, share_heads=True
    ),
    "gated-unbiased": GatedSynthesizer(max_length=11, bias=False),
    "random-fixed": RandomSynthesizer(max_length=11, trainable=False),
    "linear-normed": Linear(normalize=False),
    "linear-polynomial": mechanism("linear", feature_map=polynomial_features),
    "partial": Partial(max_length=11, rank=1),
    "partial-shared": Partial(max_length=11, selected=(7, 2), causal=False),
    "partial-heads": Partial(max_length=11, rank=1, share_heads=False),
    "mixture-sum": MixtureSynthesizer(
        members=(RandomSynthesizer(max_length=11), DENSE, Softmax()), normalize="sum"
    ),
    "mixture-sigmoid": MixtureSynthesizer(
        members=(RandomSynthesizer(max_length=11), DENSE), normalize="sigmoid"
    ),
}
ROWS = {name: mechanism(name) for name in MECHANISMS} | VARIANTS


def config(row, **options):
    return AttentionConfig(mechanism=row, **SIZES | options)


def products(jaxpr):
    """Multiply-adds of the products of matrices in a program, loops unrolled."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            summed = math.prod(left[axis] for axis in contracted)
            total += summed * math.prod(equation.outvars[0].aval.shape)
        times = equation.params.get("length", 1)
        for value in jax.tree.leaves(
            equation.params, is_leaf=lambda x: hasattr(x, "jaxpr") or hasattr(x, "eqns")
        ):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                total += times * products(inner)
    return total


def multiply_adds(module, *args):
    graph, params = nnx.split(module)
    program = jax.make_jaxpr(lambda params, *args: nnx.merge(graph, params)(*args))
    return products(program(params, *args).jaxpr)


def size(module):
    return sum(math.prod(x.shape) for x in jax.tree.leaves(nnx.state(module)))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "use_bias": True,
            "qk_norm": True,
            "exclusive": True,
            "exclusive_gate": "tanh",
            "output_gate": True,
            "value_residual": True,
        },
    ],
    ids=["plain", "all"],
)
def test_counts_are_those_of_the_layer(name, options):
    made = config(ROWS[name], **options)
    layer = nnx.eval_shape(lambda: Attention(made, rngs=nnx.Rngs(0)))
    total = flops.attention_flops(made, T).total
    assert total.parameters == size(layer)
    x = jax.ShapeDtypeStruct((T, M), jnp.float32)
    assert total.multiply_adds == multiply_adds(layer, x)


@pytest.mark.parametrize("name", [n for n in ROWS if ROWS[n].cross])
def test_counts_are_those_of_cross_attention(name):
    made = config(ROWS[name])
    layer = nnx.eval_shape(lambda: Attention(made, rngs=nnx.Rngs(0)))
    x, context = (jax.ShapeDtypeStruct((n, M), jnp.float32) for n in (T, S))
    total = flops.attention_flops(made, T, S).total
    assert total.multiply_adds == multiply_adds(layer, x, context)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "use_bias": True,
            "positions": "learned",
            "tie_embeddings": False,
            "norm": "rms",
            "norm_placement": "post",
        },
    ],
    ids=["plain", "other"],
)
def test_counts_are_those_of_the_decoder(name, options):
    made = cases.config(name, **options)
    cost = flops.model_flops(made, T)
    assert cost.total.parameters == count_parameters(made)
    model = nnx.eval_shape(lambda: Decoder(made, rngs=nnx.Rngs(0)))
    if name in ("linear", "partial"):
        # Without the products inside a chunk; with all scores, of which few are kept.
        return
    tokens = jax.ShapeDtypeStruct((T,), jnp.int32)
    assert cost.total.multiply_adds == multiply_adds(model, tokens)


def test_counts_with_positions_beside_the_embedding():
    made = cases.config(positions="concatenated")
    assert flops.model_flops(made, T).total.parameters == count_parameters(made)


def paper(n, m, f, vocab, t, s):
    """Multiply-adds of an encoder and a decoder of n layers, and of the logits."""
    encoder = 4 * s * m**2 + 2 * s**2 * m + 2 * s * m * f
    own = 4 * t * m**2 + 2 * t**2 * m
    cross = 2 * t * m**2 + 2 * s * m**2 + 2 * t * s * m
    return n * encoder, n * (own + cross + 2 * t * m * f), t * m * vocab


@pytest.mark.parametrize("size", ["base", "big"])
def test_the_transformer_reduces_to_the_formulas_of_its_parts(size):
    """h d = h e = m, whatever h."""
    made, t, s = presets[f"transformer-{size}"], 29, 31
    m, f = (512, 2048) if size == "base" else (1024, 4096)
    cost = flops.model_flops(made, t, s)
    encoder, decoder, logits = paper(6, m, f, 37000, t, s)
    assert flops.stack_flops(made.encoder(), s).total.multiply_adds == encoder
    assert flops.stack_flops(made, t, s).total.multiply_adds == decoder
    assert cost.logits == flops.Cost(logits, 0)
    assert cost.total.multiply_adds == encoder + decoder + logits
    cross = flops.stack_flops(made, t, s).cross
    assert cross.scores.multiply_adds == cross.mixing.multiply_adds == 6 * t * s * m
    assert cost.scores.multiply_adds == 6 * (s * s + t * t + t * s) * m
    assert cost.feed_forward.multiply_adds == 6 * 2 * (s + t) * m * f
    assert flops.model_flops(made, t) == flops.model_flops(made, t, t)


PAPERS = [name for name in presets if name.startswith(("transformer", "bert", "xsa"))]
BOTH_WAYS = {"num_encoder_layers": 3, "cross_mechanism": Linear(), "qk_norm": True}
OTHERS = {
    "decoder, post-norm with a last norm": DecoderConfig(
        **cases.SIZES, norm_placement="post", final_norm=True, use_bias=True
    ),
    "decoder, other outputs": DecoderConfig(
        **cases.SIZES, tie_embeddings=False, output_size=6
    ),
    "decoder, pre-norm without": DecoderConfig(
        **cases.SIZES, final_norm=False, embedding_scale="sqrt", embedding_norm=True
    ),
    "decoder, gates in its last layer": DecoderConfig(
        **cases.SIZES,
        exclusive=True,
        exclusive_gate="tanh",
        exclusive_layers=range(-1, 0),
        value_residual=True,
    ),
    "encoder, all heads": EncoderConfig(
        **cases.SIZES,
        num_types=3,
        embedding_norm=True,
        pooling="mean",
        num_classes=3,
        masked_lm=True,
    ),
    "encoder, all heads, biases, RMS, untied": EncoderConfig(
        **cases.SIZES,
        masked_lm=True,
        embedding_norm=True,
        norm="rms",
        tie_embeddings=False,
        use_bias=True,
    ),
    "encoder without heads, untied": EncoderConfig(**cases.SIZES, tie_embeddings=False),
    "encoder whose layers share a map": EncoderConfig(
        **cases.SIZES, mechanism=Partial(causal=False, share_layers=True)
    ),
    "encoder-decoder, linear between": EncoderDecoderConfig(**cases.SIZES, **BOTH_WAYS),
    "encoder-decoder, last norms, learned": EncoderDecoderConfig(
        **cases.SIZES,
        final_norm=True,
        positions="learned",
        tie_embeddings=False,
        use_bias=False,
        encoder_mechanism=RandomSynthesizer(),
    ),
}
PARAMETERS = {name: presets[name] for name in PAPERS} | OTHERS


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_of_the_model(name):
    made = PARAMETERS[name]
    cost = flops.model_flops(made, T)
    assert cost.total.parameters == count_parameters(made)
    assert cost.total == sum(cost, flops.Cost())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"encoder_mechanism": Linear(), "cross_mechanism": Linear()},
        {"mechanism": RandomSynthesizer(), "positions": "learned", **BOTH_WAYS},
    ],
    ids=["softmax", "linear", "other"],
)
def test_counts_are_those_of_the_encoder_decoder(options):
    made = EncoderDecoderConfig(**cases.SIZES | options)
    model = nnx.eval_shape(lambda: EncoderDecoder(made, rngs=nnx.Rngs(0)))
    source, target = (jax.ShapeDtypeStruct((n,), jnp.int32) for n in (S, T))
    total = flops.model_flops(made, T, S).total.multiply_adds
    assert total == multiply_adds(model, source, target)


def test_counts_are_those_of_the_encoder_and_its_heads():
    made = OTHERS["encoder, all heads"]
    model = nnx.eval_shape(lambda: Encoder(made, rngs=nnx.Rngs(0)))
    graph, params = nnx.split(model)

    def everything(params, tokens):
        model = nnx.merge(graph, params)
        x = model(tokens)
        return model.token_logits(x), model.class_logits(x)

    tokens = jax.ShapeDtypeStruct((T,), jnp.int32)
    counted = products(jax.make_jaxpr(everything)(params, tokens).jaxpr)
    # The mean over tokens is a product with ones in the program.
    cost = flops.model_flops(made, T)
    assert cost.total.multiply_adds == counted - T * M
    assert cost.heads.multiply_adds == T * M**2 + M**2 + M * 3
    bare = flops.model_flops(EncoderConfig(**cases.SIZES), T)
    assert bare.logits == bare.heads == flops.Cost()
    stack = flops.stack_flops(made, T).total
    assert bare.total.multiply_adds == stack.multiply_adds


def test_models_that_cannot_be_counted_are_refused():
    made = presets["transformer-base"]
    for lengths, message in (
        ((513, 3), "t: got 513 tokens a row; expected at most max_length = 512"),
        ((3, 513), "s: got 513 tokens a row; expected at most max_length = 512"),
        ((-1, 3), "t: got -1; expected an int >= 0"),
        ((3, -1), "s: got -1; expected an int >= 0"),
    ):
        with pytest.raises(ValueError, match=message):
            flops.model_flops(made, *lengths)
    with pytest.raises(ValueError, match="s: got 3 for EncoderConfig; expected None"):
        flops.model_flops(presets["bert-base"], 3, 3)
    for config in (StackConfig(**cases.SIZES), made.encoder()):
        with pytest.raises(TypeError, match=r"config: got \w+; expected DecoderConfig"):
            flops.model_flops(config, 3)


def test_xla_counts_as_many_operations():
    """Its count, 2 a multiply-add, has the entry-by-entry work on top."""
    n, width = 64, 256
    made = AttentionConfig(d_model=width, num_heads=4, mechanism=DENSE)
    layer = Attention(made, rngs=nnx.Rngs(0))
    lowered = jax.jit(lambda x: layer(x)).lower(jnp.zeros((n, width)))
    counted = 2 * flops.attention_flops(made, n).total.multiply_adds
    assert counted <= lowered.cost_analysis()["flops"] <= 1.01 * counted


@pytest.mark.parametrize("h", [1, 8])
def test_softmax_reduces_to_the_multi_head_formula(h):
    """4 n d² + 2 n² d."""
    n, d = 50, 512
    cost = flops.attention_flops(AttentionConfig(d_model=d, num_heads=h), n)
    assert cost.total.multiply_adds == 4 * n * d**2 + 2 * n**2 * d
    assert cost.projections.multiply_adds == 4 * n * d**2
    assert cost.scores.multiply_adds == cost.mixing.multiply_adds == n**2 * d
    assert cost.total.parameters == 4 * d**2


def test_parts_are_the_equations():
    """Letters of the alphabet, which are different primes here."""
    soft = flops.attention_flops(config(mechanism("softmax")), T, S)
    assert soft.projections.multiply_adds == (
        T * M * H * D + S * M * G * D + S * M * G * E + T * H * E * M
    )
    assert soft.scores.multiply_adds == T * S * H * D
    assert soft.mixing.multiply_adds == T * S * H * E
    line = flops.attention_flops(config(mechanism("linear")), T, S)
    assert line.projections == soft.projections
    assert line.scores.multiply_adds == S * G * D * (E + 1)
    assert line.mixing.multiply_adds == T * H * D * (E + 1)
    rank = flops.attention_flops(config(mechanism("factorized_random", rank=3)), T)
    assert rank.scores == flops.Cost(T * T * H * 3, 2 * H * 11 * 3)
    part = flops.attention_flops(config(mechanism("partial", rank=3)), T)
    assert part.scores == flops.Cost(T * H * 3 * (D + T), 11 * (11 * 3 + 11 + 3))


def test_table_1_of_the_paper():
    """Orders of growth, per layer; self-attention wins where n < d."""
    n, d, k, r = 20, 512, 3, 4
    assert complexity.self_attention(n, d) == (n**2 * d, 1, 1)
    assert complexity.recurrent(n, d) == (n * d**2, n, n)
    operations, sequential, path = complexity.convolutional(n, d, k)
    assert (operations, sequential) == (k * n * d**2, 1)
    assert k**path == pytest.approx(n)
    assert complexity.restricted_self_attention(n, d, r) == (r * n * d, 1, n / r)
    scores = flops.attention_flops(AttentionConfig(d_model=d, num_heads=8), n).scores
    assert scores.multiply_adds == complexity.self_attention(n, d).operations


def test_every_mechanism_has_a_count():
    assert set(MECHANISMS.values()) <= set(flops.COUNTS)


def test_what_cannot_be_counted_is_refused():
    made = config(mechanism("random"))
    with pytest.raises(ValueError, match="t: got 12; expected at most max_length = 11"):
        flops.attention_flops(made, 12)
    with pytest.raises(ValueError, match="s: got 12; expected at most"):
        flops.attention_flops(made, 3, 12)
    with pytest.raises(ValueError, match="t: got -1; expected an int >= 0"):
        flops.attention_flops(made, -1)

    class Other(type(mechanism("softmax")).__mro__[1]):
        pass

    with pytest.raises(TypeError, match="mechanism: got Other, which has no count"):
        flops.attention_flops(config(Other()), 3)


def test_parts_are_imported_on_first_use():
    import attn_jax

    assert attn_jax.analysis.flops is flops
    assert "complexity" in dir(attn_jax.analysis)
    with pytest.raises(AttributeError, match="no_such_part"):
        _ = attn_jax.analysis.no_such_part
