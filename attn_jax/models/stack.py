"""Blocks one after the other, scanned over stacked parameters or unrolled."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from attn_jax.models.block import Block, make_norm
from attn_jax.models.stack_config import StackConfig
from attn_jax.nn import Shared
from attn_jax.nn._naming import named_rngs
from attn_jax.nn.core import take_rows
from attn_jax.ops._mesh import in_rows
from attn_jax.ops.masks import Mask

# What is kept of a block that is recomputed; nothing where there is no entry.
POLICIES: dict[Any, Any] = {
    "products": jax.checkpoint_policies.dots_with_no_batch_dims_saveable
}


class Layer(NamedTuple):
    """A block, the tokens that come into it, and what it is told of them."""

    block: Block
    x: Float[Array, "*b t m"]
    around: dict[str, Any]  # mask, positions, ...


class Stack(nnx.Module):
    """num_layers blocks and, for pre-norm or where asked, a last norm."""

    def __init__(self, config: StackConfig, *, rngs: nnx.Rngs):
        self.config = config
        blocks, norm = named_rngs(rngs, "blocks", "norm")
        keys = jax.random.split(blocks.params(), config.num_layers)

        def build(key: Key[Array, ""]) -> Block:
            return Block(config, rngs=nnx.Rngs(params=key))

        self.blocks: Any  # one block with stacked parameters, or a list of blocks
        if config.scanned:
            axes = nnx.StateAxes({Shared: None, ...: 0})
            self.blocks = nnx.vmap(build, out_axes=axes)(keys)
        else:
            self.blocks = nnx.List(
                Block(config.at(i), rngs=nnx.Rngs(params=key))
                for i, key in enumerate(keys)
            )
            _tie(self.blocks)
        self.norm = make_norm(config, norm) if config.has_final_norm else None

    def __call__(
        self,
        x: Float[Array, "*b t m"],
        *,
        mask: Mask,
        positions: Any = None,
        context: Float[Array, "*b s m"] | None = None,
        context_mask: Mask | None = None,
        rng: Key[Array, ""] | None = None,
    ) -> Float[Array, "*b t m"]:
        n = self.config.num_layers
        rngs = None if rng is None else jax.random.split(rng, n)

        around = {
            "mask": mask,
            "positions": positions,
            "context": context,
            "context_mask": context_mask,
            "first": self._first_values(x),
        }
        remat = self.config.remat
        if self.config.scanned:
            graph, shared, state = nnx.split(self.blocks, Shared, ...)
            x = _scan(graph, shared, state, x, around, rngs, remat=remat)
        else:
            for i, block in enumerate(self.blocks):
                graph, state = nnx.split(block)
                run = _layer(graph, around, remat)
                x = run((state,), x, None if rngs is None else rngs[i])
        return x if self.norm is None else self.norm(x)

    def weights(self, x: Float[Array, "*b t m"], **around: Any) -> Any:
        """`Block.weights` of every layer, stacked: layer *b h t t, layer *b h t s."""
        layers = self.layers(x, **around)
        found = [block.weights(x, **around) for block, x, around in layers]
        return jax.tree.map(lambda *layers: jnp.stack(layers), *found)

    def layers(self, x: Float[Array, "*b t m"], **around: Any) -> Iterator[Layer]:
        """Every block with what it reads."""
        around["first"] = self._first_values(x)
        for block in self.unstacked():
            yield Layer(block, x, around)
            x = block(x, **around)

    def _first_values(self, x: Float[Array, "*b t m"]) -> Array | None:
        """The first layer's, where the others mix theirs with them."""
        if not self.config.value_residual:
            return None
        block = next(self.unstacked())
        return block.attention.value(block.attention_input(x))

    def unstacked(self) -> Iterator[Block]:
        if not self.config.scanned:
            yield from self.blocks
            return
        graph, shared, state = nnx.split(self.blocks, Shared, ...)
        for i in range(self.config.num_layers):
            yield nnx.merge(graph, shared, jax.tree.map(lambda p, i=i: p[i], state))

    def init_cache(self, batch: int, length: int, dtype: Any) -> Any:
        """One cache a layer, stacked when the layers are."""
        return self._each(
            lambda block: block.attention.init_cache(batch, length, dtype)
        )

    def init_context(
        self, context: Float[Array, "b s m"], *, mask: Mask | None = None
    ) -> Any:
        """What each layer needs of a context, computed once and stacked likewise."""
        return self._each(lambda block: block.cross.init_context(context, mask=mask))

    def _each(self, function: Callable[[Block], Any]) -> Any:
        """The function of each block: a tuple, or one result with stacked arrays."""
        if not self.config.scanned:
            return tuple(map(function, self.blocks))
        graph, shared, state = nnx.split(self.blocks, Shared, ...)
        return jax.vmap(lambda state: function(nnx.merge(graph, shared, state)))(state)

    def decode(
        self,
        x: Float[Array, "b n m"],
        cache: Any,
        context: Any = None,
        *,
        valid: Bool[Array, "b n"] | None = None,
    ) -> tuple[Float[Array, "b n m"], Any]:
        """n more tokens through every layer, its cache and its context."""
        around = {"valid": valid, "first": self._first_values(x)}
        if self.config.scanned:
            parts = nnx.split(self.blocks, Shared, ...)
            x, cache = _scan_decode(*parts, x, cache, context, around)
        else:
            contexts = (None,) * len(cache) if context is None else context
            caches = []
            for block, old, seen in zip(self.blocks, cache, contexts, strict=True):
                x, new = block.decode(x, old, seen, **around)
                caches.append(new)
            cache = tuple(caches)
        return (x if self.norm is None else self.norm(x)), cache

    def take(self, cache: Any, rows: Int[Array, "k"]) -> Any:
        """Every layer's cache with the given rows in place of its own."""
        if self.config.scanned:
            take = self.blocks.attention.take
            return jax.vmap(lambda layer: take(layer, rows))(cache)
        pairs = zip(self.blocks, cache, strict=True)
        return tuple(block.attention.take(layer, rows) for block, layer in pairs)

    def take_context(self, context: Any, rows: Int[Array, "k"]) -> Any:
        """Every layer's context with the given rows in place of its own."""
        if self.config.scanned:
            return jax.vmap(lambda layer: take_rows(layer, rows))(context)
        return take_rows(context, rows)


