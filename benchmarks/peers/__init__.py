"""Other libraries; what isn't installed here is named, not skipped in silence."""

import importlib.util
from collections.abc import Callable

from benchmarks.mechanisms import linear_operations, softmax_operations
from benchmarks.peers import jax_peers
from benchmarks.problem import Case

TORCH = (
    Case("torch", 2, None, softmax_operations, 2.5, remote=True),
    Case("torch cumsum", 1, None, linear_operations, remote=True),
)
REMEDY = "make bench PEERS=1 brings it"


def found(say: Callable[[str], None]) -> dict[str, bool]:
    """Which optional peers are here; a line for each that isn't."""
    here = {name: importlib.util.find_spec(name) is not None for name in PEERS}
    for name, installed in here.items():
        if not installed:
            say(f"{name} is not installed: {PEERS[name]} left out; {REMEDY}")
    return here


def cases(here: dict[str, bool]) -> list[Case]:
    """The attention functions of the peers that are here."""
    found = list(jax_peers.CASES)
    if here["tokamax"]:
        from benchmarks.peers import tokamax_attention

        found += tokamax_attention.CASES
    if here["torch"]:
        found += TORCH
    return found


PEERS = {
    "tokamax": "its attention functions are",
    "torch": "PyTorch's attention functions and training step are",
}
