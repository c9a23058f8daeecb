"""Mechanisms by the names that experiments of the Linear Transformer give them."""

import re

from attn_jax.nn import LSH, MECHANISMS, Mechanism

HASHES = re.compile(r"lsh-([1-9][0-9]?)")
DESCRIBED = ", or lsh-N with N rounds of hashes, 1 to 99"


def named_mechanism(name: str, bucket_size: int) -> Mechanism:
    """A mechanism of the table, or lsh-N for N rounds; hashes are into such buckets."""
    if hashes := HASHES.fullmatch(name):
        return LSH(num_rounds=int(hashes[1]), bucket_size=bucket_size)
    mechanism = MECHANISMS[name]
    return LSH(bucket_size=bucket_size) if mechanism is LSH else mechanism()
