"""Encoders of the BERT family: a small one written to files by an oracle, and back."""

import json
import logging
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import nn
from attn_jax.interop import _bert, _safetensors, huggingface
from attn_jax.models import Encoder
from attn_jax.ops import masks
from tests.interop import minilm
from tests.interop import oracle_bert as oracle
from tests.interop.small import (
    CONFIG,
    HEADS,
    LAYERS,
    LENGTH,
    TYPES,
    VOCAB,
    WORDS,
    M,
    drawn,
    make,
    shapes,
)
from tests.models.cases import encoder
from tests.nn.cases import filled
from tests.ops.oracles import assert_close, assert_same_bits

TOKENS = np.random.default_rng(2).integers(VOCAB, size=(3, 7))
KINDS = np.random.default_rng(3).integers(TYPES, size=(3, 7))
REAL = np.arange(7) < np.array([[7], [4], [1]])


@pytest.fixture
def directory(tmp_path):
    return make(tmp_path)


def run(model):
    mask = masks.padding(jnp.asarray(REAL), jnp.asarray(REAL))
    return jax.jit(lambda n, types: model(n, types=types, mask=mask))(
        TOKENS.astype(np.int32), KINDS.astype(np.int32)
    )


def expected(arrays):
    wide = {name: np.asarray(x, np.float64) for name, x in arrays.items()}
    return oracle.encoder(wide, TOKENS, KINDS, REAL, heads=HEADS)


def test_a_loaded_encoder_equals_an_independent_forward_pass(directory):
    model = huggingface.load_encoder(directory)
    assert model.config.pooling == "first"
    got, want = run(model), expected(drawn(shapes()))
    assert_close(got[REAL], want[REAL], 1e-5)
    pooled = np.tanh(oracle.linear(drawn(shapes()), "pooler.dense", want[:, 0]))
    mask = masks.padding(jnp.asarray(REAL), jnp.asarray(REAL))
    assert_close(model.pool(got, mask=mask), pooled, 1e-5)


def test_unrolled_layers_are_the_scanned_ones(directory):
    scanned, unrolled = (
        nnx.to_pure_dict(nnx.state(huggingface.load_encoder(directory, scan_layers=s)))
        for s in (True, False)
    )
    whole = scanned["stack"].pop("blocks")
    blocks = unrolled["stack"].pop("blocks")
    assert len(blocks) == LAYERS
    for i, block in blocks.items():
        jax.tree.map(lambda x, y, i=i: assert_same_bits(x, y[i]), block, whole)
    jax.tree.map(assert_same_bits, unrolled, scanned)


def test_the_check_on_the_real_files_passes_on_small_ones(directory, monkeypatch):
    monkeypatch.setattr(minilm, "SENTENCES", ("The film was badly made.", "Good"))
    path = directory / "config.json"
    path.write_text(json.dumps(CONFIG | {"max_position_embeddings": 64}))
    longer = drawn(shapes() | {"embeddings.position_embeddings.weight": (64, M)})
    oracle.write(directory / "model.safetensors", longer)
    assert minilm.difference(directory) < minilm.CEILING


def test_names_of_models_with_heads_and_older_ones(directory):
    """A prefix, gamma and beta, copies, and heads that are not asked for."""
    arrays = {}
    for name, x in drawn(shapes()).items():
        older = name.replace("Norm.weight", "Norm.gamma").replace(
            "Norm.bias", "Norm.beta"
        )
        arrays[f"bert.{older}"] = x
    arrays["embeddings.position_ids"] = np.arange(LENGTH)[None]
    arrays["cls.seq_relationship.weight"] = np.ones((2, M))
    oracle.write(directory / "model.safetensors", arrays)
    got = huggingface.load_encoder(directory)
    oracle.write(directory / "model.safetensors", drawn(shapes()))
    want = huggingface.load_encoder(directory)
    assert got.config == want.config
    left, right = (nnx.to_pure_dict(nnx.state(model)) for model in (got, want))
    jax.tree.map(assert_same_bits, left, right)


def test_a_head_for_tokens_is_loaded(directory):
    head = {
        "cls.predictions.transform.dense.weight": (M, M),
        "cls.predictions.transform.dense.bias": (M,),
        "cls.predictions.transform.LayerNorm.weight": (M,),
        "cls.predictions.transform.LayerNorm.bias": (M,),
        "cls.predictions.bias": (VOCAB,),
    }
    arrays = drawn(shapes() | head)
    oracle.write(directory / "model.safetensors", arrays)
    model = huggingface.load_encoder(directory)
    assert model.config.masked_lm
    x = expected(arrays)
    part = "cls.predictions.transform"
    hidden = oracle.gelu(oracle.linear(arrays, f"{part}.dense", x))
    hidden = oracle.norm(arrays, f"{part}.LayerNorm", hidden, 1e-12)
    words = arrays["embeddings.word_embeddings.weight"]
    want = hidden @ words.T + arrays["cls.predictions.bias"]
    assert_close(model.token_logits(jnp.asarray(x, jnp.float32)), want, 1e-5)


