"""What the axes of parameters mean, and which axis of a mesh each lies over.

A parameter is known by the end of its path, so that what an optimizer keeps of it,
under the same name, lies where the parameter does. Layers that are scanned stand on an
axis in front.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jax.sharding import PartitionSpec

from attn_jax.train._checks import fail

# Where nothing is said, an axis is whole on every device.
MESH_AXES = {
    "vocab": "tensor",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    "embed": "fsdp",
    "queries": "fsdp",  # positions that have a row of logits each, or of their factors
    "columns": "fsdp",  # outputs of a Synthesizer's second layer
}
# Axes that have to divide evenly: each device computes attention of its own heads.
STRICT = {"heads": "num_heads", "kv_heads": "num_kv_heads"}

PARAMETERS: Mapping[str, tuple[str, ...]] = {
    # Embeddings and heads of models.
    "embedding/embedding": ("vocab", "embed"),
    "embedding/positions": ("positions", "embed"),
    "embedding/types": ("types", "embed"),
    "embedding/kernel": ("embed", "vocab"),
    "pooler/kernel": ("embed", "features"),
    "pooler/bias": ("features",),
    "classes/kernel": ("embed", "classes"),
    "classes/bias": ("classes",),
    "words/kernel": ("embed", "features"),
    "words/bias": ("features",),
    "words_bias": ("vocab",),
    # Attention, whatever the mechanism.
    "value/kernel": ("embed", "kv_heads", "head_dim"),
    "value/bias": ("kv_heads", "head_dim"),
    "output/kernel": ("heads", "head_dim", "embed"),
    "output/bias": ("features",),
    "output_gate/kernel": ("embed", "heads", "head_dim"),
    "output_gate/bias": ("heads", "head_dim"),
    "exclusive_gate": ("heads",),
    "first_share": (),
    # Softmax, linear and LSH attention.
    "query/kernel": ("embed", "heads", "head_dim"),
    "query/bias": ("heads", "head_dim"),
    "key/kernel": ("embed", "kv_heads", "head_dim"),
    "key/bias": ("kv_heads", "head_dim"),
    # Synthesizers.
    "random": ("heads", "queries", "keys"),
    "r1": ("heads", "queries", "rank"),
    "r2": ("heads", "queries", "rank"),
    "w1": ("heads", "embed", "hidden"),
    "b1": ("heads", "hidden"),
    "v1": ("heads", "embed", "hidden"),
    "c1": ("heads", "hidden"),
    "w2": ("heads", "hidden", "columns"),
    "b2": ("heads", "columns"),
    "alpha": ("heads", "members"),
    # Partial attention.
    "reconstruction": ("heads", "queries", "keys", "rank"),
    "offset": ("heads", "queries", "keys"),
    "mean": ("heads", "queries", "rank"),
    # The feed-forward layer.
    "up/kernel": ("embed", "mlp"),
    "up/bias": ("mlp",),
    "down/kernel": ("mlp", "embed"),
    "down/bias": ("features",),
    # Norms.
    "scale": ("features",),
    "norm/bias": ("features",),
}


def logical_axes(name: Sequence[str], ndim: int) -> tuple[str, ...] | None:
    """What the axes of a parameter mean; None where no rule knows it.

    Axes in front of those of the rule are of layers, or of the taps of a convolution.
    """
    for words in (2, 1):
        end = "/".join(name[-words:])
        if words == 2 and end.endswith("_norm/bias"):
            end = "norm/bias"
        axes = PARAMETERS.get(end)
        if axes is not None and len(axes) <= ndim:
            return ("layers",) * (ndim - len(axes)) + axes
    return None


def spec_of(
    name: Sequence[str], shape: tuple[int, ...], mesh: Mapping[str, int]
) -> PartitionSpec:
    """Where the axes of a leaf lie, on a mesh of so many devices along each axis.

    An axis that doesn't divide evenly is whole; heads are for `check_heads`. A leaf
    that no rule knows lies over fsdp along its longest axis that divides evenly.
    """
    axes = logical_axes(name, len(shape))
    if axes is None:
        return _longest(shape, mesh.get("fsdp", 1))
    places: list[str | None] = []
    for axis, size in zip(axes, shape, strict=True):
        place = MESH_AXES.get(axis)
        devices = mesh.get(place, 1) if place else 1
        places.append(None if devices == 1 or size == 1 or size % devices else place)
    return _trimmed(places)


def check_heads(
    leaves: Sequence[tuple[Sequence[str], tuple[int, ...]]], mesh: Mapping[str, int]
) -> None:
    """Raises for heads that don't divide evenly, by the names and shapes of all leaves.

    Query heads come first: where key/value heads are as many, nobody has set those.
    """
    for axis, field in STRICT.items():
        devices = mesh.get(MESH_AXES[axis], 1)
        for name, shape in leaves:
            axes = logical_axes(name, len(shape)) or ()
            for each, size in zip(axes, shape, strict=False):
                # One second layer may serve all heads of a Synthesizer.
                if each == axis and size > 1 and size % devices:
                    _refuse(field, size, devices, "/".join(name), shape)


def _longest(shape: tuple[int, ...], devices: int) -> PartitionSpec:
    even = [i for i, n in enumerate(shape) if devices > 1 and n and n % devices == 0]
    longest = max(even, key=lambda i: shape[i], default=None)
    return _trimmed(["fsdp" if i == longest else None for i in range(len(shape))])


def _trimmed(places: list[str | None]) -> PartitionSpec:
    """Without what is whole at the end: JAX tells apart specs that mean the same."""
    while places and places[-1] is None:
        places.pop()
    return PartitionSpec(*places)


def _refuse(field: str, size: int, devices: int, name: str, shape: Any) -> None:
    fail(
        "mesh",
        f"tensor={devices} for {field} = {size} ({name} has shape {shape})",
        f"a number of devices along tensor that divides {size}",
        f"pass tensor={math.gcd(size, devices)}, or a model with a multiple of "
        f"{devices} for {field}",
    )
