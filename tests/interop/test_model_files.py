"""Models of every kind as a directory of plain files, and back to the bit."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import nn
from attn_jax.interop import model_files
from attn_jax.interop._family import KNOWN
from attn_jax.models import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
)
from attn_jax.ops import relu_features
from attn_jax.train import Checkpointer, adamw, init_train_state
from tests.interop import oracle_bert
from tests.interop.test_gpt2 import assert_same
from tests.nn.cases import filled

SIZES = {
    "vocab_size": 11,
    "max_length": 5,
    "num_layers": 2,
    "d_model": 8,
    "num_heads": 2,
}
MIXTURE = nn.MixtureSynthesizer(
    members=(nn.RandomSynthesizer(trainable=False), nn.Softmax())
)
CONFIGS = {
    "shared map": DecoderConfig(
        **SIZES, mechanism=nn.Partial(rank=2, share_layers=True)
    ),
    "unrolled, 16 bits": DecoderConfig(
        **SIZES,
        mechanism=MIXTURE,
        exclusive=True,
        scan_layers=False,
        param_dtype=jnp.bfloat16,
    ),
    "encoder": EncoderConfig(
        **SIZES, num_types=2, pooling="mean", num_classes=3, masked_lm=True
    ),
    "encoder and decoder": EncoderDecoderConfig(
        **SIZES, cross_mechanism=nn.Linear(feature_map=relu_features)
    ),
    "a layer": nn.AttentionConfig(
        d_model=8, num_heads=2, mechanism=MIXTURE.for_length(5)
    ),
}
KINDS = {
    DecoderConfig: Decoder,
    EncoderConfig: Encoder,
    EncoderDecoderConfig: EncoderDecoder,
    nn.AttentionConfig: nn.Attention,
}


def model(name):
    return built(CONFIGS[name])


def built(config):
    return filled(lambda: KINDS[type(config)](config, rngs=nnx.Rngs(0)))


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_saved_is_loaded_to_the_bit(name, tmp_path):
    want = model(name)
    model_files.save_model(want, tmp_path / "out")
    assert_same(model_files.load_model(tmp_path / "out"), want)
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == ["config.json", "model.safetensors"]


def test_the_file_has_the_names_of_the_parameters(tmp_path):
    want = model("encoder")
    model_files.save_model(want, tmp_path)
    found = oracle_bert.read(tmp_path / "model.safetensors")
    kernel = want.stack.blocks.attention.value.kernel[...]
    np.testing.assert_array_equal(found["stack.blocks.attention.value.kernel"], kernel)
    assert found.keys() == {
        ".".join(map(str, path)) for path, _ in nnx.to_flat_state(nnx.state(want))
    }


def test_a_checkpoint_of_any_model_is_exported(tmp_path):
    want = model("encoder")
    state = init_train_state(nnx.state(want), adamw(1e-3), seed=0)
    with Checkpointer(tmp_path / "checkpoints") as checkpointer:
        checkpointer.save(7, state)
    found = model_files.load_checkpoint(tmp_path / "checkpoints", want.config)
    model_files.save_model(found, tmp_path / "out")
    assert_same(model_files.load_model(tmp_path / "out"), want)


def test_arrays_are_read_and_written_by_name(tmp_path):
    arrays = {"a.b": np.arange(3), "c": np.ones((2, 1), np.float16)}
    model_files.write_arrays(tmp_path / "x.safetensors", arrays)
    found = model_files.read_arrays(tmp_path / "x.safetensors")
    jax.tree.map(np.testing.assert_array_equal, dict(found), arrays)


def test_every_architecture_of_others_is_said_where_it_is_read():
    assert {"attn_jax", *KNOWN} == model_files.ARCHITECTURES.keys()


def unknown(folder, **content):
    (folder / "config.json").write_text(json.dumps(content))
    return model_files.load_model(folder)


def overlapping(folder):
    """A file whose second array lies on the first."""
    path = folder / "x.safetensors"
    model_files.write_arrays(path, {"a": np.arange(4), "b": np.arange(4)})
    path.write_bytes(path.read_bytes().replace(b"[32,64]", b"[16,48]"))
    return model_files.read_arrays(path)


def other(folder, change):
    """A saved model whose file has other arrays than its config says."""
    model_files.save_model(model("shared map"), folder)
    arrays = dict(model_files.read_arrays(folder / "model.safetensors"))
    change(arrays)
    model_files.write_arrays(folder / "model.safetensors", arrays)
    return model_files.load_model(folder)


ERRORS = {
    "an unknown architecture": (
        lambda d: unknown(d, model_type="llama"),
        "architecture: got 'llama'; expected one of attn_jax, bert, gpt2",
    ),
    "one that is nearly known": (
        lambda d: model_files.save_model(model("encoder"), d, architecture="gpt-2"),
        r"got 'gpt-2'; did you mean 'gpt2'\?",
    ),
    "none": (lambda d: unknown(d), "architecture: got 'no model_type'; expected one"),
    "a config of something else": (
        lambda d: unknown(d, format="attn_jax config, version 1", config={}),
        "config .*: got no config .KeyError: 'class'",
    ),
    "a mechanism, which is no model": (
        lambda d: unknown(
            d, format="attn_jax config, version 1", config={"class": "Softmax"}
        ),
        "got no config .TypeError: a Softmax",
    ),
    "an array that is missing": (
        lambda d: other(d, lambda arrays: arrays.pop("embedding.embedding")),
        "model.safetensors: got no embedding.embedding; expected the arrays of config",
    ),
    "arrays that have no place or another shape": (
        lambda d: other(
            d,
            lambda arrays: arrays.update(
                {"x": np.ones(2), "embedding.embedding": np.ones((3, 6))}
            ),
        ),
        r"got x, which has no place; embedding.embedding of shape \(3, 6\) in place of "
        r"\(11, 8\); expected",
    ),
    "whole numbers for weights": (
        lambda d: other(
            d,
            lambda arrays: arrays.update(
                {"embedding.embedding": np.ones((11, 8), np.int32)}
            ),
        ),
        "got embedding.embedding of int32 in place of float32; expected the arrays",
    ),
    "arrays in the same bytes": (overlapping, "got a and b in the same bytes"),
    "a part of a model": (
        lambda d: model_files.save_model(model("encoder").stack, d),
        "model: got Stack; expected one of Decoder, Encoder, EncoderDecoder, Attention",
    ),
    "a decoder where others have encoders": (
        lambda d: model_files.save_model(model("shared map"), d, architecture="bert"),
        "encoder: got Decoder; expected one of class Encoder, which files of the BERT",
    ),
    "a config of no model": (
        lambda d: model_files.load_checkpoint(d, model("encoder")),
        r"config: got Encoder; .* pass that of the model, model\.config",
    ),
    "a function without a name": (
        lambda d: model_files.save_model(
            built(replace(CONFIGS["shared map"], mechanism=nn.Linear(feature_map=abs))),
            d,
        ),
        "config.mechanism.feature_map: got <built-in function abs>",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_does_not_fit_raises(case, tmp_path, plain_errors):
    call, message = ERRORS[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call(tmp_path)
    assert not (tmp_path / "model.safetensors.tmp").exists()
