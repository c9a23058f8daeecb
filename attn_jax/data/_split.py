"""Which side of a split something is on, decided by its name alone."""

import hashlib


def place_of(name: str) -> float:
    """A hash of the name as a number in [0, 1): blake2b(name) / 2⁶⁴.

    So a thing keeps its place when others come or go.
    """
    encoded = name.encode("utf-8", "surrogateescape")
    digest = hashlib.blake2b(encoded, digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64
