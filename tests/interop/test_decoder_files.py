"""A Decoder on disk: configs come back whole, parameters without their optimizer."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax import models, ops
from attn_jax.interop.decoder_files import load_config, load_decoder, save_config
from attn_jax.models import Decoder, DecoderConfig
from attn_jax.nn import (
    MECHANISMS,
    Linear,
    MixtureSynthesizer,
    RandomSynthesizer,
    Softmax,
)
from attn_jax.train import (
    Checkpointer,
    CheckpointMismatchError,
    adamw,
    init_train_state,
)
from tests.train.toy import assert_same_bits

CONFIG = DecoderConfig(
    vocab_size=11, max_length=8, num_layers=2, d_model=8, num_heads=2
)
MIXTURE = MixtureSynthesizer(members=(RandomSynthesizer(trainable=False), Softmax()))


@pytest.mark.parametrize(
    "config",
    [
        *(replace(CONFIG, mechanism=kind()) for kind in MECHANISMS.values()),
        replace(CONFIG, mechanism=MIXTURE, dtype=jnp.bfloat16, exclusive=True),
        replace(CONFIG, mechanism=Linear(feature_map=ops.relu_features, eps=1e-3)),
        replace(CONFIG, embedding_scale="sqrt", head_dim=6, num_kv_heads=1),
        *(one for one in models.presets.values() if isinstance(one, DecoderConfig)),
    ],
    ids=lambda config: f"{type(config.mechanism).__name__}-{config.d_model}",
)
def test_configs_come_back(config, tmp_path):
    save_config(config, tmp_path / "decoder.json")
    found = load_config(tmp_path / "decoder.json")
    assert found == config
    assert hash(found) == hash(config)
    assert [path.name for path in tmp_path.iterdir()] == ["decoder.json"]


def test_presets_go_by_their_names():
    assert load_config("gpt2-small") is models.presets["gpt2-small"]


def _edited(**changes):
    def edit(path):
        save_config(CONFIG, path)
        content = json.loads(path.read_text())
        content["config"] |= changes
        path.write_text(json.dumps(content))

    return edit


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_edited(depth=3), "unexpected keyword argument 'depth'"),
        (_edited(num_heads=3), "num_heads"),
        (_edited(**{"class": "Decoder"}), "no config is called 'Decoder'"),
        (lambda path: path.write_text("{}"), "KeyError: 'format'"),
        (lambda path: path.write_text('{"format": "x", "config": 1}'), "format 'x'"),
        (lambda path: path.write_text("?"), "no config .JSONDecodeError"),
    ],
    ids=["field", "value", "class", "empty", "format", "json"],
)
def test_files_of_something_else_are_refused(write, message, tmp_path):
    path = tmp_path / "decoder.json"
    write(path)
    with pytest.raises(ValueError, match=message):
        load_config(path)


def test_functions_without_a_name_are_refused(tmp_path):
    config = replace(CONFIG, mechanism=Linear(feature_map=lambda x: x * x))
    with pytest.raises(ValueError, match=r"config.mechanism.feature_map: got <functi"):
        save_config(config, tmp_path / "decoder.json")
    assert not list(tmp_path.iterdir())


def test_what_is_no_decoder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'bert-base', a EncoderConfig; expected a De"):
        load_config("bert-base")
    with pytest.raises(FileNotFoundError, match="one of bytes-tiny"):
        load_config(tmp_path / "nowhere.json")
    with pytest.raises(FileNotFoundError, match="numbered checkpoints"):
        load_decoder(tmp_path / "nowhere", CONFIG)


def test_a_decoder_comes_back_from_the_checkpoints_of_a_run(tmp_path):
    shapes = nnx.state(nnx.eval_shape(lambda: Decoder(CONFIG, rngs=nnx.Rngs(0))))
    rng = np.random.default_rng(0)
    states = [
        init_train_state(
            jax.tree.map(lambda x: rng.normal(size=x.shape).astype(x.dtype), shapes),
            adamw(1e-3),
            seed=0,
        )
        for _ in range(2)
    ]
    with Checkpointer(tmp_path) as checkpointer:
        for step, state in enumerate(states):
            checkpointer.save(step, state)
    for step, state in ((None, states[1]), (0, states[0])):
        found = load_decoder(tmp_path, CONFIG, step=step)
        assert_same_bits(nnx.state(found), state.params)
    with pytest.raises(CheckpointMismatchError, match=r"the params in .*, step 1"):
        load_decoder(tmp_path, replace(CONFIG, d_ff=5))
