"""The mechanisms whose curves are drawn, as the benchmark's cases."""

from functools import partial

from attn_jax.ops import linear_attention, masks, softmax_attention
from benchmarks.mechanisms import from_qkv, lsh
from benchmarks.problem import Case
from experiments.linear_scaling.config import ScalingConfig


def make_case(name: str, config: ScalingConfig) -> Case:
    """The case of a row: attention of q, k and v, or of qk and v."""
    mask = masks.causal() if config.causal else masks.full()
    kind, _, variant = name.partition("-")
    if kind == "softmax":
        attend = partial(softmax_attention, mask=mask, implementation=variant)
        return Case(name, 2, partial(from_qkv, attend))
    if kind == "lsh":
        return Case(name, 1, partial(lsh, int(variant), config.bucket_size, mask))
    attend = partial(linear_attention, mask=mask)
    return Case(name, 1, partial(from_qkv, attend))
