"""Mechanisms by the names that experiments of the Linear Transformer give them."""

import re

from attn_jax.nn import MECHANISMS, Mechanism

LSH = re.compile(r"lsh-([1-9][0-9]*)")
DESCRIBED = ", or lsh-N with N rounds of hashes"


def named_mechanism(name: str, bucket_size: int) -> Mechanism:
    """A mechanism of the table, or lsh-N for N rounds of hashes into such buckets."""
    if lsh := LSH.fullmatch(name):
        rounds = int(lsh[1])
        return MECHANISMS["lsh"](num_rounds=rounds, bucket_size=bucket_size)  # pyright: ignore[reportCallIssue]
    return MECHANISMS[name]()
