"""Kernels of accelerators for softmax attention, and what each can honour exactly.

Softmax attention hands a call to a kernel only where the kernel computes the same
thing: here stands, in one place, what that takes.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from attn_jax.ops._mask_rules import Causal, Window
from attn_jax.ops.masks import Mask

KERNELS = {"cuda": "cudnn", "tpu": "tpu"}
PLACES = {"cudnn": "NVIDIA GPUs from Ampere on", "tpu": "one TPU"}


class Call(NamedTuple):
    """A call of `softmax_attention`, its arguments checked."""

    q: Float[Array, "*b t h d"]
    k: Float[Array, "*b s g d"]
    v: Float[Array, "*b s g e"]
    mask: Mask
    bias: Any
    scale: Any
    logit_cap: Any


def kernel_here() -> str | None:
    """The kernel of the devices that this process computes on, if they have one.

    A default device that was chosen by hand may be another one, so none is used then.
    """
    if jax.config.jax_default_device is not None:  # pyright: ignore[reportAttributeAccessIssue]
        return None
    device = jax.devices()[0]
    backend = jax.default_backend()
    if backend == "gpu" and "cuda" in device.client.platform_version.lower():
        # Fused attention came with compute capability 8.0.
        new = float(getattr(device, "compute_capability", 0)) >= 8
        return KERNELS["cuda"] if new else None
    # A kernel of Pallas can't be split over devices by the compiler.
    return KERNELS.get(backend) if jax.device_count() == 1 else None


def refusal(kernel: str, x: Call) -> str | None:
    """Why a kernel can't compute this call exactly, or None where it can."""
    if kernel_here() != kernel:
        return f"it runs on {PLACES[kernel]} alone"
    return _cannot(kernel, x)


def _cannot(kernel: str, x: Call) -> str | None:
    t, d, s, e = x.q.shape[-3], x.q.shape[-1], x.v.shape[-3], x.v.shape[-1]
    dtypes = {a.dtype for a in (x.q, x.k, x.v)}
    sixteen = (jnp.bfloat16, jnp.float16) if kernel == "cudnn" else (jnp.bfloat16,)
    if len(dtypes) > 1 or dtypes.isdisjoint(map(jnp.dtype, sixteen)):
        return f"q, k and v are {', '.join(sorted(map(str, dtypes)))}, not one of " + (
            " and ".join(jnp.dtype(each).name for each in sixteen)
        )
    if x.bias is not None or x.logit_cap is not None:
        return "there is a bias or a logit_cap"
    if x.scale is not None:
        return "a scale is given"
    if 0 in (*x.q.shape, s, e) or d != e:
        return f"keys have {d} features and values {e}, or an axis is empty"
    rules = x.mask.rules
    known = (Causal, Window) if kernel == "cudnn" else (Causal,)
    if len(rules) > 1 or not all(isinstance(rule, known) for rule in rules):
        return f"the mask is more than one of {', '.join(k.__name__ for k in known)}"
    if rules and (t != s or rules[0].start is not None):  # pyright: ignore[reportAttributeAccessIssue]
        return "the mask has an offset"
    if any(isinstance(rule, Window) and rule.right for rule in rules):
        return "the window reaches to the right"
    if kernel == "cudnn" and (d % 8 or d > 128):
        return f"heads have {d} features, not a multiple of 8 up to 128"
    if kernel == "tpu" and (d % 128 or t % 128 or s % 128):
        return f"t = {t}, s = {s} and d = {d} are not multiples of 128"
    return None


def run(kernel: str, x: Call) -> Float[Array, "*b t h e"]:
    """The call by a kernel that doesn't refuse it."""
    flat = [a.reshape(-1, *a.shape[-3:]) for a in (x.q, x.k, x.v)]
    out = _cudnn(flat, x, "cudnn") if kernel == "cudnn" else _tpu(flat, x)
    return out.reshape(*x.q.shape[:-1], x.v.shape[-1])


def _cudnn(flat: list[Array], x: Call, implementation: Any) -> Array:
    """Through `jax.nn`, which knows the same kernel by its mathematics too."""
    rule = x.mask.rules[0] if x.mask.rules else None
    window = (rule.left, 0) if isinstance(rule, Window) else None
    return jax.nn.dot_product_attention(
        *flat,
        # cuDNN has windows under a causal mask, which these imply.
        is_causal=rule is not None,
        local_window_size=window,
        implementation=implementation,
    )


def _tpu(flat: list[Array], x: Call) -> Array:
    """Flash attention in Pallas, which ships with JAX; it has no grouped heads."""
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

    q, k, v = (jnp.swapaxes(a, 1, 2) for a in flat)
    k, v = (jnp.repeat(a, q.shape[1] // a.shape[1], axis=1) for a in (k, v))
    scale = q.shape[-1] ** -0.5
    out = flash_attention(q, k, v, causal=bool(x.mask.rules), sm_scale=scale)
    return jnp.swapaxes(out, 1, 2)
