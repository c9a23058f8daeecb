"""Weights from and to `torch.nn.MultiheadAttention`."""

import jax
import numpy as np
import torch

from attn_jax.interop.attention_weights import from_torch, to_torch
from tests.ops.oracles import assert_close

M, H = 12, 4


def test_pytorchs_layer_gives_the_same_and_comes_back():
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(M, H, batch_first=True)
    torch.nn.init.normal_(theirs.in_proj_bias)
    torch.nn.init.normal_(theirs.out_proj.bias)
    weights = {name: x.numpy() for name, x in theirs.state_dict().items()}
    ours = from_torch(weights, num_heads=H)
    x = np.random.default_rng(0).normal(size=(2, 5, M)).astype("f4")
    want = theirs(*[torch.from_numpy(x)] * 3, need_weights=False)[0]
    assert_close(jax.jit(ours.__call__)(x), want.detach().numpy(), 1e-5)

    other = torch.nn.MultiheadAttention(M, H, batch_first=True)
    back = {name: torch.tensor(x) for name, x in to_torch(ours).items()}
    other.load_state_dict(back)
    for name, x in theirs.state_dict().items():
        assert torch.equal(other.state_dict()[name], x)
