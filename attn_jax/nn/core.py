"""What every mechanism offers to `Attention`: a full pass, a cache, a decoding step."""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from attn_jax.ops import alibi_bias, masks
from attn_jax.ops._masking import allowed_for
from attn_jax.ops._mesh import by_tokens
from attn_jax.ops._rows import attend_by_rows
from attn_jax.ops._shapes import lift
from attn_jax.ops.masks import Mask, as_mask

if TYPE_CHECKING:
    from attn_jax.nn.attention_config import AttentionConfig

ALL_MASKS = frozenset({"causal", "window", "prefix", "padding", "segments", "dense"})


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """A row of the mechanism table: a frozen config that says what it can do.

    `masks` are the rules that the mechanism honours, `cross` whether it attends to
    another sequence, `mixes` whether its logits can be mixed with others', `draws`
    whether its core's `attend` takes a key for what is random in training.

    Two laws have exceptions. `causal_to_the_bit` is False where later tokens contribute
    nothing to an output but can change how it is computed; `cannot_decode` says why
    tokens can't be decoded one by one, "" where they can.
    """

    equation: ClassVar[str]
    cost: ClassVar[str]
    function: ClassVar[str]
    paper: ClassVar[str]
    masks: ClassVar[frozenset[str]] = frozenset()
    cross: ClassVar[bool] = False
    mixes: ClassVar[bool] = True
    draws: ClassVar[bool] = False
    causal_to_the_bit: ClassVar[bool] = True
    cannot_decode: ClassVar[str] = ""

    def check(self, mask: Mask) -> None:
        """Raises for what the values in a mask must not be."""

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> "Core":
        """The module that owns the mechanism's parameters."""
        raise NotImplementedError

    @property
    def limit(self) -> int | None:
        """The longest sequence the mechanism can take; None is any."""
        return getattr(self, "max_length", None)

    def for_length(self, max_length: int) -> "Mechanism":
        """The same mechanism, built for max_length where it left that open."""
        if getattr(self, "max_length", 0) is None:
            return replace(self, max_length=max_length)  # pyright: ignore[reportCallIssue]
        return self


class KeyValueCache(NamedTuple):
    """Keys and values of the tokens so far; slot j holds the token at position j."""

    k: Any
    v: Float[Array, "b length g e"]


class Core(nnx.Module):
    """A mechanism without its value and output projections, which all share.

    A core says in `queries` and `keys` what it needs of the tokens, and makes logits of
    it in `logits_of`, which is asked for a block of queries at a time: no mechanism
    holds t x s of them. Decoding writes keys and values where the tokens stand and
    attends to them all.
    """

    def __init__(self, config: "AttentionConfig"):
        self.config = config

    def keys(self, x: Float[Array, "*b s m"], positions: Any) -> Any:
        """What the logits need of the attended tokens; None for nothing."""
        return None

    def queries(
        self,
        x: Float[Array, "*b t m"],
        keys: Any,
        *,
        mask: Mask,
        positions: Any,
        seen: Any,
    ) -> Any:
        """What the logits need of the queries: arrays *#b #h t k, to be cut along t.

        Args:
          positions: Int[*b t] of the queries, None for 0 .. t - 1.
          seen: Int[*b s] of the keys, None for 0 .. s - 1.
        """
        raise NotImplementedError

    def logits_of(
        self, queries: Any, keys: Any, s: int, *, seen: Any
    ) -> Float[Array, "*#b h t s"]:
        """Logits of queries, all or some of them, over the first s keys.

        Args:
          seen: Int[*b s] of these keys, None for 0 .. s - 1.
        """
        raise NotImplementedError

    def logits(
        self,
        x: Float[Array, "*b t m"],
        keys: Any,
        s: int,
        *,
        positions: Any,
        seen: Any,
        mask: Mask | None = None,
    ) -> Float[Array, "*#b h t s"]:
        """Logits of all queries at once, before bias and mask, to look at them."""
        around = {"mask": as_mask(mask), "positions": positions, "seen": seen}
        return self.logits_of(self.queries(x, keys, **around), keys, s, seen=seen)

    def attend(
        self,
        x: Float[Array, "*b t m"],
        keys: Any,
        v: Float[Array, "*b s g e"],
        *,
        mask: Mask,
        positions: Any,
        seen: Any,
    ) -> Float[Array, "*b t h e"]:
        """The mechanism itself, from queries' tokens, keys and values."""
        check_length(v.shape[-3], self.config.mechanism.limit)
        graph, state = nnx.split(self)
        return _attend(graph, state, x, keys, v, mask, positions, seen)

    def finish(self, y: Float[Array, "*b t h e"]) -> Float[Array, "*b t h e"]:
        """What else becomes of each head's weighted sum of values; nothing here."""
        return y

    def bias(self, t: int, s: int, positions: Any, seen: Any) -> Array | None:
        """ALiBi, -slope |p_i - p_j|, where the config asks for it."""
        if not self.config.alibi:
            return None
        h = self.config.num_heads
        if positions is None and seen is None:
            return alibi_bias(h, t, s)
        p = jnp.arange(t) if positions is None else positions
        j = jnp.arange(s) if seen is None else seen
        ndim = max(p.ndim, j.ndim)
        p, j = lift(p, ndim), lift(j, ndim)
        distance = jnp.abs(p[..., :, None] - j[..., None, :])[..., None, :, :]
        return lift(alibi_bias(h, 1, 2)[:, :, 1:], distance.ndim) * distance

    def init_context(
        self,
        context: Float[Array, "b s m"],
        v: Float[Array, "b s g e"],
        *,
        real: Bool[Array, "b s"],
        seen: Int[Array, "b s"] | None,
    ) -> Any:
        """What queries need of a context whose tokens stand at `seen`."""
        return KeyValueCache(self.keys(context, seen), v)

    def attend_context(
        self,
        x: Float[Array, "b t m"],
        context: Any,
        *,
        real: Bool[Array, "b s"],
        positions: Any,
        seen: Int[Array, "b s"] | None,
    ) -> Float[Array, "b t h e"]:
        """Attention of each token of x to all real tokens of the context."""
        k, v = context
        mask = masks.padding(real)
        return self.attend(x, k, v, mask=mask, positions=positions, seen=seen)

    def empty_keys(self, batch: int, length: int, dtype: Any) -> Any:
        """Room for what `keys` returns, of the shapes that it returns."""
        shape = (batch, length, self.config.d_model)
        x = jax.ShapeDtypeStruct(shape, self.config.dtype)
        keys = jax.eval_shape(lambda x: self.keys(x, None), x)
        return jax.tree.map(lambda key: jnp.zeros(key.shape, dtype), keys)

    def init_cache(
        self, batch: int, length: int, v: tuple[int, int], dtype: Any
    ) -> Any:
        """An empty cache for values of g heads and e features, v = (g, e)."""
        empty = jnp.zeros((batch, length, *v), dtype)
        return KeyValueCache(self.empty_keys(batch, length, dtype), empty)

    def decode(
        self,
        x: Float[Array, "b n m"],
        v: Float[Array, "b n g e"],
        cache: Any,
        *,
        length: Int[Array, "b"],
        real: Bool[Array, "b n"],
    ) -> tuple[Float[Array, "b n h e"], Any]:
        """n more tokens after the `length` in the cache; the real ones come first."""
        positions = length[:, None] + jnp.arange(x.shape[1])[None, :]
        slots = jnp.where(real, positions, cache.v.shape[1])
        new = KeyValueCache(self.keys(x, positions), v)
        cache = jax.tree.map(lambda old, now: _write(old, now, slots), cache, new)
        every = jnp.ones(cache.v.shape[:2], bool)
        mask = masks.causal().offset(length) & masks.padding(every, real)
        out = self.attend(
            x, cache.k, cache.v, mask=mask, positions=positions, seen=None
        )
        return out, cache


