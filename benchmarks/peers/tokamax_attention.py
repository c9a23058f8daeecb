"""Attention of tokamax, causal, in the implementations that run on any device."""

from functools import partial

import tokamax
from absl import flags

from benchmarks.mechanisms import from_qkv, softmax_operations
from benchmarks.problem import Case, JaxProblem, Size


def attention(implementation: str, size: Size) -> JaxProblem:
    options = {"is_causal": True, "implementation": implementation}
    return from_qkv(partial(tokamax.dot_product_attention, **options), size)


CASES = [
    Case(f"tokamax {name}", 2, partial(attention, name), softmax_operations, 2.5)
    for name in ("xla", "xla_chunked")
]

# It reads flags of its own from the command line, unless they were read before.
flags.FLAGS(["benchmarks"])
