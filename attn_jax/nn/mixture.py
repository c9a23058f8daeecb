"""Mixtures of mechanisms inside one softmax (Tay et al. 2021)."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from attn_jax.nn._naming import named_rngs
from attn_jax.nn.core import ALL_MASKS, Core, Mechanism
from attn_jax.nn.softmax import Softmax
from attn_jax.nn.synthesizer import RandomSynthesizer
from attn_jax.ops import mix_logits
from attn_jax.ops._shapes import compute_dtype

if TYPE_CHECKING:
    from attn_jax.nn.attention_config import AttentionConfig

NORMALIZE = ("softmax", "sigmoid", "sum")


@dataclass(frozen=True, kw_only=True)
class MixtureSynthesizer(Mechanism):
    """Logits of several mechanisms, weighted by head and layer.

    Attributes:
      members: mechanisms with logits, no two alike. Where one states its max_length,
        it is that of all.
      normalize: "softmax", weights that are learnt, positive and sum to 1; "sigmoid",
        likewise for two members, by one number a head: σ(α) and 1 - σ(α); "sum", the
        plain sum of the logits, nothing learnt.
    """

    equation: ClassVar[str] = "y_i = Σ_j softmax_j(Σ_k α_k S^k_ij) v_j"
    cost: ClassVar[str] = "the members' together"
    function: ClassVar[str] = "mix_logits"
    paper: ClassVar[str] = "Tay et al. 2021, Mixture"
    masks: ClassVar[frozenset[str]] = ALL_MASKS

    members: tuple[Mechanism, ...] = (RandomSynthesizer(), Softmax())
    normalize: str = "softmax"

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError(
                "members: got none; expected at least one mechanism, e.g. "
                "(RandomSynthesizer(), Softmax())"
            )
        for member in self.members:
            if not isinstance(member, Mechanism) or not member.mixes:
                raise ValueError(
                    f"members: got {_name(member)}, which has no logits to "
                    "mix; expected softmax or Synthesizers"
                )
        for i, member in enumerate(self.members):
            if member in self.members[:i]:
                raise ValueError(
                    f"members: got {_name(member)} twice with the same options; "
                    "expected each once: two alike learn no more than one"
                )
        _check_lengths(self.members)
        if self.normalize not in NORMALIZE:
            raise ValueError(
                f"normalize: got {self.normalize!r}; expected one of "
                f"{', '.join(map(repr, NORMALIZE))}"
            )
        if self.normalize == "sigmoid" and len(self.members) != 2:
            raise ValueError(
                f"normalize: got 'sigmoid' for {len(self.members)} members; expected "
                "two, whose weights are σ(α) and 1 - σ(α); use 'softmax'"
            )

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return MixtureCore(self, config, rngs=rngs)

    @property
    def limit(self) -> int | None:
        return next((m.limit for m in self.members if m.limit is not None), None)

    def for_length(self, max_length: int) -> Mechanism:
        n = max_length if self.limit is None else self.limit
        members = tuple(member.for_length(n) for member in self.members)
        return replace(self, members=members)

    @property
    def weights_per_head(self) -> int:
        """Numbers that are learnt for the alphas of a head."""
        return {"softmax": len(self.members), "sigmoid": 1, "sum": 0}[self.normalize]


def _name(member: Any) -> str:
    kind = isinstance(member, Mechanism)
    return type(member).__name__ if kind else repr(member)


def _check_lengths(members: tuple[Mechanism, ...]) -> None:
    """Raises where members are built for different numbers of positions."""
    stated = [(_name(m), m.limit) for m in members if m.limit is not None]
    if len({n for _, n in stated}) > 1:
        listed = ", ".join(f"{name} with {n}" for name, n in stated)
        raise ValueError(
            f"members: got different max_length: {listed}; expected one for all, since "
            "their logits are added column by column; state it once or not at all"
        )


class MixtureCore(Core):
    """The members' cores and their weights in each head."""

    def __init__(
        self,
        mechanism: MixtureSynthesizer,
        config: "AttentionConfig",
        *,
        rngs: nnx.Rngs,
    ):
        super().__init__(config)
        self.mechanism = mechanism
        names = [f"member{i}" for i in range(len(mechanism.members))]
        self.members = nnx.List(
            member.build(config, rngs=named)
            for member, named in zip(
                mechanism.members, named_rngs(rngs, *names), strict=True
            )
        )
        shape = (config.num_heads, mechanism.weights_per_head)
        learnt = mechanism.normalize != "sum"
        self.alpha = nnx.Param(jnp.zeros(shape, config.param_dtype)) if learnt else None

    def alphas(self) -> Float[Array, "*layers h k"]:
        """The members' weights in each head, in at least float32.

        Stacked layers are axes in front.
        """
        normalize, k = self.mechanism.normalize, len(self.mechanism.members)
        if self.alpha is None:
            return jnp.ones((self.config.num_heads, k), jnp.float32)
        alpha = self.alpha[...]
        alpha = alpha.astype(compute_dtype(alpha))
        if normalize == "sigmoid":
            # σ(-α) keeps the digits that 1 - σ(α) loses.
            return jax.nn.sigmoid(jnp.concatenate([alpha, -alpha], axis=-1))
        return jax.nn.softmax(alpha, axis=-1)

    def keys(self, x: Float[Array, "*b s m"], positions: Any) -> tuple[Any, ...]:
        return tuple(member.keys(x, positions) for member in self.members)

    def queries(self, x, keys, *, mask, positions, seen):
        around = {"mask": mask, "positions": positions, "seen": seen}
        pairs = zip(self.members, keys, strict=True)
        return tuple(member.queries(x, key, **around) for member, key in pairs)

    def logits_of(self, queries, keys, s, *, seen):
        triples = zip(self.members, queries, keys, strict=True)
        logits = [
            member.logits_of(query, key, s, seen=seen) for member, query, key in triples
        ]
        return mix_logits(logits, self.alphas())
