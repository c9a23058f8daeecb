"""What BERT's files call the parts of an `Encoder`, and how they lay them out.

Weights of projections stand there as (out, in), with the heads inside `out`.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from attn_jax.models import EncoderConfig

SIZES = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": "max_length",
    "num_hidden_layers": "num_layers",
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "intermediate_size": "d_ff",
}
# What every encoder of the family has.
FAMILY: dict[str, Any] = {
    "positions": "learned",
    "embedding_norm": True,
    "use_bias": True,
    "norm_placement": "post",
}
ACTIVATIONS = {
    "gelu": "gelu_exact",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
}
# A part of a block, with dots between attributes -> its name in a layer of the file.
BLOCK = {
    "attention.mechanism.query_key.query": "attention.self.query",
    "attention.mechanism.query_key.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "forward.up": "intermediate.dense",
    "forward.down": "output.dense",
    "forward_norm": "output.LayerNorm",
}
PARTS = {
    "norm": "embeddings.LayerNorm",
    "pooler": "pooler.dense",
    "classes": "classifier",
    "words": "cls.predictions.transform.dense",
    "words_norm": "cls.predictions.transform.LayerNorm",
}
ARRAYS = {
    "embedding.embedding": "embeddings.word_embeddings.weight",
    "embedding.positions": "embeddings.position_embeddings.weight",
    "embedding.types": "embeddings.token_type_embeddings.weight",
    "words_bias": "cls.predictions.bias",
}
LEAVES = {"kernel": "weight", "scale": "weight", "bias": "bias"}
# Heads, which an encoder may have and a file lack, or the other way round.
HEADS = ("pooler", "classes", "words", "words_norm", "words_bias")
HEAD_NAMES = ("pooler.", "classifier.", "cls.")
COUNTED = "embeddings.position_ids"  # 0, 1, 2, ...


def encoder_config(config: Mapping[str, Any], names: set[str]) -> EncoderConfig:
    """The config of an `Encoder` with the parts that a file has.

    Raises:
      ValueError: a model of another kind.
    """
    kind = config.get("model_type", "bert")
    positions = config.get("position_embedding_type", "absolute")
    activation = config.get("hidden_act", "gelu")
    tied = config.get("tie_word_embeddings", True)
    if not (kind == "bert" and positions == "absolute" and tied) or config.get(
        "is_decoder"
    ):
        raise ValueError(
            f"config.json: got model_type {kind!r}, position_embedding_type "
            f"{positions!r}, tie_word_embeddings {tied}, is_decoder "
            f"{config.get('is_decoder', False)}; expected an encoder of the BERT "
            "family with absolute positions and tied embeddings"
        )
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"config.json: got hidden_act {activation!r}; expected one of "
            f"{', '.join(map(repr, ACTIVATIONS))}"
        )
    missing = [name for name in SIZES if name not in config]
    if missing:
        raise ValueError(
            f"config.json: got none of {', '.join(missing)}; expected the sizes of a "
            "BERT encoder"
        )
    return EncoderConfig(
        **{ours: config[theirs] for theirs, ours in SIZES.items()},
        **FAMILY,
        num_types=config.get("type_vocab_size", 0),
        pooling="first" if "pooler.dense.weight" in names else "none",
        num_classes=_classes(config) if "classifier.weight" in names else None,
        masked_lm="cls.predictions.transform.dense.weight" in names,
        dropout_rate=config.get("hidden_dropout_prob", 0.1),
        norm_epsilon=config.get("layer_norm_eps", 1e-12),
        activation=ACTIVATIONS[activation],
    )


def _classes(config: Mapping[str, Any]) -> int:
    return len(config.get("id2label", (0, 1)))


def bert_config(config: EncoderConfig) -> dict[str, Any]:
    """config.json of an encoder that is one of the BERT family."""
    backwards = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    kind = "ForMaskedLM" if config.masked_lm else "Model"
    sizes = {theirs: getattr(config, ours) for theirs, ours in SIZES.items()}
    found: dict[str, Any] = sizes | {
        "model_type": "bert",
        "intermediate_size": config.feed_forward_width,
        "type_vocab_size": config.num_types,
        "layer_norm_eps": config.norm_epsilon,
        "hidden_act": backwards[config.activation],
        "hidden_dropout_prob": config.dropout_rate,
        "position_embedding_type": "absolute",
    }
    if config.num_classes is not None:
        kind = "ForSequenceClassification"
        labels = {str(i): f"LABEL_{i}" for i in range(config.num_classes)}
        found |= {"id2label": labels}
    return found | {"architectures": [f"Bert{kind}"]}


def plain_name(name: str) -> str:
    """A name without the prefix that models with a head have, and older spellings."""
    name = name.removeprefix("bert.")
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
    return name.replace("LayerNorm.beta", "LayerNorm.bias")


def source(path: tuple[Any, ...]) -> tuple[str, int | None] | None:
    """Where a parameter stands in a file: a name, and its layer or None.

    A name with {} is there once for each layer of a scanned stack. None: nowhere.
    """
    if path[:2] == ("stack", "blocks"):
        layer = path[2] if isinstance(path[2], int) else None
        inner = path[2:] if layer is None else path[3:]
        part = BLOCK.get(".".join(inner[:-1]))
        if part is None:
            return None
        return f"encoder.layer.{{}}.{part}.{LEAVES[inner[-1]]}", layer
    name = ".".join(map(str, path))
    if name in ARRAYS:
        return ARRAYS[name], None
    part, leaf = PARTS.get(".".join(path[:-1])), LEAVES.get(path[-1])
    return None if part is None or leaf is None else (f"{part}.{leaf}", None)


def file_shape(path: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that a parameter of this shape has in a file."""
    if path[-1] == "kernel":
        # Heads are inputs of the output projection, outputs of the others.
        inputs = 2 if path[-2] == "output" else 1
        return math.prod(shape[inputs:]), math.prod(shape[:inputs])
    if path[-1] == "bias":
        return (math.prod(shape),)
    return shape


def from_file(
    array: np.ndarray, path: tuple[Any, ...], shape: tuple[int, ...]
) -> np.ndarray | None:
    """An array of a file as our parameter; None where it does not fit."""
    if path[-1] == "positions" and array.shape[1:] == shape[1:]:
        # A shorter model has the first of them.
        array = array[: shape[0]]
    if array.shape != file_shape(path, shape):
        return None
    return (array.T if path[-1] == "kernel" else array).reshape(shape)


def to_file(array: np.ndarray, path: tuple[Any, ...]) -> np.ndarray:
    """Our parameter as an array of a file."""
    shape = file_shape(path, array.shape)
    return (
        array.reshape(shape[::-1]).T if path[-1] == "kernel" else array.reshape(shape)
    )
