"""Counting parameters without allocating any."""

import math
from typing import Any

import jax
from flax import nnx

from attn_jax.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    StackConfig,
)
from attn_jax.models.decoder import Decoder
from attn_jax.models.encoder import Encoder
from attn_jax.models.encoder_decoder import EncoderDecoder

MODELS: dict[type[StackConfig], Any] = {
    DecoderConfig: Decoder,
    EncoderConfig: Encoder,
    EncoderDecoderConfig: EncoderDecoder,
}


def count_parameters(config: StackConfig, *, embeddings: bool = True) -> int:
    """Numbers a model of this config trains or keeps fixed; allocates none of them.

    Args:
      config: of any model.
      embeddings: whether embeddings of tokens, positions and types (and an untied
        output layer) count.

    Raises:
      TypeError: it is the config of no model.
    """
    build = _model_of(config)
    model = nnx.eval_shape(lambda: build(config, rngs=nnx.Rngs(0)))
    total = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(nnx.state(model)):
        name = jax.tree_util.keystr(path)
        if embeddings or "'embedding'" not in name.split("]")[0]:
            total += math.prod(leaf.shape)
    return total


def _model_of(config: StackConfig) -> Any:
    """The model that a config, or a subclass of it, is of."""
    for kind in type(config).__mro__:
        if kind in MODELS:
            return MODELS[kind]
    names = ", ".join(kind.__name__ for kind in MODELS)
    raise TypeError(
        f"config: got {type(config).__name__}; expected one of {names}, or a subclass; "
        "pass the config that the model is built from"
    )
