"""Which calls go to an accelerator's kernel, and that they say what the call says.

The kernels themselves run on their accelerators alone; here the one of JAX is asked
for the same mathematics in XLA, and Pallas' is interpreted.
"""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from attn_jax import ops
from attn_jax.ops import masks, softmax, softmax_kernels
from attn_jax.ops.softmax_kernels import Call
from tests.ops.oracles import assert_close

RNG = np.random.default_rng(0)
MASKS = {"full": None, "causal": masks.causal(), "window": masks.window(3)}


def call(t=11, s=11, h=4, g=2, d=8, e=8, dtype=jnp.bfloat16, mask=None, **options):
    shapes = ((2, t, h, d), (2, s, g, d), (2, s, g, e))
    q, k, v = (jnp.asarray(RNG.normal(size=shape), dtype) for shape in shapes)
    options = {"bias": None, "scale": None, "logit_cap": None} | options
    return Call(q, k, v, masks.full() if mask is None else mask, **options)


@pytest.mark.parametrize("name", MASKS)
def test_what_is_asked_of_cudnn_is_the_call(name):
    x = call(dtype=jnp.float32, mask=MASKS[name])
    got = softmax_kernels._cudnn([x.q, x.k, x.v], x, "xla")
    want = ops.softmax_attention(x.q, x.k, x.v, mask=x.mask, implementation="dense")
    assert_close(got, want, 1e-6)


@pytest.mark.parametrize("name", ["full", "causal"])
def test_what_is_asked_of_the_kernel_for_tpu_is_the_call(name):
    x = call(t=128, s=128, h=2, g=1, d=128, e=128, mask=MASKS[name])
    with pltpu.force_tpu_interpret_mode():
        got = softmax_kernels.run("tpu", x)
    want = ops.softmax_attention(x.q, x.k, x.v, mask=x.mask, implementation="dense")
    assert got.dtype == jnp.bfloat16
    assert_close(got, want, 1e-2)


LARGE = {"t": 128, "s": 128, "d": 128, "e": 128}
TAKEN = {
    "cudnn full": ("cudnn", {"s": 5}),
    "cudnn causal": ("cudnn", {"mask": masks.causal()}),
    "cudnn window": ("cudnn", {"mask": masks.window(3)}),
    "cudnn float16": ("cudnn", {"dtype": jnp.float16}),
    "tpu full": ("tpu", LARGE),
    "tpu causal": ("tpu", LARGE | {"mask": masks.causal()}),
}
REFUSED = {
    "float32": ("cudnn", {"dtype": jnp.float32}, "float32, not one of bfloat16 and"),
    "float16 on tpu": ("tpu", LARGE | {"dtype": jnp.float16}, "float16, not one of"),
    "bias": ("cudnn", {"bias": jnp.ones((1, 11, 11))}, "a bias or a logit_cap"),
    "cap": ("cudnn", {"logit_cap": 5.0}, "a bias or a logit_cap"),
    "scale": ("cudnn", {"scale": 5.0}, "a scale is given"),
    "width of values": ("cudnn", {"e": 16}, "keys have 8 features and values 16"),
    "nothing": ("cudnn", {"s": 0}, "an axis is empty"),
    "prefix": ("cudnn", {"mask": masks.prefix(2)}, "Causal, Window"),
    "two rules": ("cudnn", {"mask": masks.causal() & masks.window(2)}, "more than one"),
    "padding": ("cudnn", {"mask": masks.padding(jnp.ones(11, bool))}, "more than one"),
    "window on tpu": (
        "tpu",
        LARGE | {"mask": masks.window(3)},
        "more than one of Caus",
    ),
    "right window": ("cudnn", {"mask": masks.window(2, 1)}, "reaches to the right"),
    "offset": ("cudnn", {"mask": masks.causal().offset(1)}, "has an offset"),
    "other length": ("cudnn", {"mask": masks.causal().offset(0), "s": 5}, "an offset"),
    "odd width": ("cudnn", {"d": 12, "e": 12}, "heads have 12 features"),
    "great width": ("cudnn", {"d": 136, "e": 136}, "heads have 136 features"),
    "odd length on tpu": ("tpu", LARGE | {"t": 127}, "t = 127, s = 128 and d = 128"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_kernel_takes_what_it_computes_exactly(name, monkeypatch):
    kernel, options = TAKEN[name]
    monkeypatch.setattr(softmax_kernels, "kernel_here", lambda: kernel)
    assert softmax_kernels.refusal(kernel, call(**options)) is None


@pytest.mark.parametrize("name", REFUSED)
def test_a_kernel_refuses_the_rest_and_says_why(name, monkeypatch):
    kernel, options, why = REFUSED[name]
    monkeypatch.setattr(softmax_kernels, "kernel_here", lambda: kernel)
    assert why in softmax_kernels.refusal(kernel, call(**options))


@pytest.mark.parametrize("kernel", ["cudnn", "tpu"])
def test_a_kernel_of_another_machine_raises(kernel, monkeypatch):
    monkeypatch.setattr(softmax_kernels, "kernel_here", lambda: None)
    x = call()
    with pytest.raises(ValueError, match=f"implementation: got '{kernel}'.* alone"):
        ops.softmax_attention(x.q, x.k, x.v, implementation=kernel)


def test_auto_says_why_it_uses_no_kernel(monkeypatch, caplog):
    for module in (softmax, softmax_kernels):
        monkeypatch.setattr(module, "kernel_here", lambda: "cudnn")
    x = call(t=13, s=13, dtype=jnp.float32)
    with caplog.at_level(logging.INFO, "attn_jax"):
        got = ops.softmax_attention(x.q, x.k, x.v, mask=masks.causal())
    assert "cudnn is not used, since q, k and v are float32" in caplog.text
    want = ops.softmax_attention(
        x.q, x.k, x.v, mask=masks.causal(), implementation="dense"
    )
    assert_close(got, want, 1e-6)


def test_auto_hands_a_call_to_the_kernel_that_takes_it(monkeypatch):
    for module in (softmax, softmax_kernels):
        monkeypatch.setattr(module, "kernel_here", lambda: "cudnn")
    monkeypatch.setattr(
        softmax, "run_kernel", lambda kernel, x: 7 + jnp.zeros_like(x.v)
    )
    x = call(t=17, s=17, g=4)
    out = jax.jit(ops.softmax_attention)(x.q, x.k, x.v)
    assert (out == 7).all()
    jax.clear_caches()
