"""Every mechanism of the library, causal, as a case."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from attn_jax.nn import LSH, BottleneckSynthesizer, ConvolutionSynthesizer
from attn_jax.ops import (
    convolution_synthesizer_logits,
    dense_synthesizer_logits,
    exclude_self,
    factorized_dense_attention,
    factorized_random_attention,
    factorized_random_logits,
    gated_synthesizer_logits,
    linear_attention,
    linear_attention_scan,
    lsh_attention,
    masks,
    mix_logits,
    softmax_attention,
    synthesizer_attention,
)
from benchmarks.problem import Case, JaxProblem, Size

CAUSAL = masks.causal()


def from_qkv(function: Callable[..., Any], size: Size) -> JaxProblem:
    """A function of q, k and v."""
    return JaxProblem(function, ((size.qkv, 1.0),) * 3, size.qkv, size.dtype)


def softmax(implementation: str, size: Size) -> JaxProblem:
    attend = partial(softmax_attention, mask=CAUSAL, implementation=implementation)
    return from_qkv(attend, size)


def exclusive(size: Size) -> JaxProblem:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return exclude_self(softmax_attention(q, k, v, mask=CAUSAL), v)

    return from_qkv(attend, size)


def random(size: Size) -> JaxProblem:
    shapes = (((size.heads, size.n, size.n), 1.0), (size.qkv, 1.0))
    attend = partial(synthesizer_attention, mask=CAUSAL)
    return JaxProblem(attend, shapes, size.qkv, size.dtype)


def factorized_random(size: Size) -> JaxProblem:
    factor = ((size.heads, size.n, size.rank), 1.0)
    attend = partial(factorized_random_attention, mask=CAUSAL)
    return JaxProblem(attend, (factor, factor, (size.qkv, 1.0)), size.qkv, size.dtype)


def factorized_random_per_batch(size: Size) -> JaxProblem:
    """The same weights, but every row of the batch has a copy of the factors."""
    factor = ((size.batch, size.heads, size.n, size.rank), 1.0)

    def attend(r1: Any, r2: Any, v: Any) -> Any:
        logits = jnp.einsum("bhtr,bhsr->bhts", r1, r2)
        return synthesizer_attention(logits, v, mask=CAUSAL)

    return JaxProblem(attend, (factor, factor, (size.qkv, 1.0)), size.qkv, size.dtype)


def dense(
    size: Size, *, hidden: int | None = None, taps: int = 1, gated: bool = False
) -> JaxProblem:
    """A dense Synthesizer without biases, its hidden layer convolved or gated."""
    h, m, n = size.heads, size.d_model, size.n
    d = hidden or size.width

    def attend(x: Any, w1: Any, w2: Any, v: Any) -> Any:
        if taps > 1:
            logits = convolution_synthesizer_logits(x, w1, None, w2, None, mask=CAUSAL)
        elif gated:
            logits = gated_synthesizer_logits(x, w1[0], None, w1[1], None, w2, None)
        else:
            logits = dense_synthesizer_logits(x, w1[0], None, w2, None)
        return synthesizer_attention(logits, v, mask=CAUSAL)

    shapes = (
        ((size.batch, n, m), 1.0),
        ((2 if gated else taps, h, m, d), (taps * m) ** -0.5),
        ((h, d, n), d**-0.5),
        (size.qkv, 1.0),
    )
    return JaxProblem(attend, shapes, size.qkv, size.dtype)


def factorized_dense(size: Size) -> JaxProblem:
    a = 2 ** ((size.n.bit_length() - 1) // 2)
    b = -(-size.n // a)
    rows = (size.batch, size.heads, size.n)
    shapes = (((*rows, a), 1.0), ((*rows, b), 1.0), (size.qkv, 1.0))
    attend = partial(factorized_dense_attention, mask=CAUSAL)
    return JaxProblem(attend, shapes, size.qkv, size.dtype)


def mixture(size: Size) -> JaxProblem:
    """Random and factorized random, half and half."""
    h, n = size.heads, size.n

    def attend(logits: Any, r1: Any, r2: Any, alphas: Any, v: Any) -> Any:
        mixed = mix_logits((logits, factorized_random_logits(r1, r2)), alphas)
        return synthesizer_attention(mixed, v, mask=CAUSAL)

    factor = ((h, n, size.rank), 1.0)
    shapes = (((h, n, n), 1.0), factor, factor, ((h, 2), 0.5), (size.qkv, 1.0))
    return JaxProblem(attend, shapes, size.qkv, size.dtype)


def linear(function: Callable[..., Any], size: Size) -> JaxProblem:
    return from_qkv(partial(function, mask=CAUSAL), size)


def from_qk_and_v(function: Callable[..., Any], size: Size) -> JaxProblem:
    """A function of queries that are the keys too, and of v."""
    return JaxProblem(function, ((size.qkv, 1.0),) * 2, size.qkv, size.dtype)


def lsh(num_rounds: int, bucket_size: int, mask: masks.Mask, size: Size) -> JaxProblem:
    attend = partial(
        lsh_attention,
        rng=jax.random.key(0),
        num_rounds=num_rounds,
        bucket_size=bucket_size,
        mask=mask,
    )
    return from_qk_and_v(attend, size)


def visible(size: Size) -> float:
    """Pairs of a query and a key it sees, over rows and heads: half of all."""
    return size.batch * size.heads * size.n**2 / 2


def softmax_operations(size: Size) -> float:
    """Two products over the visible pairs."""
    return 4 * size.width * visible(size)


def linear_operations(size: Size) -> float:
    """The state's update and its reading, of each token."""
    return 4 * size.batch * size.heads * size.n * size.width**2


