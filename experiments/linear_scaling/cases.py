"""The mechanisms whose curves are drawn, as the benchmark's cases."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from attn_jax.ops import linear_attention, lsh_attention, masks, softmax_attention
from benchmarks.mechanisms import from_qkv
from benchmarks.problem import Case, JaxProblem, Size
from experiments.linear_scaling.config import ScalingConfig


def make_case(name: str, config: ScalingConfig) -> Case:
    """The case of a row: attention of q, k and v, or of qk and v."""
    mask = masks.causal() if config.causal else masks.full()
    kind, _, variant = name.partition("-")
    if kind == "softmax":
        attend = partial(softmax_attention, mask=mask, implementation=variant)
        return Case(name, 2, partial(from_qkv, attend))
    if kind == "lsh":
        attend = partial(
            lsh_attention,
            rng=jax.random.key(0),
            num_rounds=int(variant),
            bucket_size=config.bucket_size,
            mask=mask,
        )
        return Case(name, 1, partial(_from_qk_and_v, attend))
    attend = partial(linear_attention, mask=mask)
    return Case(name, 1, partial(from_qkv, attend))


def _from_qk_and_v(attend: Callable[..., Any], size: Size) -> JaxProblem:
    """Queries that are the keys too."""
    return JaxProblem(attend, ((size.qkv, 1.0),) * 2, size.qkv, size.dtype)
