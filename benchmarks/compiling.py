"""A case made ready to be called: compiled, its memory noted."""

import time
from collections.abc import Callable
from typing import Any

import jax

from benchmarks import memory
from benchmarks.problem import Case, JaxProblem, Size


def prepare(
    case: Case, size: Size, direction: str, row: dict[str, Any], max_bytes: float
) -> Callable[[], Any] | None:
    """The call of a case in this process, blocking; None where memory is short.

    The row gets what `compiled` notes. Nothing of the size of the problem is allocated
    before its bytes are known.
    """
    problem = case.build(size)
    program = compiled(problem, direction, row, max_bytes)
    if program is None:
        return None
    return lambda: jax.block_until_ready(program(*problem.arguments))


def compiled(
    problem: JaxProblem, direction: str, row: dict[str, Any], max_bytes: float
) -> Callable[..., Any] | None:
    """The compiled program of a problem; None where memory is short.

    The row gets compile_seconds and temporary_bytes, or the reason in left_out.
    """
    if problem.bytes > max_bytes:
        row["left_out"] = too_large(problem.bytes, max_bytes)
        return None
    begin = time.perf_counter()
    lowered = jax.jit(problem.program(direction)).lower(*problem.structs)
    program = lowered.compile()
    row["compile_seconds"] = time.perf_counter() - begin
    row["temporary_bytes"] = temporary = memory.temporary_bytes(program)
    # Gradients are as large as the arguments.
    needed = (temporary or 0) + 2 * problem.bytes
    if needed > max_bytes:
        row["left_out"] = too_large(needed, max_bytes)
        return None
    return program


def too_large(needed: float, limit: float) -> str:
    return f"needs {needed / 1e9:.1f} GB, over max_bytes = {limit / 1e9:g} GB"
