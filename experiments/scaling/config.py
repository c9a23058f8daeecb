"""A model of 2.7 billion parameters on meshes of devices that aren't there.

What is found out. A process of its own stands in for 8, 64 or 512 accelerators: XLA
partitions the training step for that many and says how much memory each of them needs;
nothing runs. From the compiled program come the collectives of a step and their bytes,
and with the published rates of accelerators the time that a step can't be faster than.

The model and the recipe are those of Zhai 2026, table 1: 32 layers of width 2,560, 24
heads of 128, 256 sequences of 2,048 tokens a step; blocks are recomputed in the
backward pass, and parameters in float32 computed with in bfloat16.

    preset    what                                         hardware         minutes
    smoke     a small model for 2 and 4 devices            1 core           under 1
    pods      2.7 billion parameters for 8 to 512 devices  1 core, 6 GB     2

Expected: the state of 32.2 GB is cut by the devices along fsdp; 64 devices need between
a fifth and a tenth of what 8 need.

A preset comes first on the command line, then whatever is to differ from it:

    python -m experiments.scaling smoke
    python -m experiments.scaling pods --meshes fsdp=16 fsdp=8,tensor=2
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import jax.numpy as jnp
import tyro

from attn_jax.models import DecoderConfig, presets
from experiments.common.fields import by_name, fields_but

PAPER: Any = presets["xsa-2.7b"]
# What may differ between two commands in one work directory.
NOT_SHARED = ("preset", "meshes", "workdir")


@dataclass(frozen=True, kw_only=True)
class ScalingConfig:
    """Compiles a training step for meshes of simulated devices.

    Attributes:
      preset: where the other values come from.
      meshes: a compilation each.
      workdir: where everything is written. None is runs/scaling/PRESET.
      batch_size: sequences of a step.
      micro_rows: sequences that a device takes at once, at most; a step has as many
        micro-batches as that takes.
      length: tokens of a sequence.
      num_layers, d_model, num_heads, head_dim, vocab_size: of the decoder.
      remat: what of a block is kept for the backward pass, as in `DecoderConfig`.
    """

    preset: tyro.conf.Suppress[str] = "pods"
    meshes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="MESH [MESH ...]")] = (
        "fsdp=8",
        "fsdp=64",
        "data=4,fsdp=64,tensor=2",
        "fsdp=64,sequence=8",
    )
    workdir: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    batch_size: int = 256
    micro_rows: int = 4
    length: int = 2048
    num_layers: int = 32
    d_model: int = 2560
    num_heads: int = 24
    head_dim: int = 128
    vocab_size: int = 50304
    remat: str = "block"

    def shared(self) -> dict[str, Any]:
        """What all commands of one work directory have in common."""
        return fields_but(self, NOT_SHARED)

    def directory(self) -> Path:
        """The work directory."""
        return self.workdir or Path("runs", "scaling", self.preset)

    def decoder(self) -> DecoderConfig:
        """The model."""
        return replace(
            PAPER,
            vocab_size=self.vocab_size,
            max_length=self.length,
            num_layers=self.num_layers,
            d_model=self.d_model,
            num_heads=self.num_heads,
            head_dim=self.head_dim,
            remat=self.remat,
            dtype=jnp.bfloat16,
        )


_PODS = ScalingConfig()

PRESETS = by_name(
    _PODS,
    # A few seconds: to see that everything works.
    replace(
        _PODS,
        preset="smoke",
        meshes=("fsdp=2", "fsdp=2,tensor=2"),
        batch_size=8,
        micro_rows=2,
        length=32,
        num_layers=2,
        d_model=16,
        num_heads=2,
        head_dim=8,
        vocab_size=64,
    ),
)
