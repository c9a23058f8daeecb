"""What a run measures."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

PARTS = ("sweep", "memory", "short", "per_batch", "decoding", "large", "training")


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """Measures time and memory of attention mechanisms and of other libraries.

    Attributes:
      preset: where the other values come from.
      rounds: turns of each call.
      shortest, longest: tokens a row, as powers of 2.
      tokens: of a batch; longer rows make it smaller, down to one row.
      heads, width, rank: heads, features a head, rank of factorized synthesizers.
      dtype: of inputs, float32 or bfloat16.
      matmul: side of the square matrices whose product measures the machine.
      only: substrings; measures cases whose names hold one of them. None is all.
      parts: of PARTS, what is measured.
      max_seconds: a call predicted to take longer is left out.
      max_bytes: a call whose arrays take more is left out.
      out: folder of results.json.
      figures: folder of the figures.
      page: the page that is written from the results.
    """

    preset: str = "full"
    rounds: int = 5
    shortest: int = 9
    longest: int = 16
    tokens: int = 8192
    heads: int = 8
    width: int = 64
    rank: int = 8
    dtype: str = "float32"
    matmul: int = 2048
    only: tuple[str, ...] | None = None
    parts: tuple[str, ...] = PARTS
    max_seconds: float = 1.5
    max_bytes: float = 9e9
    out: Path = Path("benchmarks")
    figures: Path = Path("docs/figures")
    page: Path = Path("docs/performance.md")

    def shown(self) -> dict[str, Any]:
        """The values, without where they are written to."""
        places = ("preset", "out", "figures", "page")
        return {name: x for name, x in asdict(self).items() if name not in places}

    @property
    def lengths(self) -> list[int]:
        return [2**power for power in range(self.shortest, self.longest + 1)]


FULL = BenchConfig()
PRESETS = {
    "full": FULL,
    # Seconds: to see that everything works.
    "quick": replace(
        FULL,
        preset="quick",
        rounds=2,
        shortest=5,
        longest=6,
        tokens=64,
        heads=2,
        width=8,
        rank=2,
        matmul=64,
        max_seconds=60.0,
        only=("linear", "softmax", "torch"),
        out=Path("runs/bench-quick"),
        figures=Path("runs/bench-quick"),
        page=Path("runs/bench-quick/performance.md"),
    ),
}
