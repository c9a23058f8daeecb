"""Nine models on one text, to see what each kind of attention gains and costs.

What is compared. A small decoder reads bytes of text and predicts the next one. The
rows differ in one thing, how a token attends to those before it:

    softmax             dot products in a softmax        Vaswani et al. 2017
    linear              dot products of features         Katharopoulos et al. 2020
    random              logits learnt for every pair     Tay et al. 2021
    factorized_random     of positions, at rank 8
    dense               logits from the query's token
    factorized_dense      alone, whole or as a product
    mixture             random and softmax, mixed
    ...+exclusive       a token's own value taken out    Zhai 2026

What is the same. Depth, width, heads, text, batches, steps, optimizer; the initial
values of the parts that two models share; and the number of parameters, within 2 %, by
the width of the feed-forward layers, since a Synthesizer has no queries and keys but
matrices over positions. Positions are learnt and added to the embeddings in every row:
rotary ones would turn queries and keys, which a Synthesizer lacks. (Dot products gain
much from them: --positions rotary shows by how much.)

    preset    what                                    hardware      minutes
    smoke     two rows, a few steps                   2 cores       under 1
    demo      nine rows of 119,000 parameters         2 cores       6 to 7
    small     the same with 6 layers of 384           GPU or TPU

Expected from `make demo`, or python -m experiments.compare demo: bits per byte on the
source of Python 3.11, seed 0:

    factorized_random 2.45   dense 2.49   mixture 2.53   softmax+exclusive 2.54
    softmax 2.55   factorized_dense 2.57   random 2.67   linear+exclusive 2.78
    linear 2.79   a table of byte pairs 3.56   a uniform guess 8.00

A preset comes first on the command line, then whatever is to differ from it:

    python -m experiments.compare smoke
    python -m experiments.compare demo --mechanisms softmax linear+exclusive --seeds 3
    python -m experiments.compare small --data "books/**/*.txt" --workdir runs/books
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments.common.fields import by_name, fields_but

ROWS = (
    "softmax",
    "softmax+exclusive",
    "linear",
    "linear+exclusive",
    "random",
    "factorized_random",
    "dense",
    "factorized_dense",
    "mixture",
)

# What may differ between two commands that go on in one work directory.
NOT_SHARED = (
    "preset",
    "mechanisms",
    "steps",
    "seeds",
    "data",
    "workdir",
    "checkpoint_every",
    "log_every",
    "eval_every",
)


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """Trains small decoders that differ in their attention, and compares them.

    Attributes:
      preset: where the other values come from.
      mechanisms: models to compare, with blanks or commas between: names of the
        mechanism table, each alone or with +exclusive.
      steps: training steps of each model.
      seeds: how many times each model is trained, with seeds 0, 1, 2, ...
      data: files, directories or globs with text. None is the source of Python's
        standard library on this machine.
      workdir: where everything is written. None is runs/compare/PRESET.
      checkpoint_every: steps between checkpoints.
      log_every: steps between two lines of metrics.jsonl.
      eval_every: steps between two losses on the validation bytes.
      batch_size: rows of a batch.
      length: bytes of a row, and the most that a model can look back on.
      num_layers: blocks of each decoder.
      d_model: width of the tokens.
      num_heads: attention heads.
      positions: "learned" or "sinusoidal", added to the embeddings; "rotary" turns
        queries and keys where a model has them, "none" leaves order to the mechanism.
      d_ff: width of softmax's feed-forward layers; the other models get the width
        that makes them as large.
      embedding_scale: factor on the embeddings, which start at 0.02.
      learning_rate: its peak; it warms up linearly and falls along a cosine.
      warmup_fraction: the part of the steps that is warm-up.
      weight_decay: of AdamW, on matrices other than a Synthesizer's.
      validation_bytes: how much of the validation text is read.
      temperature: of the text that each model writes.
    """

    preset: tyro.conf.Suppress[str] = "demo"
    mechanisms: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]")] = (
        ROWS
    )
    steps: int = 1800
    seeds: int = 1
    data: Annotated[
        tuple[str, ...] | None, tyro.conf.arg(metavar="PATH [PATH ...]")
    ] = None
    workdir: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    checkpoint_every: int = 500
    log_every: int = 10
    eval_every: int = 200
    batch_size: int = 8
    length: int = 64
    num_layers: int = 2
    d_model: int = 64
    num_heads: int = 4
    positions: str = "learned"
    d_ff: int = 256
    embedding_scale: float = 8.0
    learning_rate: float = 5e-3
    warmup_fraction: float = 0.02
    weight_decay: float = 0.1
    validation_bytes: int = 65536
    temperature: float = 0.8

    def shared(self) -> dict[str, Any]:
        """What all models of one work directory have in common."""
        return fields_but(self, NOT_SHARED)

    def directory(self) -> Path:
        """The work directory."""
        return self.workdir or Path("runs", "compare", self.preset)


_DEMO = CompareConfig()

PRESETS = by_name(
    _DEMO,
    # A few seconds: to see that everything works.
    replace(
        _DEMO,
        preset="smoke",
        mechanisms=("softmax", "linear+exclusive"),
        steps=20,
        checkpoint_every=10,
        log_every=5,
        eval_every=10,
        batch_size=4,
        length=32,
        d_model=32,
        d_ff=64,
        validation_bytes=4096,
    ),
    # For an accelerator.
    replace(
        _DEMO,
        preset="small",
        steps=10_000,
        checkpoint_every=1000,
        log_every=50,
        eval_every=500,
        batch_size=64,
        length=256,
        num_layers=6,
        d_model=384,
        num_heads=6,
        d_ff=1536,
        embedding_scale=384**0.5,
        learning_rate=1e-3,
        validation_bytes=1 << 20,
    ),
)
