"""What GPT-2's files call the parts of a `Decoder`, and how they lay them out.

Weights of projections stand there as (in, out), with the heads inside `out`, and those
of queries, keys and values side by side in one array.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from attn_jax.interop._family import (
    THEIR_ACTIVATIONS,
    WEIGHTS,
    Arrays,
    Family,
    activation,
    check_type,
    refuse,
    sizes,
)
from attn_jax.models import Decoder, DecoderConfig

SIZES = {
    "vocab_size": "vocab_size",
    "n_positions": "max_length",
    "n_layer": "num_layers",
    "n_embd": "d_model",
    "n_head": "num_heads",
}
FIXED: dict[str, Any] = {"positions": "learned", "use_bias": True}
# Ways to compute that a `Decoder` does not have, and what they have to be.
PLAIN = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
JOINED = ".attn.c_attn."
JOINED_PARTS = ("query", "key", "value")
# Causal masks, which old files hold, and heads of models with other tasks.
UNUSED = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)|lm_head\..*|score\..*")


def decoder_config(config: Mapping[str, Any], names: set[str]) -> DecoderConfig:
    """The config of a `Decoder` of the GPT-2 family.

    Raises:
      ValueError: a model of another kind.
    """
    check_type(config, "gpt2", "GPT-2")
    wrong = [name for name in PLAIN if config.get(name, PLAIN[name]) != PLAIN[name]]
    if wrong:
        got = ", ".join(f"{name} {config[name]}" for name in wrong)
        refuse(got, ", ".join(f"{name} {PLAIN[name]}" for name in wrong))
    return DecoderConfig(
        **sizes(config, SIZES, "GPT-2"),
        **FIXED,
        d_ff=config.get("n_inner"),
        dropout_rate=config.get("resid_pdrop", 0.1),
        norm_epsilon=config.get("layer_norm_epsilon", 1e-5),
        activation=activation(config, "activation_function", "gelu_new"),
        tie_embeddings=config.get("tie_word_embeddings", True),
    )


def gpt2_config(config: DecoderConfig) -> dict[str, Any]:
    """config.json of a decoder that is one of the GPT-2 family."""
    found: dict[str, Any] = {
        theirs: getattr(config, ours) for theirs, ours in SIZES.items()
    }
    return found | {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_inner": config.d_ff,
        "activation_function": THEIR_ACTIVATIONS[config.activation],
        "layer_norm_epsilon": config.norm_epsilon,
        "resid_pdrop": config.dropout_rate,
        "embd_pdrop": config.dropout_rate,
        "attn_pdrop": 0.0,
        "tie_word_embeddings": config.tie_embeddings,
    }


def unpack(arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Names without a prefix; queries, keys and values apart."""
    found = {}
    for full, array in arrays.items():
        name = full.removeprefix("transformer.")
        layer, joined, leaf = name.partition(JOINED)
        if not joined:
            found[name] = array
            continue
        if array.shape[-1] % 3:
            raise ValueError(
                f"{WEIGHTS}: got {full} of shape {array.shape}; expected queries, keys "
                "and values side by side, all as wide"
            )
        for part, one in zip(JOINED_PARTS, np.split(array, 3, axis=-1), strict=True):
            found[f"{layer}{JOINED}{part}.{leaf}"] = one
    return found


def pack(arrays: Arrays, config: DecoderConfig) -> Arrays:
    """Names as a language model has them; queries, keys and values joined."""
    found = {}
    for name, array in arrays.items():
        layer, joined, rest = name.partition(JOINED)
        if joined:
            part, _, leaf = rest.partition(".")
            if part != JOINED_PARTS[0]:
                continue
            three = [arrays[f"{layer}{JOINED}{each}.{leaf}"] for each in JOINED_PARTS]
            name, array = f"{layer}{JOINED}{leaf}", np.concatenate(three, axis=-1)
        found[name if name.startswith("lm_head.") else f"transformer.{name}"] = array
    return found


GPT2 = Family(
    title="GPT-2",
    noun="decoder",
    features="learned positions, norms before the layers, biases",
    model=Decoder,
    config=DecoderConfig,
    read_config=decoder_config,
    write_config=gpt2_config,
    fixed=FIXED,
    said=frozenset(SIZES.values())
    | {"d_ff", "norm_epsilon", "activation", "dropout_rate", "tie_embeddings"},
    layer="h.{}",
    block={
        "attention.mechanism.query_key.query": "attn.c_attn.query",
        "attention.mechanism.query_key.key": "attn.c_attn.key",
        "attention.value": "attn.c_attn.value",
        "attention.output": "attn.c_proj",
        "attention_norm": "ln_1",
        "forward.up": "mlp.c_fc",
        "forward.down": "mlp.c_proj",
        "forward_norm": "ln_2",
    },
    parts={"stack.norm": "ln_f"},
    arrays={
        "embedding.embedding": "wte.weight",
        "embedding.positions": "wpe.weight",
        "embedding.kernel": "lm_head.weight",
    },
    # The head alone is a linear layer of the other kind.
    out_first=lambda path: path[0] == "embedding",
    heads=("embedding.kernel",),
    unused=lambda name: UNUSED.fullmatch(name) is not None,
    unpack=unpack,
    pack=pack,
)
