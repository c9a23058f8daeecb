"""What a step needs beside its state, estimated from sizes alone."""

from collections.abc import Mapping, Sequence

from attn_jax.train import Placed
from experiments.scaling.config import ScalingConfig

F32, BF16 = 4, 2


def estimate(
    config: ScalingConfig, placed: Sequence[Placed], mesh: Mapping[str, int]
) -> int:
    """Temporary bytes a device, with blocks recomputed in the backward pass.

    gradients, cut as the parameters are, twice with micro-batches
    + two layers whole but for tensor, in bfloat16, and the embedding in float32
    + what comes into each block
    + what the widest point of one block holds
    + logits and their gradient, in float32
    """
    rows = min(
        config.micro_rows, config.batch_size // max(1, mesh["data"] * mesh["fsdp"])
    )
    tokens = max(1, rows) * config.length // mesh["sequence"]
    params = [each for each in placed if each.name[0] == "params"]
    gradients = sum(each.device_bytes for each in params)
    micro_batches = config.batch_size // (max(1, rows) * mesh["data"] * mesh["fsdp"])
    m, width = config.d_model, config.num_heads * config.head_dim // mesh["tensor"]
    up = 4 * m // mesh["tensor"]
    layer = BF16 * (4 * m * width + 2 * m * up)
    embedding = F32 * config.vocab_size // mesh["tensor"] * m
    coming_in = BF16 * config.num_layers * tokens * m
    block = BF16 * tokens * (4 * m + 4 * width + 3 * up)
    logits = 2 * F32 * tokens * config.vocab_size // mesh["tensor"]
    return (
        gradients * (2 if micro_batches > 1 else 1)
        + 2 * layer
        + embedding
        + coming_in
        + block
        + logits
    )