def _tie(blocks: Any) -> None:
    """Has all blocks use what the first has as `Shared`."""
    found: Any = list(nnx.iter_graph(blocks[0]))
    for path, variable in found:
        if isinstance(variable, Shared):
            for block in blocks:
                holder = block
                for name in path[:-1]:
                    holder = getattr(holder, name)
                setattr(holder, path[-1], variable)


def _layer(graph: Any, around: dict[str, Any], remat: bool | str) -> Any:
    """(parameters, x, rng) -> the block's output, recomputed backwards where asked."""

    def run(parts: tuple[Any, ...], x: Array, rng: Any) -> Array:
        return nnx.merge(graph, *parts)(in_rows(x), **around, rng=rng)

    if remat in (False, "none"):
        return run
    return jax.checkpoint(run, policy=POLICIES.get(remat))


# A scan called eagerly is compiled at every call, since its body is a new function each
# time. Under jit the body is found again by the graph, which is the same.
@partial(jax.jit, static_argnames=("graph", "remat"))
def _scan(
    graph: Any,
    shared: Any,
    state: Any,
    x: Any,
    around: dict[str, Any],
    rngs: Any,
    *,
    remat: bool | str,
) -> Any:
    run = _layer(graph, around, remat)

    def step(x: Array, layer: Any) -> tuple[Array, None]:
        return run((shared, layer[0]), x, layer[1]), None

    return jax.lax.scan(step, x, (state, rngs))[0]


@partial(jax.jit, static_argnames="graph")
def _scan_decode(
    graph: Any,
    shared: Any,
    state: Any,
    x: Any,
    cache: Any,
    context: Any,
    around: dict[str, Any],
) -> Any:
    def step(x: Array, layer: Any) -> tuple[Array, Any]:
        state, cache, context = layer
        return nnx.merge(graph, shared, state).decode(x, cache, context, **around)

    return jax.lax.scan(step, x, (state, cache, context))