@pytest.mark.parametrize("heads", ["none", "classes", "words"])
def test_what_is_saved_is_loaded_to_the_bit(heads, tmp_path):
    options = {
        "none": {"pooling": "none"},
        "classes": {"num_classes": 3, "scan_layers": False, "num_layers": 1},
        "words": {"masked_lm": True, "pooling": "none"},
    }[heads]
    made = _bert.encoder_config(CONFIG, {"pooler.dense.weight"})
    config = replace(made, **options)
    model = filled(lambda: Encoder(config, rngs=nnx.Rngs(0)))
    huggingface.save_encoder(model, tmp_path / "out")
    again = huggingface.load_encoder(
        tmp_path / "out", scan_layers=model.config.scan_layers
    )
    assert again.config == model.config
    left, right = (nnx.to_pure_dict(nnx.state(m)) for m in (model, again))
    jax.tree.map(np.testing.assert_array_equal, left, right)
    names = oracle.read(tmp_path / "out" / "model.safetensors").keys()
    prefixed = {name.startswith("bert.") for name in names}
    assert prefixed == ({False} if heads == "none" else {False, True})


def test_a_saved_encoder_is_what_other_libraries_read(directory, tmp_path):
    """Names, layouts and numbers of the original file."""
    model = huggingface.load_encoder(directory)
    huggingface.save_encoder(model, tmp_path / "out")
    found = oracle.read(tmp_path / "out" / "model.safetensors")
    want = oracle.read(directory / "model.safetensors")
    assert found.keys() == want.keys()
    for name, x in want.items():
        np.testing.assert_array_equal(found[name], x, err_msg=name)
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written | {"architectures": ["BertModel"]} == written
    assert CONFIG.items() <= written.items()


def test_changes_take_the_place_of_what_the_file_says(directory, caplog):
    """Fewer positions, a classifier, and attention from selected scores."""
    kind = nn.Partial(causal=False, selected=range(7))
    with caplog.at_level(logging.INFO, "attn_jax"):
        model = huggingface.load_encoder(
            directory, max_length=7, num_classes=2, mechanism=kind, dropout_rate=0.0
        )
    for name in ("classes.kernel", "mechanism.reconstruction"):
        assert name in caplog.text
    assert "query" not in caplog.text
    assert model.embedding.positions.shape == (7, M)
    # All keys are selected, so it is softmax attention, but for what is padded.
    got = jax.jit(lambda n, types: model(n, types=types))(
        TOKENS.astype(np.int32), KINDS.astype(np.int32)
    )
    wide = {name: x.astype(np.float64) for name, x in drawn(shapes()).items()}
    want = oracle.encoder(wide, TOKENS, KINDS, np.ones_like(REAL), heads=HEADS)
    assert_close(got, want, 1e-5)
    assert model.class_logits(got).shape == (3, 2)


def without(directory, name):
    arrays = drawn(shapes())
    arrays.pop(name)
    oracle.write(directory / "model.safetensors", arrays)
    return huggingface.load_encoder(directory)


def with_config(directory, **changes):
    (directory / "config.json").write_text(json.dumps(CONFIG | changes))
    return huggingface.load_encoder(directory)


def quantised(directory):
    path, kind = directory / "model.safetensors", b'output.dense.weight": {"dtype": "'
    path.write_bytes(path.read_bytes().replace(kind + b"F32", kind + b"I32"))
    return huggingface.load_encoder(directory)


def cut(directory, count):
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:count])
    return huggingface.load_encoder(directory)


