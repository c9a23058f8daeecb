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

if TYPE_CHECKING:
    from attn_jax.nn.attention_config import AttentionConfig


@dataclass(frozen=True, kw_only=True)
class MixtureSynthesizer(Mechanism):
    """Logits of several mechanisms, weighted by head.

    Attributes:
      members: mechanisms with logits.
      normalize: "softmax", weights that are positive, sum to 1 and are learnt; "sum",
        the plain sum of the logits.
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
        if self.normalize not in ("softmax", "sum"):
            raise ValueError(
                f"normalize: got {self.normalize!r}; expected 'softmax' or 'sum'"
            )

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return MixtureCore(self, config, rngs=rngs)

    @property
    def limit(self) -> int | None:
        limits = [member.limit for member in self.members if member.limit is not None]
        return min(limits, default=None)

    def for_length(self, max_length: int) -> Mechanism:
        members = tuple(member.for_length(max_length) for member in self.members)
        return replace(self, members=members)


def _name(member: Any) -> str:
    kind = isinstance(member, Mechanism)
    return type(member).__name__ if kind else repr(member)


class MixtureCore(Core):
    """The members' cores and one weight a head and member."""

    def __init__(
        self,
        mechanism: MixtureSynthesizer,
        config: "AttentionConfig",
        *,
        rngs: nnx.Rngs,
    ):
        super().__init__(config)
        k = len(mechanism.members)
        names = [f"member{i}" for i in range(k)]
        self.members = nnx.List(
            member.build(config, rngs=named)
            for member, named in zip(
                mechanism.members, named_rngs(rngs, *names), strict=True
            )
        )
        self.heads = config.num_heads
        if mechanism.normalize == "softmax":
            self.alpha = nnx.Param(jnp.zeros((self.heads, k), config.param_dtype))
        else:
            self.alpha = None

    def keys(self, x: Float[Array, "*b s m"], positions: Any) -> tuple[Any, ...]:
        return tuple(member.keys(x, positions) for member in self.members)

    def logits(self, x, keys, s, *, positions, seen):
        logits = [
            member.logits(x, key, s, positions=positions, seen=seen)
            for member, key in zip(self.members, keys, strict=True)
        ]
        if self.alpha is None:
            alphas = jnp.ones((self.heads, len(logits)), logits[0].dtype)
        else:
            alphas = jax.nn.softmax(self.alpha[...], axis=-1)
        return mix_logits(logits, alphas)
