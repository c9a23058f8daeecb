"""A case made ready to be called: compiled, its memory noted, its inputs in place."""

import time
from collections.abc import Callable
from typing import Any

import jax

from benchmarks import memory
from benchmarks.problem import Case, Size


def prepare(
    case: Case, size: Size, direction: str, row: dict[str, Any], max_bytes: float
) -> Callable[[], Any] | None:
    """The call of a case in this process, blocking; None where memory is short.

    The row gets compile_seconds and temporary_bytes, or the reason in left_out. Nothing
    of the size of the problem is allocated before its bytes are known.
    """
    problem = case.build(size)
    if problem.bytes > max_bytes:
        row["left_out"] = too_large(problem.bytes, max_bytes)
        return None
    begin = time.perf_counter()
    lowered = jax.jit(problem.program(direction)).lower(*problem.structs)
    compiled = lowered.compile()
    row["compile_seconds"] = time.perf_counter() - begin
    row["temporary_bytes"] = temporary = memory.temporary_bytes(compiled)
    # Gradients are as large as the arguments.
    needed = (temporary or 0) + 2 * problem.bytes
    if needed > max_bytes:
        row["left_out"] = too_large(needed, max_bytes)
        return None
    return lambda: jax.block_until_ready(compiled(*problem.arguments))


def too_large(needed: float, limit: float) -> str:
    return f"needs {needed / 1e9:.1f} GB, over max_bytes = {limit / 1e9:g} GB"
