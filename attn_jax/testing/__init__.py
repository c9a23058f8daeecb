"""Leak detectors: run them on any function of q, k, v, of tokens or of their vectors.

Each raises an AssertionError that says which output moved when which token changed, and
by how much.
"""

from attn_jax.testing.causality import assert_causal
from attn_jax.testing.decoding import assert_decode_matches
from attn_jax.testing.padding import assert_padding_invariant
from attn_jax.testing.segments import assert_segments_isolated

__all__ = [
    "assert_causal",
    "assert_decode_matches",
    "assert_padding_invariant",
    "assert_segments_isolated",
]
