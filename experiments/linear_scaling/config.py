r"""How time and memory of attention grow with the length: figure 1 of the paper.

What the paper says. Linear attention takes time and memory in proportion to the length
N, softmax attention in proportion to its square; Reformer's LSH attention grows like N
too but takes more of both (Katharopoulos et al. 2020, figure 1: forward and gradients,
N = 2^9 to 2^16, the batch scaled inversely with N, per sample).

What is done here. The same curves, from causal attention alone, without projections:
softmax as its plain definition, which keeps N x N weights as the paper's did, and in
blocks, which keep none; LSH with 1, 4 and 8 rounds of hashing; linear. Each call is the
value and all gradients. Compiling is timed apart; every call blocks until its results
are there; calls of all lengths and mechanisms take turns, so that a busy moment tilts
no curve, and a short call is made once before it counts. A curve stops where a call
would take too long or too much memory, as the paper's do. An exponent is the slope of a
straight line through the logarithms, from `fit_from` on: below it what is paid once a
call shows. Heads, features, bucket size and batch are ours: the paper doesn't state
them.

    preset   what                                     hardware    minutes
    cpu      2 heads of 64, 2^14 tokens a call        2 cores     6 to 8
    paper    8 heads of 64, 2^16 tokens a call        GPU
    smoke    three short lengths                      2 cores     under 1

Commands.

    python -m experiments.linear_scaling
    python -m experiments.linear_scaling paper
    python -m experiments.linear_scaling cpu --mechanisms linear lsh-1 --rounds 9 \
        --workdir runs/linear_scaling/nine-rounds

Run it on a machine at rest: it goes on with nothing, so that the same command again
measures all anew, and another one needs a directory of its own. Expected numbers stand
in docs/results.md.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments.common.fields import by_name, fields_but

ROWS = (
    "softmax-dense",
    "softmax-blockwise",
    "lsh-1",
    "lsh-4",
    "lsh-8",
    "linear",
)

# What may differ between two commands in one work directory.
NOT_SHARED = ("preset", "workdir")


@dataclass(frozen=True, kw_only=True)
class ScalingConfig:
    """Measures time and memory of attention over the length of its input.

    Attributes:
      preset: where the other values come from.
      mechanisms: curves to draw: softmax-dense, softmax-blockwise, lsh-1, lsh-4,
        lsh-8, linear.
      shortest: tokens of the shortest sample.
      longest: tokens of the longest one; lengths double from one to the other.
      fit_from: the shortest length that exponents are fitted to.
      tokens: of a call; longer samples make its batch smaller, down to one sample.
      num_heads: of queries, keys and values.
      head_dim: features of each head.
      causal: attention to earlier tokens alone; --no-causal lets all see all.
      bucket_size: tokens in a bucket of LSH attention.
      rounds: turns of each call.
      max_seconds: a call predicted to take longer is left out.
      max_bytes: a call whose arrays take more is left out.
      workdir: where everything is written. None is runs/linear_scaling/PRESET.
    """

    preset: tyro.conf.Suppress[str] = "cpu"
    mechanisms: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]")] = (
        ROWS
    )
    shortest: int = 2**9
    longest: int = 2**16
    fit_from: int = 2**10
    tokens: int = 2**14
    num_heads: int = 2
    head_dim: int = 64
    causal: bool = True
    bucket_size: int = 64
    rounds: int = 5
    max_seconds: float = 6.0
    max_bytes: float = 4e9
    workdir: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None

    def shared(self) -> dict[str, Any]:
        """What all commands in one work directory have in common."""
        return fields_but(self, NOT_SHARED)

    def directory(self) -> Path:
        """The work directory."""
        return self.workdir or Path("runs", "linear_scaling", self.preset)

    @property
    def lengths(self) -> list[int]:
        """The shortest one, its double, and so on."""
        doublings = (self.longest // self.shortest).bit_length()
        return [self.shortest * 2**power for power in range(doublings)]


_CPU = ScalingConfig()

PRESETS = by_name(
    _CPU,
    replace(
        _CPU,
        preset="paper",
        tokens=2**16,
        num_heads=8,
        rounds=10,
        max_seconds=60.0,
        # That of the paper's GTX 1080 Ti.
        max_bytes=11e9,
    ),
    replace(
        _CPU,
        preset="smoke",
        mechanisms=("softmax-dense", "lsh-1", "linear"),
        shortest=64,
        longest=256,
        fit_from=64,
        tokens=256,
        head_dim=8,
        bucket_size=16,
        rounds=2,
    ),
)
