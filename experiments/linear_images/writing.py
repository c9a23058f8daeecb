"""How decoders write images, and how long it takes them."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, PyTree

from attn_jax.decoding import sample
from attn_jax.models import Decoder, DecoderConfig
from attn_jax.ops import masks
from experiments.linear_images.heads import Head

BLACK = 0
# Lengths to which a prefix is padded when all of it is read again.
PREFIXES = 8


class Prefix(NamedTuple):
    """What a decoder without a cache remembers: the tokens themselves."""

    tokens: Int[Array, "b n"]  # 0 behind those read so far
    length: Int[Array, ""]


class WithoutCache(nnx.Module):
    """Decodes as `Decoder` does, but reads all tokens again for each new one.

    A prefix is padded to the next of PREFIXES lengths, so that it is compiled for a
    handful of shapes and costs little more than what it holds. What stands behind it is
    masked where causality doesn't keep it out to the bit, as in LSH attention.
    """

    def __init__(self, decoder: Decoder):
        self.decoder = decoder

    @property
    def config(self) -> DecoderConfig:
        return self.decoder.config

    def init_cache(self, batch: int, length: int, dtype: Any = None) -> Prefix:
        return Prefix(jnp.zeros((batch, length), jnp.int32), jnp.zeros((), jnp.int32))

    def decode(
        self,
        tokens: Int[Array, "b n"],
        cache: Prefix,
        *,
        valid: Bool[Array, "b n"] | None = None,
    ) -> tuple[Float[Array, "b n w"], Prefix]:
        if valid is not None:
            raise ValueError(
                "valid: got one; expected None, rows of one length; write ragged rows "
                "with a decoder that has a cache"
            )
        n, longest = tokens.shape[1], cache.tokens.shape[1]
        begin, end = cache.length, cache.length + n
        read = jax.lax.dynamic_update_slice_in_dim(cache.tokens, tokens, begin, axis=1)
        lengths = [size for size in prefix_lengths(longest) if size >= n]

        def reading(size: int) -> Callable[[Array], Array]:
            def last(read: Array) -> Array:
                real = jnp.broadcast_to(jnp.arange(size) < end, (len(read), size))
                causal = self.config.mechanism.causal_to_the_bit
                mask = None if causal else masks.padding(real, real)
                outputs = self.decoder(read[:, :size], mask=mask)
                return jax.lax.dynamic_slice_in_dim(outputs, begin, n, axis=1)

            return last

        fits = jnp.searchsorted(jnp.asarray(lengths), end)
        outputs = jax.lax.switch(fits, [reading(size) for size in lengths], read)
        return outputs, Prefix(read, end)

    def take(self, cache: Prefix, rows: Int[Array, " k"]) -> Prefix:
        return Prefix(cache.tokens[rows], cache.length)


def prefix_lengths(longest: int) -> list[int]:
    """The lengths to which prefixes are padded, at most PREFIXES of them.

    >>> prefix_lengths(20)
    [3, 5, 8, 10, 13, 15, 18, 20]
    """
    return sorted({-(-longest * i // PREFIXES) for i in range(1, PREFIXES + 1)})


def ways(model: DecoderConfig, recompute: bool) -> list[str]:
    """How images are written with a model, the quickest way last.

    "recompute" reads all pixels again for each, where asked for or nothing else can be
    done; "cache" keeps something of each pixel, "state" something whose size doesn't
    depend on their number.
    """
    if model.mechanism.cannot_decode:
        return ["recompute"]
    grows = cache_bytes(model, model.max_length) > cache_bytes(model, 1)
    kept = "cache" if grows else "state"
    return ["recompute", kept] if recompute else [kept]


def cache_bytes(model: DecoderConfig, length: int) -> int:
    """What decoding carries from pixel to pixel of an image of that length."""

    def empty() -> Any:
        return Decoder(model, rngs=nnx.Rngs(0)).init_cache(1, length)

    leaves = jax.tree.leaves(jax.eval_shape(empty))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


class Written(NamedTuple):
    """Images, and what it took to write them.

    pixels: whole rows, what was given in front.
    seconds: of each repetition.
    """

    pixels: np.ndarray
    seconds: list[float]
    compile_seconds: float


def write(
    graph: Any,
    params: PyTree,
    head: Head,
    given: np.ndarray,
    *,
    way: str,
    seed: int,
    repeats: int,
) -> Written:
    """Write images that begin with what is given, `repeats` times the same.

    What is quick is done once before the clock is started.

    Args:
      given: b n, the first n pixels of each; n may be 0.
    """

    def run(params: PyTree, given: Array, rng: Array) -> Array:
        model = nnx.merge(graph, params)
        return sample(
            WithoutCache(model) if way == "recompute" else model,
            given,
            rng=rng,
            max_length=model.config.max_length - given.shape[1],
            bos_id=BLACK,
            sampler=head.sampler,
        )

    arguments = params, jnp.asarray(given, jnp.int32), jax.random.key(seed)
    begin = time.perf_counter()
    compiled = jax.jit(run).lower(*arguments).compile()
    compile_seconds = time.perf_counter() - begin
    if way != "recompute":
        jax.block_until_ready(compiled(*arguments))
    seconds, tokens = [], np.zeros(0)
    for _ in range(repeats):
        begin = time.perf_counter()
        # Copied to the host, so that the clock stops when all pixels are there.
        tokens = np.asarray(compiled(*arguments))
        seconds.append(time.perf_counter() - begin)
    if (tokens < 0).any():
        raise FloatingPointError(
            f"{way}: the model gave NaN or infinity for a pixel to draw; expected "
            "finite numbers; train it with a smaller --learning-rate"
        )
    pixels = np.concatenate([given, tokens], axis=1).astype(np.uint8)
    return Written(pixels, seconds, compile_seconds)
