"""The decoder and training step of benchmarks.training, written in PyTorch.

Pre-norm blocks without biases, rotary positions, tanh-approximated gelu, logits from
the transposed embedding; AdamW with a clipped gradient. Queries, keys and values come
from one product, attention is PyTorch's fused one and the optimizer its fused one.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers.torch_attention import DEVICE, synchronise


class Block(nn.Module):
    def __init__(self, m: int, heads: int, d_ff: int):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(m, eps=1e-5, bias=False)
        self.qkv = nn.Linear(m, 3 * m, bias=False)
        self.output = nn.Linear(m, m, bias=False)
        self.forward_norm = nn.LayerNorm(m, eps=1e-5, bias=False)
        self.up = nn.Linear(m, d_ff, bias=False)
        self.down = nn.Linear(d_ff, m, bias=False)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> torch.Tensor:
        b, t, m = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(b, t, 3, self.heads, -1)
        q, k, v = (y.transpose(1, 2) for y in qkv.unbind(2))
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(y.transpose(1, 2).reshape(b, t, m))
        hidden = functional.gelu(self.up(self.forward_norm(x)), approximate="tanh")
        return x + self.down(hidden)


class Decoder(nn.Module):
    def __init__(
        self, vocab: int, length: int, layers: int, m: int, heads: int, d_ff: int
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocab, m)
        self.blocks = nn.ModuleList(Block(m, heads, d_ff) for _ in range(layers))
        self.norm = nn.LayerNorm(m, eps=1e-5, bias=False)
        half = m // heads // 2
        rates = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(length)[:, None] * rates
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return functional.linear(self.norm(x), self.embedding.weight)


def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions on pairs (i, i + d/2)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


def training_step(
    sizes: Mapping[str, int],
    weights: Mapping[str, np.ndarray],
    tokens: np.ndarray,
    targets: np.ndarray,
    compiled: bool,
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A call that trains one step, and what the model is: parameters and first loss."""
    model = Decoder(**sizes)
    load(model, weights)
    model.to(DEVICE)
    x = torch.from_numpy(tokens).long().to(DEVICE)
    y = torch.from_numpy(targets).long().to(DEVICE)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    scales = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}]
    groups += [{"params": scales, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    run = torch.compile(model) if compiled else model

    def loss() -> torch.Tensor:
        return functional.cross_entropy(run(x).flatten(0, 1), y.flatten())

    def step() -> float:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        synchronise()
        return value.item()

    with torch.no_grad():
        first = functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
    count = sum(p.numel() for p in model.parameters())
    return step, {"parameters": count, "loss": first}


def load(model: Decoder, weights: Mapping[str, np.ndarray]) -> None:
    """Take over weights that are stacked over layers, each as inputs x outputs."""
    with torch.no_grad():
        model.embedding.weight.copy_(torch.from_numpy(weights["embedding"]))
        model.norm.weight.copy_(torch.from_numpy(weights["norm"]))
        for i, block in enumerate(model.blocks):
            for name, parameter in block.named_parameters():
                value = torch.from_numpy(weights[name.removesuffix(".weight")][i])
                parameter.copy_(value.T if value.ndim > 1 else value)
