"""Text that a model writes, byte by byte, with its cache."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Int, Key, PyTree


def make_writer(graph: Any, length: int, temperature: float) -> Any:
    """write(params, prompt, rng) -> the length - n bytes that follow n of a prompt."""

    @jax.jit
    def write(
        params: PyTree, prompt: Int[Array, " n"], rng: Key[Array, ""]
    ) -> Int[Array, " m"]:
        model = nnx.merge(graph, params)
        n = prompt.shape[0]
        given = jnp.zeros((length,), jnp.int32).at[:n].set(prompt)

        def token(carry: Any, i: Array) -> tuple[Any, Array]:
            cache, last = carry
            now = jnp.where(i < n, given[i], last)
            logits, cache = model.decode(now[None, None], cache)
            scores = logits[0, 0] / temperature
            drawn = jax.random.categorical(jax.random.fold_in(rng, i), scores)
            return (cache, drawn.astype(jnp.int32)), now

        start = (model.init_cache(1, length), jnp.zeros((), jnp.int32))
        _, tokens = jax.lax.scan(token, start, jnp.arange(length))
        return tokens[n:]

    return write


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
