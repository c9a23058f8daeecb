"""Decoders of the GPT-2 family: a small one written to files by an oracle, and back."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax.interop import huggingface, model_files
from attn_jax.models import Decoder, DecoderConfig
from attn_jax.nn import Linear
from tests.interop import oracle_bert, oracle_gpt2
from tests.models.cases import decoder
from tests.nn.cases import filled
from tests.ops.oracles import assert_close

VOCAB, LENGTH, LAYERS, M, HEADS = 23, 9, 2, 12, 3
CONFIG = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "n_ctx": LENGTH,
    "n_embd": M,
    "n_head": HEADS,
    "n_layer": LAYERS,
    "n_positions": LENGTH,
    "resid_pdrop": 0.1,
    "vocab_size": VOCAB,
}
TOKENS = np.random.default_rng(2).integers(VOCAB, size=(3, 7))


def shapes(f=4 * M):
    """What such a file holds, by name."""

    def linear(name, width, out):
        return {f"{name}.weight": (width, out), f"{name}.bias": (out,)}

    def norm(name):
        return {f"{name}.weight": (M,), f"{name}.bias": (M,)}

    found = {"wte.weight": (VOCAB, M), "wpe.weight": (LENGTH, M)} | norm("ln_f")
    for i in range(LAYERS):
        found |= norm(f"h.{i}.ln_1") | norm(f"h.{i}.ln_2")
        found |= linear(f"h.{i}.attn.c_attn", M, 3 * M)
        found |= linear(f"h.{i}.attn.c_proj", M, M)
        found |= linear(f"h.{i}.mlp.c_fc", M, f) | linear(f"h.{i}.mlp.c_proj", f, M)
    return found


def drawn(names):
    rng = np.random.default_rng(0)
    return {
        name: (0.4 * rng.normal(size=shape) + ("ln_" in name)).astype("f4")
        for name, shape in names.items()
    }


def write(folder, arrays, **changes):
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    oracle_bert.write(folder / "model.safetensors", arrays)
    return folder


@pytest.fixture
def directory(tmp_path):
    return write(tmp_path, drawn(shapes()))


def params(model):
    return nnx.to_flat_state(nnx.state(model))


def assert_same(got, want):
    assert got.config == want.config
    for (path, x), (other, y) in zip(params(got), params(want), strict=True):
        assert path == other
        assert x[...].dtype == y[...].dtype
        np.testing.assert_array_equal(x[...], y[...], err_msg=str(path))


def test_a_loaded_decoder_equals_an_independent_forward_pass(directory):
    model = huggingface.load_decoder(directory)
    got = jax.jit(lambda n: model(n))(TOKENS.astype(np.int32))
    want = oracle_gpt2.decoder(drawn(shapes()), TOKENS, heads=HEADS)
    assert_close(got, want, 1e-5)


@pytest.mark.parametrize("scan", [True, False], ids=["scanned", "unrolled"])
def test_a_saved_decoder_is_what_other_libraries_read(scan, directory, tmp_path):
    """Names, layouts and numbers of the original file, to the bit."""
    model = huggingface.load_decoder(directory, scan_layers=scan)
    huggingface.save_decoder(model, tmp_path / "out")
    found = oracle_bert.read(tmp_path / "out" / "model.safetensors")
    want = drawn(shapes())
    assert found.keys() == {f"transformer.{name}" for name in want}
    for name, x in want.items():
        np.testing.assert_array_equal(found[f"transformer.{name}"], x, err_msg=name)
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    kept = {name: value for name, value in CONFIG.items() if name != "n_ctx"}
    assert kept.items() <= written.items()
    again = model_files.load_model(tmp_path / "out", scan_layers=scan)
    assert_same(again, model)


def test_a_head_of_its_own_and_16_bits_come_back(tmp_path):
    config = DecoderConfig(
        vocab_size=VOCAB,
        max_length=LENGTH,
        num_layers=LAYERS,
        d_model=M,
        num_heads=HEADS,
        d_ff=10,
        positions="learned",
        use_bias=True,
        tie_embeddings=False,
        activation="gelu_exact",
        dropout_rate=0.25,
        param_dtype=jnp.bfloat16,
    )
    model = filled(lambda: Decoder(config, rngs=nnx.Rngs(0)))
    model_files.save_model(model, tmp_path, architecture="gpt2")
    again = huggingface.load_decoder(tmp_path, param_dtype=jnp.bfloat16)
    assert_same(again, model)
    arrays = model_files.read_arrays(tmp_path / "model.safetensors")
    assert arrays["lm_head.weight"].shape == (VOCAB, M)
    np.testing.assert_array_equal(
        arrays["lm_head.weight"].T, model.embedding.kernel[...]
    )


def test_older_names_masks_copies_and_parts_of_a_file(directory):
    """Prefixes, causal masks and a copied head; two files with an index."""
    want = huggingface.load_decoder(directory)
    arrays = {f"transformer.{name}": x for name, x in drawn(shapes()).items()}
    arrays["transformer.h.0.attn.bias"] = np.ones((1, 1, LENGTH, LENGTH))
    arrays["transformer.h.1.attn.masked_bias"] = np.array(-1e4)
    arrays["lm_head.weight"] = arrays["transformer.wte.weight"]
    (directory / "model.safetensors").unlink()
    files = {}
    for i, name in enumerate(arrays):
        files.setdefault(f"model-{i % 2}.safetensors", []).append(name)
    for file, names in files.items():
        oracle_bert.write(directory / file, {name: arrays[name] for name in names})
    index = {"weight_map": {name: file for file, ns in files.items() for name in ns}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_same(huggingface.load_decoder(directory), want)


def test_changes_take_the_place_of_what_the_file_says(directory):
    model = huggingface.load_decoder(directory, max_length=5, mechanism=Linear())
    assert model.embedding.positions.shape == (5, M)
    np.testing.assert_array_equal(
        model.embedding.positions[...], drawn(shapes())["wpe.weight"][:5]
    )


def without(directory, name):
    arrays = drawn(shapes())
    arrays.pop(name)
    return huggingface.load_decoder(write(directory, arrays))


def with_config(directory, **changes):
    return huggingface.load_decoder(write(directory, drawn(shapes()), **changes))


ERRORS = {
    "a model of another kind": (
        lambda d: with_config(d, model_type="llama"),
        r"model_type 'llama'; expected 'gpt2', of the GPT-2 family; known are 'bert' "
        r"\(load_encoder\), 'gpt2' \(load_decoder\), and what save_model wrote",
    ),
    "another scale": (
        lambda d: with_config(d, scale_attn_by_inverse_layer_idx=True),
        r"got scale_attn_by_inverse_layer_idx True; expected .* False",
    ),
    "sizes that are not there": (
        lambda d: huggingface.load_decoder(
            (d / "config.json").write_text('{"model_type": "gpt2"}') and d
        ),
        r"config.json: got none of vocab_size, n_positions.*GPT-2",
    ),
    "a config that is no object": (
        lambda d: huggingface.load_decoder((d / "config.json").write_text("[]") and d),
        r"config.json: got list; expected an object",
    ),
    "a weight that is missing": (
        lambda d: without(d, "h.1.mlp.c_fc.bias"),
        r"got no h.1.mlp.c_fc.bias; expected the weights of config.json, 2 layers",
    ),
    "more layers than the decoder has": (
        lambda d: with_config(d, n_layer=1),
        r"got h.1.attn.c_attn.key.bias.*16 such weights in all that this decoder",
    ),
    "another width": (
        lambda d: with_config(d, n_inner=20),
        r"h.0.mlp.c_proj.weight: got shape \(48, 12\); expected \(20, 12\)",
    ),
    "a joined array that is no three": (
        lambda d: huggingface.load_decoder(
            write(d, drawn(shapes() | {"h.0.attn.c_attn.weight": (M, 37)}))
        ),
        r"h.0.attn.c_attn.weight of shape \(12, 37\); expected queries, keys",
    ),
    "a decoder that no config.json describes": (
        lambda d: huggingface.save_decoder(decoder(), d),
        r"decoder: got .*positions = 'rotary'.*GPT-2 family.*save_model",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_does_not_fit_raises(case, directory, plain_errors):
    call, message = ERRORS[case]
    with pytest.raises(ValueError, match=message):
        call(directory)
