"""The encoder-decoder beside `torch.nn.Transformer`, on the same weights.

PyTorch has a norm after each stack, the paper none: `final_norm=True`. Embeddings
and output are computed from their definition, in NumPy.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from attn_jax import models
from attn_jax.ops import masks
from tests.models.oracle import layer, sinusoidal
from tests.nn.cases import filled
from tests.ops.oracles import assert_close

B, S, T, VOCAB, M, H, F, LAYERS = 3, 9, 7, 29, 32, 4, 48, 3


def weights(params):
    """Names and arrays of one of PyTorch's layers, from those of a block."""
    out = {}
    names = [("attention", "self_attn"), ("cross", "multihead_attn")]
    for ours, theirs in names:
        if ours not in params:
            continue
        each, core = params[ours], params[ours]["mechanism"]["query_key"]
        parts = [core["query"], core["key"], each["value"]]
        kernels = [part["kernel"].reshape(M, -1).T for part in parts]
        out[f"{theirs}.in_proj_weight"] = np.concatenate(kernels)
        biases = [part["bias"].reshape(-1) for part in parts]
        out[f"{theirs}.in_proj_bias"] = np.concatenate(biases)
        output = each["output"]
        out[f"{theirs}.out_proj.weight"] = output["kernel"].reshape(-1, M).T
        out[f"{theirs}.out_proj.bias"] = output["bias"]
    for ours, theirs in (("up", "linear1"), ("down", "linear2")):
        out[f"{theirs}.weight"] = params["forward"][ours]["kernel"].T
        out[f"{theirs}.bias"] = params["forward"][ours]["bias"]
    norms = ["attention_norm", "cross_norm", "forward_norm"]
    norms = [params[name] for name in norms if name in params]
    for i, norm in enumerate(norms):
        out[f"norm{i + 1}.weight"], out[f"norm{i + 1}.bias"] = (
            norm["scale"],
            norm["bias"],
        )
    return out


def peer(model):
    """PyTorch's model with the weights of ours."""
    params = jax.tree.map(np.array, nnx.to_pure_dict(nnx.state(model)))
    with warnings.catch_warnings():
        # It says that a fast path is not taken, which is as well.
        warnings.simplefilter("ignore")
        module = torch.nn.Transformer(
            d_model=M,
            nhead=H,
            num_encoder_layers=LAYERS,
            num_decoder_layers=LAYERS,
            dim_feedforward=F,
            dropout=0.0,
            batch_first=True,
            norm_first=model.config.norm_placement == "pre",
        )
    state = {}
    for part in ("encoder", "decoder"):
        for i in range(LAYERS):
            named = weights(layer(params[part]["blocks"], i))
            state |= {f"{part}.layers.{i}.{name}": x for name, x in named.items()}
        state[f"{part}.norm.weight"] = params[part]["norm"]["scale"]
        state[f"{part}.norm.bias"] = params[part]["norm"]["bias"]
    module.load_state_dict({name: torch.from_numpy(x) for name, x in state.items()})
    return module, params["embedding"]["embedding"]


def embedded(table, tokens):
    positions = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
    x = table[tokens] * np.sqrt(M) + sinusoidal(positions, M)
    return torch.from_numpy(x.astype(np.float32))


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_equal_to_pytorch_on_the_same_weights(placement, capsys):
    config = models.EncoderDecoderConfig(
        vocab_size=VOCAB,
        max_length=11,
        num_layers=LAYERS,
        d_model=M,
        num_heads=H,
        d_ff=F,
        norm_placement=placement,
        final_norm=True,
    )
    model = filled(lambda: models.EncoderDecoder(config, rngs=nnx.Rngs(0)))
    module, table = peer(model)

    rng = np.random.default_rng(0)
    source, target = (rng.integers(VOCAB, size=(B, n)) for n in (S, T))
    real = np.arange(S) < np.array([[S], [2], [5]])
    seen = np.arange(T) < np.array([[4], [T], [6]])
    causal = torch.ones(T, T, dtype=torch.bool).triu(1)
    hidden = module(
        embedded(table, source),
        embedded(table, target),
        tgt_mask=causal,
        src_key_padding_mask=torch.from_numpy(~real),
        tgt_key_padding_mask=torch.from_numpy(~seen),
        memory_key_padding_mask=torch.from_numpy(~real),
    )
    want = hidden.detach().numpy() @ table.T

    @jax.jit
    def run(source, target, real, seen):
        return model(
            source,
            target,
            source_mask=masks.padding(real, real),
            target_mask=masks.padding(seen, seen),
        )

    got = np.asarray(run(*map(jnp.asarray, (source, target, real, seen))))
    error = np.linalg.norm(got[seen] - want[seen]) / np.linalg.norm(want[seen])
    with capsys.disabled():
        print(f"\n{placement}-norm: relative error {error:.1e}")
    assert_close(got[seen], want[seen], 1e-5)
