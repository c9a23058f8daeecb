"""Text from a model: greedy, sampled, or the best that a beam of hypotheses finds."""

from attn_jax.decoding._checks import length_penalties
from attn_jax.decoding.beam import beam_search
from attn_jax.decoding.writing import greedy, sample

__all__ = ["beam_search", "greedy", "length_penalties", "sample"]
