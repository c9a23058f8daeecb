"""Attention from selected scores as a mechanism (Bhojanapalli et al. 2021).

A selected key is a position, and so is what the map of a query makes logits for.
"""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from attn_jax.nn._checks import check_optional_sizes, check_sizes
from attn_jax.nn._partial_rows import find, map_rows
from attn_jax.nn.core import Core
from attn_jax.nn.query_key import QueryKey
from attn_jax.nn.synthesizer import Fixed, PositionIndexed, columns_at, rows_at
from attn_jax.ops import reconstruct_logits
from attn_jax.ops._shapes import is_traced, lift
from attn_jax.ops.partial import known_scores

if TYPE_CHECKING:
    from attn_jax.nn.attention_config import AttentionConfig

RANK = 8


@dataclass(frozen=True, kw_only=True)
class Partial(PositionIndexed):
    """Scores of a few selected keys; the logits are a linear map of them.

    The map begins with each key's logit that of the nearest selected one, its offset
    and the mean that a masked score counts with at 0. `attn_jax.analysis.eigen` finds
    better ones in a model's scores: set them on the module,
    `attention.mechanism.reconstruction[...] = ...`.

    Attributes:
      rank: selected keys of a query, r; None is 8, or what `selected` has.
      selected: which, as Int[n r], or Int[r], the same for all queries; kept as tuples.
        None spreads them evenly, over 0 .. i where causal.
      causal: a query selects keys from 0 to its own position alone, as decoding needs.
        False is the paper's, for models that see whole sequences; nothing decodes.
      share_heads: one map for all heads.
      share_layers: one map for all layers of a stack.
      trainable: False keeps the map as it is set.
    """

    equation: ClassVar[str] = (
        "y_i = Σ_j softmax_j((R_i p_i + c_i)_j) v_j, p_ia = q_i·k_{S_ia} / √d"
    )
    cost: ClassVar[str] = "O(t (r d + s r + s e))"
    function: ClassVar[str] = "partial_attention"
    paper: ClassVar[str] = "Bhojanapalli et al. 2021"
    mixes: ClassVar[bool] = False

    rank: int | None = None
    selected: Any = None
    causal: bool = True
    share_heads: bool = True
    share_layers: bool = False
    trainable: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_optional_sizes(rank=self.rank)
        if not self.causal:
            why = "without causal=True, queries select keys that are not there yet"
            object.__setattr__(self, "cannot_decode", why)
        if self.selected is not None:
            object.__setattr__(self, "selected", _tuples(self.selected))
            width = np.shape(self.selected)[-1]
            if self.rank not in (None, width):
                raise ValueError(
                    f"rank: got {self.rank} beside {width} selected keys a query; "
                    "expected one of the two; leave rank out"
                )
        if self.share_layers and not self.trainable:
            raise ValueError(
                "share_layers: got True with trainable=False; expected a map to learn: "
                "one that stays as it is set can be set alike in every layer"
            )

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return PartialCore(self, config, rngs=rngs)

    def chosen(self) -> np.ndarray:
        """S, the positions of the selected keys: n r, or r where all have the same.

        Raises:
          ValueError: more keys than positions, or positions that a query may not
            select.
        """
        n = self.length()
        if self.selected is None:
            rank = min(RANK, n) if self.rank is None else self.rank
            _check_rank(rank, n)
            queries = np.arange(n)[:, None] if self.causal else n - 1
            return queries * np.arange(rank) // max(rank - 1, 1)
        chosen = np.asarray(self.selected)
        _check_rank(chosen.shape[-1], n)
        if chosen.ndim == 2 and len(chosen) != n:
            raise ValueError(
                f"selected: got {len(chosen)} rows for max_length = {n}; expected a "
                "row for each position, or one for all, Int[r]"
            )
        most = np.arange(n)[:, None] if self.causal else n - 1
        wrong = (chosen < 0) | (chosen > most)
        if wrong.any():
            row = int(np.argwhere(wrong)[0][0]) if wrong.ndim == 2 else 0
            keys = np.atleast_2d(chosen)[row if chosen.ndim == 2 else 0].tolist()
            last = str(n - 1)
            if self.causal:
                last = f"{row}, its own; set causal=False where later ones are seen"
            raise ValueError(
                f"selected: got {keys} for position {row}; expected positions from 0 "
                f"to {last}"
            )
        return chosen


class Shared(nnx.Param):
    """A parameter that all layers of a stack have in common."""


