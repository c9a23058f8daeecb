"""Attention of PyTorch, causal: its fused softmax, linear attention as running sums.

Imported in the worker alone; the cases stand in benchmarks.peers.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch.nn import functional

from benchmarks import memory
from benchmarks.compiling import too_large
from benchmarks.problem import Size, draw

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(memory.cores())


def synchronise() -> None:
    """Wait for what was launched."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


@dataclass(frozen=True)
class TorchProblem:
    """A function of q, k and v, layout b h t d."""

    function: Callable[..., torch.Tensor]
    size: Size

    @property
    def bytes(self) -> int:
        return 4 * math.prod(self.size.qkv) * getattr(torch, self.size.dtype).itemsize

    @cached_property
    def arguments(self) -> list[torch.Tensor]:
        """The cotangent, then q, k and v: the numbers that JAX gets."""
        arrays = [draw(self.size.qkv, "float32", seed) for seed in range(4)]
        dtype = getattr(torch, self.size.dtype)
        tensors = [torch.from_numpy(x).to(DEVICE, dtype) for x in arrays]
        return [x.transpose(1, 2).contiguous() for x in tensors]

    def call(self, direction: str) -> Callable[[], Any]:
        """The forward pass without gradients, or value and gradients."""
        cotangent, *qkv = self.arguments

        def forward() -> Any:
            with torch.no_grad():
                out = self.function(*qkv)
            synchronise()
            return out

        def both() -> Any:
            inputs = [x.detach().requires_grad_() for x in qkv]
            out = self.function(*inputs)
            out.backward(cotangent)
            synchronise()
            return out.detach(), [x.grad for x in inputs]

        return forward if direction == "forward" else both


def linear_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """phi(q_i) S_i / phi(q_i) z_i with S = cumsum(phi(k) v^T), z = cumsum(phi(k))."""
    q, k = functional.elu(q) + 1, functional.elu(k) + 1
    sums = torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(2)
    out = torch.einsum("bhtd,bhtde->bhte", q, sums)
    return out / (q * k.cumsum(2)).sum(-1, keepdim=True)


FUNCTIONS = {
    "torch": partial(functional.scaled_dot_product_attention, is_causal=True),
    "torch cumsum": linear_attention,
}


def build(
    name: str, size: Mapping[str, Any], direction: str, max_bytes: float
) -> tuple[Callable[[], Any] | None, dict[str, Any]]:
    """The call of a case, or why memory is too short for it."""
    problem = TorchProblem(FUNCTIONS[name], Size(**size))
    needed = 2 * problem.bytes
    if name == "torch cumsum":
        # The sums of every token, their terms, and as much again backwards.
        states = problem.bytes // 4 * problem.size.width
        needed += (2 if direction == "forward" else 4) * states
    if needed > max_bytes:
        return None, {"left_out": too_large(needed, max_bytes)}
    call = problem.call(direction)
    return call, {"temporary_bytes": growth(call)}


def growth(call: Callable[[], Any]) -> int | None:
    """How far a call drives up the memory in use, its results included."""
    if DEVICE != "cuda":
        return memory.growth(call)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return torch.cuda.max_memory_allocated() - before
