"""The copy task: a sequence, a separator, and the sequence again, to be predicted.

What the paper says. Katharopoulos et al. 2020, section 4.1.1 and figure 2: sequences of
at most 128 tokens of 10 symbols and a separator; 4 layers, 8 heads, batches of 64,
RAdam at 1e-3, and at 1e-4 after 3,000 updates. Linear attention converges smoothly to
the loss of softmax attention, and to a lower one than Reformer's attention by hashes
(lsh-1 and lsh-4, with 1 and 4 rounds). The result is a figure without numbers.

What is done here. The same task, at the size that the preset says. Length of sequences,
mask of the loss, weight decay, widths, dropout, and positions beside the embeddings are
those of the authors' code, as far as the text doesn't say; so are post-norm, ReLU,
biases and a last norm. `cpu` is smaller, for two cores; what it changes stands there.

    preset    what                                     hardware       minutes a model
    smoke     12 tokens, a few steps                   2 cores        under 1
    cpu       32 tokens, 2 layers, 4,000 updates       1 core         1 to 5
    paper     128 tokens, 4 layers, 10,000 updates     GPU or TPU

Commands.

    python -m experiments.linear_copy smoke
    python -m experiments.linear_copy cpu --seeds 3
    python -m experiments.linear_copy cpu --models softmax linear --seeds 3

The results are of every run that is finished in the work directory, so models may be
trained by one command each. Expected numbers stand in docs/results.md.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments.common.fields import by_name, fields_but

MODELS = ("softmax", "linear", "lsh-1", "lsh-4")

# What may differ between two commands that go on in one work directory.
NOT_SHARED = (
    "preset",
    "models",
    "steps",
    "seeds",
    "workdir",
    "checkpoint_every",
    "log_every",
    "eval_every",
)


@dataclass(frozen=True, kw_only=True)
class CopyConfig:
    """Trains decoders that differ in their attention to copy, and compares them.

    Attributes:
      preset: where the other values come from.
      models: softmax, linear, or lsh-N for hashes in N rounds; blanks between.
      steps: training steps of each model.
      seeds: how many times each model is trained, with seeds 0, 1, 2, ...
      workdir: where everything is written. None is runs/linear_copy/PRESET.
      checkpoint_every: steps between checkpoints.
      log_every: steps between two lines of metrics.jsonl.
      eval_every: steps between two points of the curves.
      batch_size: rows of a batch.
      length: tokens of a row, of which less than half are copied.
      num_symbols: symbols to copy; the separator is one more token.
      num_layers: blocks of each decoder.
      d_model: width of the tokens.
      num_heads: attention heads.
      d_ff: width of the feed-forward layers.
      positions: "concatenated" to the embeddings as in the authors' code, or
        "sinusoidal", "learned", "rotary" or "none".
      norm_placement: "post" as in the authors' code, or "pre".
      dropout_rate: on embeddings and on each layer's output.
      learning_rate: until decay_after updates are done, and a tenth of it from then on.
      decay_after: updates at the first rate.
      weight_decay: of RAdam, on matrices.
      bucket_size: tokens that lsh-N attends to from one, and from the one before it.
      validation_batches: batches that validate, the same for all.
      generated_rows: copies that are written token by token at the end.
    """

    preset: tyro.conf.Suppress[str] = "paper"
    models: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]")] = (
        MODELS
    )
    steps: int = 10_000
    seeds: int = 1
    workdir: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    checkpoint_every: int = 1000
    log_every: int = 50
    eval_every: int = 100
    batch_size: int = 64
    length: int = 128
    num_symbols: int = 10
    num_layers: int = 4
    d_model: int = 256
    num_heads: int = 8
    d_ff: int = 1024
    positions: str = "concatenated"
    norm_placement: str = "post"
    dropout_rate: float = 0.1
    learning_rate: float = 1e-3
    decay_after: int = 3000
    weight_decay: float = 0.01
    bucket_size: int = 32
    validation_batches: int = 20
    generated_rows: int = 128

    def shared(self) -> dict[str, Any]:
        """What all runs of one work directory have in common."""
        return fields_but(self, NOT_SHARED)

    def directory(self) -> Path:
        """The work directory."""
        return self.workdir or Path("runs", "linear_copy", self.preset)


_PAPER = CopyConfig()

_CPU = replace(
    _PAPER,
    preset="cpu",
    steps=4000,
    checkpoint_every=1000,
    log_every=20,
    eval_every=50,
    batch_size=32,
    length=32,
    num_layers=2,
    d_model=64,
    num_heads=4,
    d_ff=256,
    norm_placement="pre",
    dropout_rate=0.0,
    bucket_size=8,
    validation_batches=8,
)

PRESETS = by_name(
    _CPU,
    replace(
        _CPU,
        preset="smoke",
        models=("softmax", "linear"),
        steps=20,
        checkpoint_every=10,
        log_every=5,
        eval_every=10,
        batch_size=4,
        length=12,
        num_layers=1,
        d_model=32,
        d_ff=64,
        decay_after=10,
        validation_batches=2,
        generated_rows=8,
    ),
    _PAPER,
)
