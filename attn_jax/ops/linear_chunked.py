"""Linear attention in chunks: matmuls inside, sums between."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from attn_jax.ops._blocks import fill
from attn_jax.ops._linear_block import Sizes, Sums, Tokens, attend_block
from attn_jax.ops._linear_inputs import LinearState, initial_sums, what_counts
from attn_jax.ops._linear_masks import linear_op, require_causal
from attn_jax.ops._shapes import check_qkv, compute_dtype
from attn_jax.ops.feature_maps import FeatureMap, elu_plus_one
from attn_jax.ops.masks import Mask

# Rows (tokens times query heads) that a CPU works on at a time, measured: they stay in
# its cache. An accelerator takes all of them at once.
ROWS_ON_CPU = 4096


@linear_op("feature_map", "normalize", "chunk_size")
def linear_attention_chunked(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b t g d"],
    v: Float[Array, "*b t g e"],
    *,
    mask: Mask | None = None,
    feature_map: FeatureMap = elu_plus_one,
    eps: float | Float[Array, ""] | None = None,
    normalize: bool = True,
    chunk_size: int = 64,
    initial_state: LinearState | None = None,
) -> tuple[Float[Array, "*b t h e"], LinearState]:
    """Causal linear attention in chunks of C tokens: a matmul inside, a sum between.

        Y_c = Q_c S_{c-1} + tril(Q_c K_c^T) V_c,   S_c = S_{c-1} + K_c^T V_c

    with Q, K after phi and S_c by `jax.lax.associative_scan` over the chunks. On CPU
    the chunks come in blocks that fit its cache, one after the other. The backward
    pass keeps the sums before each block and computes those of its chunks again. Any
    length: the last block is filled with tokens that don't count. Reduces to the
    quadratic form when one chunk holds the sequence, to `linear_attention_scan` when
    C = 1.

    Cost: O(t C (p + e) + t p e) time; memory beside inputs and outputs, with B tokens a
    block on CPU, O(B h (p + e) + t p e / B), elsewhere O(t C + t p e / C).

    Reference: Katharopoulos et al. 2020, equations 9-12, a chunk at a time.

    Args:
      q, k, v, mask, feature_map, eps, normalize: as in `linear_attention_scan`.
      chunk_size: C.
      initial_state: the sums over the tokens before these, from an earlier call.

    Returns:
      The outputs, and the state after the last real token (of the last segment).

    Raises:
      ValueError: initial_state together with segments; others as in
        `linear_attention_scan`.
    """
    if not isinstance(chunk_size, int) or chunk_size < 1:
        raise ValueError(f"chunk_size: got {chunk_size!r}; expected an int >= 1")
    check_qkv(q, k, v)
    mask = require_causal(mask, q, k, "linear_attention_chunked")
    *leading, t, h, _ = q.shape
    real, sees, run = what_counts(mask, tuple(leading), t, initial_state is not None)
    dtype = compute_dtype(q, k, v)
    features = jax.eval_shape(lambda k: feature_map(k.astype(dtype)), k)
    dtype = jnp.promote_types(dtype, features.dtype)
    g, e = v.shape[-2:]
    totals = (*leading, g, features.shape[-1], e)
    state = initial_sums(initial_state, mask, totals, dtype)
    if 0 in (*leading, t, h):
        return jnp.zeros((*leading, t, h, e), v.dtype), state
    x = Tokens(q, k, v, real, sees, run)
    b = math.prod(leading)
    x = jax.tree.map(lambda a: a.reshape(b, *a.shape[len(leading) :]), x)
    chunk = min(chunk_size, t)
    sizes = Sizes(*_block_sizes(b, t, h, chunk), chunk, g, dtype, q.ndim)
    attend = partial(
        attend_block,
        sizes=sizes,
        feature_map=feature_map,
        eps=eps,
        normalize=normalize,
    )
    before = LinearState(
        *(a.reshape(b * g, *a.shape[len(leading) + 1 :]) for a in state)
    )
    out, after = _sweep(attend, sizes, before, x)
    after = LinearState(*(a.reshape(*leading, g, *a.shape[1:]) for a in after))
    return out.reshape(*leading, t, h, e), after


def _sweep(
    attend: Any, sizes: Sizes, before: LinearState, x: Tokens
) -> tuple[Float[Array, "b t h e"], LinearState]:
    """All blocks, one after the other; the sums start anew with each example.

    Either a block holds whole examples or an example holds whole blocks.
    """
    b, t = x.q.shape[:2]
    blocks = -(-t // (sizes.n * sizes.c))
    x = _filled(x, blocks * sizes.n * sizes.c)
    rows = b // sizes.examples
    n = rows * blocks
    steps = jax.tree.map(lambda a: a.reshape(n, sizes.tokens, *a.shape[2:]), x)
    u = sizes.examples * sizes.g
    before = LinearState(*(a.reshape(rows, u, *a.shape[1:]) for a in before))
    # In a loop nothing can merge the second computation with the first.
    attend = jax.checkpoint(attend, prevent_cse=n == 1)

    def first(i: Any, tokens: Tokens) -> Sums:
        run = tokens.run
        run = None if run is None else run.reshape(sizes.examples, -1)[:, 0]
        return Sums(before.kv[i], before.k[i], run)

    def step(sums: Sums, now: Any) -> Any:
        i, tokens = now
        begins = partial(jnp.where, i % blocks == 0)
        sums = jax.tree.map(begins, first(i // blocks, tokens), sums)
        sums, out = attend(sums, tokens)
        return sums, (out, LinearState(sums.kv, sums.k))

    start = first(0, jax.tree.map(lambda a: a[0], steps))
    _, (out, after) = jax.lax.scan(step, start, (jnp.arange(n), steps))
    last = slice(blocks - 1, None, blocks)
    after = LinearState(*(a[last].reshape(b * sizes.g, *a.shape[2:]) for a in after))
    length = blocks * sizes.n * sizes.c
    return out.reshape(b, length, *out.shape[2:])[:, :t], after


def _block_sizes(b: int, t: int, h: int, chunk: int) -> tuple[int, int]:
    """Examples and chunks a block."""
    chunks = -(-t // chunk)
    if jax.default_backend() != "cpu":
        return b, chunks
    most = max(1, ROWS_ON_CPU // (h * chunk))
    if chunks <= most:
        return max(n for n in range(1, most // chunks + 1) if b % n == 0), chunks
    blocks = -(-chunks // most)
    return 1, -(-chunks // blocks)


def _filled(x: Tokens, t: int) -> Tokens:
    """Tokens up to length t, of which the last don't count."""
    if x.q.shape[1] == t:
        return x
    if x.real is None:
        x = x._replace(real=jnp.ones(x.k.shape[:2], bool))
    run = None if x.run is None else fill(x.run, 1, t, mode="edge")
    x = jax.tree.map(lambda a: fill(a, 1, t), x._replace(run=None))
    return x._replace(run=run)
