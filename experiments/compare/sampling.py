"""Text that a model writes, byte by byte, with its cache where it can have one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int, Key, PyTree

from attn_jax.models import Decoder
from attn_jax.ops import masks


def make_writer(graph: Any, length: int, temperature: float) -> Any:
    """write(params, prompt, rng) -> the length - n bytes that follow n of a prompt."""

    @jax.jit
    def write(
        params: PyTree, prompt: Int[Array, " n"], rng: Key[Array, ""]
    ) -> Int[Array, " m"]:
        model = nnx.merge(graph, params)
        n = prompt.shape[0]
        given = jnp.zeros((length,), jnp.int32).at[:n].set(prompt)

        def draw(logits: Float[Array, " vocab"], i: Array) -> Int[Array, ""]:
            """What follows byte i."""
            scores = logits / temperature
            drawn = jax.random.categorical(jax.random.fold_in(rng, i), scores)
            return drawn.astype(jnp.int32)

        cached = not model.config.mechanism.cannot_decode
        follow = with_cache if cached else with_full_passes
        return follow(model, given, n, draw)[n:]

    return write


def with_cache(model: Decoder, given: Array, n: int, draw: Any) -> Array:
    """The n bytes given and what follows, one step of decoding a byte."""
    (length,) = given.shape

    def token(carry: Any, i: Array) -> tuple[Any, Array]:
        cache, last = carry
        now = jnp.where(i < n, given[i], last)
        logits, cache = model.decode(now[None, None], cache)
        return (cache, draw(logits[0, 0], i)), now

    start = (model.init_cache(1, length), jnp.zeros((), jnp.int32))
    _, tokens = jax.lax.scan(token, start, jnp.arange(length))
    return tokens


def with_full_passes(model: Decoder, given: Array, n: int, draw: Any) -> Array:
    """The same, one pass over all bytes so far a byte."""
    (length,) = given.shape

    def token(i: Array, tokens: Array) -> Array:
        real = jnp.arange(length) < i
        logits = model(tokens[None], mask=masks.padding(real, real))
        return tokens.at[i].set(draw(logits[0, i - 1], i - 1))

    return jax.lax.fori_loop(n, length, token, given)


def write_text(
    write: Any, params: PyTree, prompt: np.ndarray, *, num_windows: int
) -> np.ndarray:
    """What follows a prompt, over several windows.

    A model reads at most `length` bytes, so the end of a window begins the next one.
    """
    n, written = len(prompt), prompt.astype(np.int32)
    for window in range(num_windows):
        rng = jax.random.key(window)
        more = write(params, jnp.asarray(written[-n:]), rng)
        written = np.concatenate([written, np.asarray(more)])
    return written[n:]