class PartialCore(Core):
    """Queries and keys, of which a few are compared, and the map to all logits."""

    def __init__(
        self, mechanism: Partial, config: "AttentionConfig", *, rngs: nnx.Rngs
    ):
        super().__init__(config)
        self.query_key = QueryKey(config, rngs=rngs)
        self.mechanism = mechanism
        n, chosen = mechanism.length(), mechanism.chosen()
        h, r = 1 if mechanism.share_heads else config.num_heads, chosen.shape[-1]
        kind, dtype = Fixed, config.param_dtype
        if mechanism.trainable:
            kind = Shared if mechanism.share_layers else nnx.Param
        nearest = _nearest(chosen, n, mechanism.causal).astype(dtype)
        self.reconstruction = kind(jnp.broadcast_to(nearest, (h, n, n, r)))
        self.offset = kind(jnp.zeros((h, n, n), dtype))
        self.mean = kind(jnp.zeros((h, n, r), dtype))

    def keys(self, x: Float[Array, "*b s m"], positions: Any) -> Array:
        return self.query_key.keys(x, positions)

    def queries(self, x, keys, *, mask, positions, seen):
        """Known scores, and rows of the map as they stand, or where they stand."""
        q = self.query_key.queries(x, positions)
        t, s = q.shape[-3], keys.shape[-3]
        allowed = lift(mask.allowed(t, s), q.ndim) if mask.rules else None
        slots = self._chosen_at(positions, t)
        there = slots < s
        if seen is not None:
            slots, there = find(slots, seen, allowed)
        mean = rows_at(self.mean[...], t, positions)
        partial = known_scores(q, keys, slots, there, allowed, mean)
        if positions is None:
            matrix, offset = self.reconstruction[:, :t], self.offset[:, :t]
            h, _, n, r = matrix.shape
            return partial, matrix.reshape(h, t, n * r), offset, None
        places = positions
        if allowed is not None:
            # A query that sees nothing may stand where others do: it takes no map.
            places = jnp.where(jnp.any(allowed, axis=(-1, -3)), positions, -1)
        return partial, None, None, places[..., None, :, None] + 1

    def logits_of(self, queries, keys, s, *, seen):
        partial, matrix, offset, places = queries
        n = self.mechanism.length()
        width = s if seen is None else n
        if places is None:
            r = partial.shape[-1]
            matrix = matrix.reshape(*matrix.shape[:2], n, r)[:, :, :width]
            return reconstruct_logits(partial, matrix, offset[..., :width])
        places = places[..., 0, :, 0] - 1
        logits = map_rows(partial, self.reconstruction[:, :, :width], places)
        there = jnp.maximum(places, 0)
        offset = rows_at(self.offset[:, :, :width], places.shape[-1], there)
        return columns_at(logits + offset.astype(logits.dtype), s, seen)

    def attend(self, x, keys, v, *, mask, positions, seen):
        """As in `Core`; where every token stands at its position, none is looked up."""
        found = functools.partial(super().attend, x, keys, v, mask=mask)
        moved = functools.partial(found, positions=positions, seen=seen)
        if positions is None or seen is None:
            return moved()
        still = functools.partial(found, positions=None, seen=None)
        allowed = lift(mask.allowed(x.shape[-2], v.shape[-3]), x.ndim + 1)
        stand = _stand(positions, jnp.any(allowed, axis=(-1, -3)))
        stand = stand & _stand(seen, jnp.any(allowed, axis=(-2, -3)))
        if is_traced(stand):
            return jax.lax.cond(stand, still, moved)
        return still() if stand else moved()

    def _chosen_at(self, positions: Any, t: int) -> Int[Array, "..."]:
        """S of the queries: r, t r or *b 1 t r."""
        chosen = jnp.asarray(self.mechanism.chosen())
        if chosen.ndim == 1:
            return chosen
        if positions is None:
            return chosen[:t]
        return jnp.take(chosen, positions, axis=0, mode="clip")[..., None, :, :]


def _stand(positions: Int[Array, "*b k"], used: Bool[Array, "*#b #k"]) -> Array:
    """Whether all tokens that are used stand at their positions."""
    here = lift(jnp.arange(positions.shape[-1]), positions.ndim)
    return jnp.all((positions == here) | ~used)


@functools.partial(jax.jit, static_argnames=("n", "causal"))
def _nearest(chosen: Int[Array, "..."], n: int, causal: bool) -> Bool[Array, "n n r"]:
    """Whether a is the selected key nearest to j, the first of several."""
    j = jnp.arange(n)[:, None]
    rows = jnp.broadcast_to(chosen, (n, chosen.shape[-1]))[:, None, :]
    nearest = jnp.argmin(jnp.abs(rows - j[None]), axis=-1, keepdims=True)
    here = nearest == jnp.arange(rows.shape[-1])[None, None, :]
    if causal:
        here = here & (j <= jnp.arange(n)[None, :])[..., None].swapaxes(0, 1)
    return here


def _tuples(selected: Any) -> tuple[Any, ...]:
    """Int[n r] or Int[r] as tuples, which a frozen config can hold."""
    array = np.asarray(selected)
    if not np.issubdtype(array.dtype, np.integer) or array.ndim not in (1, 2):
        raise TypeError(
            f"selected: got dtype {array.dtype} and shape {array.shape}; expected "
            "integers, Int[n r] or Int[r]"
        )
    check_sizes(r=array.shape[-1])
    rows = array.tolist()
    return tuple(rows) if array.ndim == 1 else tuple(map(tuple, rows))


def _check_rank(rank: int, n: int) -> None:
    if rank > n:
        raise ValueError(
            f"rank: got {rank}; expected at most max_length = {n}, the positions there "
            "are to select from; select fewer keys"
        )