def lsh_operations(num_rounds: int, bucket_size: int, size: Size) -> float:
    """Rotations for half the buckets, and two products with two chunks, each round."""
    tokens = size.batch * size.heads * size.n
    hashes = 2 * size.width * size.n / (2 * bucket_size)
    return num_rounds * tokens * (hashes + 4 * size.width * 2 * bucket_size)


def synthesizer_operations(rank: int, size: Size, *, rows: int | None = None) -> float:
    """Weights times values; logits of a rank, for `rows` examples."""
    rows = size.batch if rows is None else rows
    logits = 2 * rank * rows * size.heads * size.n**2 / 2
    return 2 * size.width * visible(size) + logits


def dense_operations(
    size: Size, *, hidden: int | None = None, matrices: int = 1
) -> float:
    """A first layer of so many matrices, the second one, the values."""
    width = hidden or size.width
    tokens = size.batch * size.n
    first = 2 * matrices * tokens * size.d_model * size.heads * width
    return first + synthesizer_operations(width, size)


RANK = Size(1, 1).rank
TAPS, NARROW = ConvolutionSynthesizer().kernel, BottleneckSynthesizer().hidden
ROUNDS, BUCKET = LSH().num_rounds, LSH().bucket_size
SOFTMAX = ("softmax", "softmax dense", "softmax blockwise")

CASES = (
    # Softmax computes the logits again in its backward pass: five products for two.
    Case("softmax", 2, partial(softmax, "auto"), softmax_operations, 2.5),
    Case("softmax dense", 2, partial(softmax, "dense"), softmax_operations, 2.5),
    Case(
        "softmax blockwise", 2, partial(softmax, "blockwise"), softmax_operations, 2.5
    ),
    Case("softmax+exclusive", 2, exclusive, softmax_operations, 2.5),
    Case("linear", 1, partial(linear, linear_attention), linear_operations),
    Case("linear scan", 1, partial(linear, linear_attention_scan), linear_operations),
    Case(
        "lsh",
        2,
        partial(lsh, ROUNDS, BUCKET, CAUSAL),
        partial(lsh_operations, ROUNDS, BUCKET),
    ),
    Case("random", 2, random, partial(synthesizer_operations, 0)),
    Case(
        "factorized_random",
        2,
        factorized_random,
        partial(synthesizer_operations, RANK, rows=1),
    ),
    Case("dense", 2, dense, dense_operations),
    Case("factorized_dense", 2, factorized_dense, partial(synthesizer_operations, 0)),
    Case(
        "convolution",
        2,
        partial(dense, taps=TAPS),
        partial(dense_operations, matrices=TAPS),
    ),
    Case(
        "bottleneck",
        2,
        partial(dense, hidden=NARROW),
        partial(dense_operations, hidden=NARROW),
    ),
    Case("gated", 2, partial(dense, gated=True), partial(dense_operations, matrices=2)),
    Case("mixture", 2, mixture, partial(synthesizer_operations, RANK, rows=1)),
)
