"""What BERT's files call the parts of an `Encoder`, and how they lay them out.

Weights of projections stand there as (out, in), with the heads inside `out`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attn_jax.interop._family import (
    THEIR_ACTIVATIONS,
    Arrays,
    Family,
    activation,
    check_type,
    refuse,
    sizes,
)
from attn_jax.models import Encoder, EncoderConfig

SIZES = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": "max_length",
    "num_hidden_layers": "num_layers",
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "intermediate_size": "d_ff",
}
FIXED: dict[str, Any] = {
    "positions": "learned",
    "embedding_norm": True,
    "use_bias": True,
    "norm_placement": "post",
}
HEAD_NAMES = ("pooler.", "classifier.", "cls.")
COUNTED = "embeddings.position_ids"  # 0, 1, 2, ...


def encoder_config(config: Mapping[str, Any], names: set[str]) -> EncoderConfig:
    """The config of an `Encoder` with the parts that a file has.

    Raises:
      ValueError: a model of another kind.
    """
    check_type(config, "bert", "BERT")
    positions = config.get("position_embedding_type", "absolute")
    tied = config.get("tie_word_embeddings", True)
    decodes = config.get("is_decoder", False)
    if positions != "absolute" or not tied or decodes:
        refuse(
            f"position_embedding_type {positions!r}, tie_word_embeddings {tied}, "
            f"is_decoder {decodes}",
            "an encoder of the BERT family with absolute positions and tied embeddings",
        )
    return EncoderConfig(
        **sizes(config, SIZES, "BERT"),
        **FIXED,
        num_types=config.get("type_vocab_size", 0),
        pooling="first" if "pooler.dense.weight" in names else "none",
        num_classes=_classes(config) if "classifier.weight" in names else None,
        masked_lm="cls.predictions.transform.dense.weight" in names,
        dropout_rate=config.get("hidden_dropout_prob", 0.1),
        norm_epsilon=config.get("layer_norm_eps", 1e-12),
        activation=activation(config, "hidden_act", "gelu"),
    )


def _classes(config: Mapping[str, Any]) -> int:
    return len(config.get("id2label", (0, 1)))


def bert_config(config: EncoderConfig) -> dict[str, Any]:
    """config.json of an encoder that is one of the BERT family."""
    kind = "ForMaskedLM" if config.masked_lm else "Model"
    found: dict[str, Any] = {
        theirs: getattr(config, ours) for theirs, ours in SIZES.items()
    }
    found |= {
        "model_type": "bert",
        "intermediate_size": config.feed_forward_width,
        "type_vocab_size": config.num_types,
        "layer_norm_eps": config.norm_epsilon,
        "hidden_act": THEIR_ACTIVATIONS[config.activation],
        "hidden_dropout_prob": config.dropout_rate,
        "position_embedding_type": "absolute",
    }
    if config.num_classes is not None:
        kind = "ForSequenceClassification"
        labels = {str(i): f"LABEL_{i}" for i in range(config.num_classes)}
        found |= {"id2label": labels}
    return found | {"architectures": [f"Bert{kind}"]}


def unpack(arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Names without the prefix that models with a head have, and older spellings."""
    return {_plain(name): array for name, array in arrays.items()}


def _plain(name: str) -> str:
    name = name.removeprefix("bert.")
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
    return name.replace("LayerNorm.beta", "LayerNorm.bias")


def pack(arrays: Arrays, config: EncoderConfig) -> Arrays:
    """Names as models with a head have them, where there is one."""
    if not config.masked_lm and config.num_classes is None:
        return arrays
    outside = HEAD_NAMES[1:]
    return {(n if n.startswith(outside) else f"bert.{n}"): x for n, x in arrays.items()}


BERT = Family(
    title="BERT",
    noun="encoder",
    features="learned positions, norms after the layers, biases",
    model=Encoder,
    config=EncoderConfig,
    read_config=encoder_config,
    write_config=bert_config,
    fixed=FIXED,
    said=frozenset(SIZES.values())
    | {"num_types", "norm_epsilon", "activation", "dropout_rate"}
    | {"pooling", "num_classes", "masked_lm"},
    layer="encoder.layer.{}",
    block={
        "attention.mechanism.query_key.query": "attention.self.query",
        "attention.mechanism.query_key.key": "attention.self.key",
        "attention.value": "attention.self.value",
        "attention.output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "forward.up": "intermediate.dense",
        "forward.down": "output.dense",
        "forward_norm": "output.LayerNorm",
    },
    parts={
        "norm": "embeddings.LayerNorm",
        "pooler": "pooler.dense",
        "classes": "classifier",
        "words": "cls.predictions.transform.dense",
        "words_norm": "cls.predictions.transform.LayerNorm",
    },
    arrays={
        "embedding.embedding": "embeddings.word_embeddings.weight",
        "embedding.positions": "embeddings.position_embeddings.weight",
        "embedding.types": "embeddings.token_type_embeddings.weight",
        "words_bias": "cls.predictions.bias",
    },
    out_first=lambda path: True,
    heads=("pooler", "classes", "words"),
    unused=lambda name: name == COUNTED or name.startswith(HEAD_NAMES),
    unpack=unpack,
    pack=pack,
)
