"""Text from a model: greedy, sampled, or the best that a beam of hypotheses finds."""

from attn_jax.decoding.beam import beam_search
from attn_jax.decoding.writing import greedy, sample

__all__ = ["beam_search", "greedy", "sample"]