@partial(jax.jit, static_argnames="graph")
def _attend(
    graph: Any,
    state: Any,
    x: Array,
    keys: Any,
    v: Array,
    mask: Mask,
    positions: Any,
    seen: Any,
) -> Float[Array, "*b t h e"]:
    """`Core.attend`. Called eagerly, a loop over blocks is compiled once."""
    core: Core = nnx.merge(graph, state)
    h, t, s = core.config.num_heads, x.shape[-2], v.shape[-3]
    rows = core.queries(x, keys, mask=mask, positions=positions, seen=seen), None
    if core.config.alibi:
        places = jnp.arange(t) if positions is None else positions
        rows = rows[0], places[..., None, :, None]
    allowed = allowed_for(mask, v.shape[:-3], h, t, s)
    attend = partial(_attend_rows, graph, mask)
    return by_tokens(attend, t, (rows, allowed), (state, keys, v, seen))


def _attend_rows(
    graph: Any, mask: Mask, mine: tuple[Any, Any], whole: tuple[Any, Any, Array, Any]
) -> Float[Array, "*b t h e"]:
    """Attention of some queries, made ready, to all keys and values."""
    (rows, allowed), (state, keys, v, seen) = mine, whole
    core: Core = nnx.merge(graph, state)

    def logits(s: int, rows: Any) -> Array:
        queries, places = rows
        first = None if seen is None else seen[..., :s]
        out = core.logits_of(queries, keys, s, seen=first)
        if places is None:
            return out
        bias: Any = core.bias(places.shape[-2], s, places[..., 0, :, 0], first)
        ndim = max(out.ndim, bias.ndim)
        return lift(out, ndim) + lift(bias, ndim)

    return attend_by_rows(logits, rows, v, mask=mask, allowed=allowed)


def check_length(s: int, limit: int | None) -> None:
    """Raises where a sequence is longer than a Synthesizer was built for."""
    if limit is not None and s > limit:
        raise ValueError(
            f"x: got {s} tokens; expected at most max_length = {limit}, the length "
            "this Synthesizer was built for; build it for a longer one or shorten the "
            "input"
        )


def take_rows(cache: Any, rows: Int[Array, "k"]) -> Any:
    """The given rows of every leaf, whose first axis is the batch."""
    return jax.tree.map(lambda x: jnp.take(x, rows, axis=0, mode="clip"), cache)


def _write(old: Array, new: Array, slots: Int[Array, "b n"]) -> Array:
    """Puts each row's tokens into its slots; a slot past the end is dropped."""
    put = jax.vmap(lambda o, n, i: o.at[i].set(n.astype(o.dtype), mode="drop"))
    return put(old, new, slots)