ERRORS = {
    "no directory": (
        lambda d: huggingface.load_encoder(d / "nowhere"),
        r"directory: got .*nowhere, which has no config.json; .*nothing is downloaded",
    ),
    "no tokenizer": (
        lambda d: huggingface.load_tokenizer(d / "nowhere"),
        r"directory: got .*nowhere, which has no tokenizer.json",
    ),
    "a model of another kind": (
        lambda d: with_config(d, model_type="roberta"),
        r"config.json: got model_type 'roberta'.*BERT family",
    ),
    "relative positions": (
        lambda d: with_config(d, position_embedding_type="relative_key"),
        r"config.json: got .*position_embedding_type 'relative_key'",
    ),
    "an activation that is not here": (
        lambda d: with_config(d, hidden_act="silu"),
        r"config.json: got hidden_act 'silu'; expected one of 'gelu'",
    ),
    "a weight that is missing": (
        lambda d: without(d, "encoder.layer.1.output.dense.bias"),
        r"got no encoder.layer.1.output.dense.bias; expected the weights of config",
    ),
    "more layers than the encoder has": (
        lambda d: with_config(d, num_hidden_layers=2),
        r"got encoder.layer.2.*and 16 such weights in all that this encoder has no",
    ),
    "another width": (
        lambda d: huggingface.load_encoder(d, d_ff=21),
        r"layer.0.output.dense.weight: got shape \(12, 20\); expected \(12, 21\)",
    ),
    "more positions": (
        lambda d: huggingface.load_encoder(d, max_length=12),
        r"embeddings.position_embeddings.weight: got shape \(11, 12\); expected "
        r"\(12, 12\)",
    ),
    "attention without queries": (
        lambda d: huggingface.load_encoder(d, mechanism=nn.RandomSynthesizer()),
        r"got encoder.layer.0.attention.self.*a mechanism with queries and keys",
    ),
    "a file cut in its arrays": (
        lambda d: cut(d, 20_000),
        r"model.safetensors: got .* of .* bytes; .*cut short",
    ),
    "a file cut in its header": (
        lambda d: cut(d, 100),
        r"model.safetensors: got 100 bytes, with a header of",
    ),
    "weights that are quantised": (
        quantised,
        r"attention.output.dense.weight: got int32; expected floating numbers",
    ),
    "a file without a header": (
        lambda d: cut(d, 3),
        r"model.safetensors: got 3 bytes",
    ),
    "an encoder that no config.json describes": (
        lambda d: huggingface.save_encoder(encoder(), d),
        r"encoder: got .*positions = 'rotary'.*norm_placement = 'pre'",
    ),
    "another mechanism": (
        lambda d: huggingface.save_encoder(
            huggingface.load_encoder(d, mechanism=nn.Linear()), d
        ),
        r"encoder: got mechanism = Linear.*softmax attention",
    ),
    "no room for a token": (
        lambda d: huggingface.load_tokenizer(d).encode(["a"], length=2),
        r"length: got 2; expected at least 3, since 2 tokens",
    ),
    "pairs that are too few": (
        lambda d: huggingface.load_tokenizer(d).encode(["a", "b"], ["c"], length=6),
        r"pairs: got 1 for 2 texts",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_does_not_fit_raises(case, directory, plain_errors):
    call, message = ERRORS[case]
    with pytest.raises(ValueError, match=message):
        call(directory)


def test_a_tokenizer_that_is_none(directory):
    (directory / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer.json: cannot be read"):
        huggingface.load_tokenizer(directory)


def test_texts_become_rows_of_ids(directory, tmp_path):
    """Cut and padded as asked, not as the file says."""
    tokenizer = huggingface.load_tokenizer(directory)
    assert tokenizer.vocab_size == len(WORDS)
    assert tokenizer.mask_id == 4
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)
    found = tokenizer.encode(["The film was badly made", "good"], length=8)
    ids = [[2, 5, 6, 7, 9, 10, 11, 3], [2, 8, 3, 0, 0, 0, 0, 0]]
    assert found.tokens.tolist() == ids
    assert found.real.tolist() == [[True] * 8, [True] * 3 + [False] * 5]
    assert not found.types.any()
    assert tokenizer.encode(["The film was badly made"], length=4).tokens.tolist() == [
        [2, 5, 6, 3]
    ]
    pair = tokenizer.encode(["good"], ["not bad"], length=7)
    assert pair.tokens.tolist() == [[2, 8, 3, 12, 9, 3, 0]]
    assert pair.types.tolist() == [[0, 0, 0, 1, 1, 1, 0]]
    assert tokenizer.ids("the film") == [5, 6]
    assert tokenizer.decode([2, 9, 10, 11, 3]) == "badly made"
    tokenizer.save(tmp_path / "copy")
    again = huggingface.load_tokenizer(tmp_path / "copy")
    np.testing.assert_array_equal(
        again.encode(["not good"], length=5).tokens,
        tokenizer.encode(["not good"], length=5).tokens,
    )


@pytest.mark.parametrize("dtype", _safetensors.DTYPES.values(), ids=str)
def test_arrays_of_every_dtype_come_back(dtype, tmp_path):
    arrays = {
        "a": np.arange(12).reshape(3, 4).astype(dtype),
        "b.c": np.array(1).astype(dtype),
        "empty": np.zeros((0, 2), dtype),
    }
    _safetensors.write(tmp_path / "x.safetensors", arrays)
    found = _safetensors.read(tmp_path / "x.safetensors")
    assert found.keys() == arrays.keys()
    for name, x in arrays.items():
        assert found[name].dtype == dtype
        np.testing.assert_array_equal(found[name], x)
