"""Attention from selected scores beside softmax attention: milliseconds, and counts."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.analysis import partial_flops
from attn_jax.ops import partial_attention, softmax_attention
from benchmarks import clock
from experiments.eigen.config import EigenConfig

BATCH = 8
SOFTMAX, COLUMNS, ROWS = "softmax", "columns", "rows"


def measure(heads: int, width: int, config: EigenConfig) -> dict[str, Any]:
    """Medians of forward passes of one layer, and what four conventions count."""
    n, rng = config.length, np.random.default_rng(config.seed)
    shape = (BATCH, n, heads, width)
    q, k, v = (jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(3))
    ways = {SOFTMAX: partial(softmax_attention, implementation="dense")}
    for r in config.known:
        matrix = jnp.asarray(rng.normal(size=(1, n, n, r)), jnp.float32)
        own = np.stack([rng.permutation(n)[:r] for _ in range(n)])
        for name, chosen in ((COLUMNS, rng.permutation(n)[:r]), (ROWS, own)):
            ways[f"{name}-{r}"] = partial(
                partial_attention,
                selected=jnp.asarray(chosen),
                reconstruction=matrix,
                offset=jnp.zeros(matrix.shape[:3]),
            )
    samples = clock.interleave(
        {name: clock.local(_call(way, q, k, v)) for name, way in ways.items()},
        rounds=config.repeats,
    )
    found = {name: 1e3 * median(seconds) for name, seconds in samples.items()}
    return {
        "batch": BATCH,
        "heads": heads,
        "width": width,
        SOFTMAX: found[SOFTMAX],
        "rows": [
            {
                "known": r,
                COLUMNS: found[f"{COLUMNS}-{r}"],
                ROWS: found[f"{ROWS}-{r}"],
                "saved": partial_flops.savings(n, r, width)._asdict(),
            }
            for r in config.known
        ],
        "break_even": partial_flops.break_even(n, width)._asdict(),
    }


def _call(way: Callable[..., jax.Array], *inputs: jax.Array) -> clock.Call:
    compiled = jax.jit(way)
    return lambda: jax.block_until_ready(compiled(*inputs))
