"""LSH attention as a mechanism (Kitaev et al. 2020)."""

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
from flax import nnx

from attn_jax.nn._checks import check_sizes
from attn_jax.nn.core import Core, Mechanism
from attn_jax.nn.query_key import QueryKey
from attn_jax.ops import lsh_attention
from attn_jax.ops._shapes import check_rng
from attn_jax.ops.lsh import refuse
from attn_jax.ops.masks import Mask

if TYPE_CHECKING:
    from attn_jax.nn.attention_config import AttentionConfig


@dataclass(frozen=True, kw_only=True)
class LSH(Mechanism):
    """Softmax attention inside chunks of tokens that were sorted by a hash.

    One projection gives queries and keys, and what it gives is hashed, after qk_norm
    and rotary positions. A call with rng draws new rotations, as the paper trains; they
    are those of `seed` without, in every layer.

    Attributes:
      num_rounds: hashes, whose chunks are joined.
      bucket_size: tokens a chunk; each attends to its own and the one before.
      seed: of the rotations in evaluation.
    """

    equation: ClassVar[str] = "y_i = Σ_{j ∈ S_i} softmax_j(q_i·q_j / (‖q_j‖ √d)) v_j"
    cost: ClassVar[str] = "O(k t (c (d + e + k) + t d / c))"
    function: ClassVar[str] = "lsh_attention"
    paper: ClassVar[str] = "Kitaev et al. 2020, section 2"
    masks: ClassVar[frozenset[str]] = frozenset(
        {"causal", "window", "prefix", "padding", "segments"}
    )
    mixes: ClassVar[bool] = False
    draws: ClassVar[bool] = True
    causal_to_the_bit: ClassVar[bool] = False
    cannot_decode: ClassVar[str] = (
        "all tokens are sorted together, so that a new one can change which of the "
        "earlier tokens see each other"
    )

    num_rounds: int = 4
    bucket_size: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        check_sizes(num_rounds=self.num_rounds, bucket_size=self.bucket_size)
        check_sizes(0, seed=self.seed)

    def check(self, mask: Mask) -> None:
        refuse(mask)

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        if config.alibi:
            raise ValueError(
                "alibi: LSH attention takes no bias to its logits; use rotary, "
                "sinusoidal or learned positions"
            )
        return LSHCore(self, config, rngs=rngs)


class LSHCore(Core):
    """Queries that are the keys, too."""

    def __init__(self, mechanism: LSH, config: "AttentionConfig", *, rngs: nnx.Rngs):
        super().__init__(config)
        self.query_key = QueryKey(config, rngs=rngs, shared=True)
        self.mechanism = mechanism

    def attend(
        self, x, keys, v, *, mask: Mask, positions: Any, seen: Any, rng: Any = None
    ):
        if rng is None:
            rng = jax.random.key(self.mechanism.seed)
        else:
            check_rng(rng, ", or None for evaluation")
            # Dropout draws from rng itself.
            rng = jax.random.fold_in(rng, zlib.crc32(b"rotations"))
        return lsh_attention(
            self.query_key.queries(x, positions),
            v,
            rng=rng,
            num_rounds=self.mechanism.num_rounds,
            bucket_size=self.mechanism.bucket_size,
            mask=mask,
        )
