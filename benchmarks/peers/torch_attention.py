"""Attention of PyTorch, causal: its fused softmax, linear attention as running sums."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch.nn import functional

from benchmarks.mechanisms import linear_operations, softmax_operations
from benchmarks.problem import Case, Size, draw

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


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


def softmax(size: Size) -> TorchProblem:
    attend = partial(functional.scaled_dot_product_attention, is_causal=True)
    return TorchProblem(attend, size)


def linear(size: Size) -> TorchProblem:
    return TorchProblem(linear_attention, size)


CASES = [
    Case("torch", 2, softmax, softmax_operations, 2.5),
    Case("torch cumsum", 1, linear, linear_operations),
]
