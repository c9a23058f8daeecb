r"""Self attention beside exclusive self attention (XSA), Zhai 2026.

What the paper says. Attention spends much of its output on the token's own value, which
the residual path carries anyway: outputs point along it, the more so the deeper the
layer (figure 1). Taking that direction out lowers the loss of language models from 0.7
to 2.7 billion parameters by a clear margin, at every learning rate, the more so the
longer the sequences are, with and without learnt sinks, at next to no cost.

What is done here. The paper's model (rotary positions, a norm behind the embeddings,
heads of any width, GPT-2's initial values, tied embeddings) and its recipe (AdamW with
0.9 and 0.95, decay 0.1 on matrices, linear warm-up, a cosine to a tenth), with and
without exclusion, at sizes that a core can train. Two rows of one seed begin with the
same values and see the same batches, so their difference is taken seed by seed, with a
95 % interval of Student's. The learning rate was chosen for `sa` and serves both. Where
the paper goes from 512 to 16,384 tokens at half a million a batch, two cores go from 64
to 1,024 bytes at 1,024 a batch; `accelerator` goes from 256 to 4,096 at 65,536.

    sa, xsa             without and with exclusion
    ...@size=0.4m       another size of model
    ...@rate=2e-3       another peak of the learning rate
    ...@length=64       shorter or longer rows, as many tokens a batch
    ...@sinks=4         learnt tokens in front of each row
    xsa@gate=tanh       a learnt share a head: tanh from 0, sigmoid from a half
    xsa@layers=last2    in the last two layers alone; first2, or 0,3

    study               what                                          minutes on 1 core
    main                sa and xsa, 5 seeds, with the similarity
                        of values, outputs and own values             13
    ablations           everything else, 5 seeds                      34
    overhead            a block's time and memory, and a step's       3
    smoke               a few steps of each kind                      under 1
    accelerator         30 million parameters, lengths to 4,096       one accelerator

Commands.

    python -m experiments.exclusive main
    python -m experiments.exclusive ablations --rows sa xsa xsa@gate=tanh
    python -m experiments.exclusive.lowering

Every run, a row with a seed, is a directory of its own in runs/exclusive/STUDY and goes
on where it was stopped; two commands share the work. Expected numbers stand in
docs/results.md.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from experiments.common.fields import by_name, fields_but
from experiments.compare.config import CompareConfig

# What may differ between two commands that go on in one work directory; of the data
# only the place, since their fingerprint is checked.
MAY_DIFFER = (
    "preset",
    "rows",
    "seeds",
    "data",
    "workdir",
    "checkpoint_every",
    "log_every",
)

Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]")]
Folder = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]
_Hidden = (tyro.conf.Fixed, tyro.conf.Suppress)
# Fields of `CompareConfig` that the paper's model decides.
DECIDED = (
    "mechanisms",
    "num_layers",
    "d_model",
    "num_heads",
    "positions",
    "d_ff",
    "embedding_scale",
    "temperature",
)


@dataclass(frozen=True, kw_only=True)
class TrainingStudy(CompareConfig):
    """Trains rows that differ in exclusion, each several times: the next byte of text.

    Attributes:
      preset: where the other values come from.
      rows: sa or xsa, with @size=, @rate=, @length=, @sinks=, @gate= and @layers=
        behind it, in this order.
      seeds: how many times each row is trained, with seeds 0, 1, 2, ...
      size: of the model, where a row doesn't say it.
      length: bytes of a row, where a row doesn't say it; batch_size x length bytes are
        in each batch.
      similarity: validation windows on which the similarity of values, outputs and own
        values of a trained model is measured; 0 for none.
      workdir: where everything is written. None is runs/exclusive/STUDY.
    """

    kind: ClassVar[str] = "training"
    may_differ: ClassVar[tuple[str, ...]] = MAY_DIFFER

    rows: Names = ("sa", "xsa")
    seeds: int = 5
    size: str = "0.1m"
    similarity: int = 0
    mechanisms: Annotated[tuple[str, ...], *_Hidden] = ()
    num_layers: Annotated[int, *_Hidden] = 2
    d_model: Annotated[int, *_Hidden] = 64
    num_heads: Annotated[int, *_Hidden] = 4
    positions: Annotated[str, *_Hidden] = "rotary"
    d_ff: Annotated[int, *_Hidden] = 256
    embedding_scale: Annotated[float, *_Hidden] = 1.0
    temperature: Annotated[float, *_Hidden] = 1.0

    def shared(self) -> dict[str, Any]:
        """What all runs of one work directory have in common."""
        shared = fields_but(self, {*self.may_differ, *DECIDED})
        return dict(sorted(shared.items()))

    def directory(self) -> Path:
        """The work directory."""
        return self.workdir or Path("runs", "exclusive", self.preset)


@dataclass(frozen=True, kw_only=True)
class OverheadStudy:
    """Time and memory of a block, and of a training step, with and without exclusion.

    Attributes:
      preset: where the other values come from.
      lengths: tokens a row, at the first width.
      widths: of the block, at the first length that is at least 1024, or the longest.
      tokens: of all rows together; at least one row.
      head_dim: width of a head; there are width / head_dim of them.
      dtype: "float32" or "bfloat16".
      rounds: counted calls of each; both take turns.
      step_layers, step_batch: blocks and rows of the training step, which is of the
        first width.
      step_length: tokens of its rows; 0 leaves the training step out.
      workdir: where everything is written. None is runs/exclusive/STUDY.
    """

    kind: ClassVar[str] = "overhead"
    may_differ: ClassVar[tuple[str, ...]] = ("preset", "workdir", "rounds")

    preset: tyro.conf.Suppress[str] = "overhead"
    lengths: tuple[int, ...] = (256, 1024, 4096)
    widths: tuple[int, ...] = (256, 512, 1024)
    tokens: int = 4096
    head_dim: int = 64
    dtype: str = "float32"
    rounds: int = 9
    step_layers: int = 4
    step_batch: int = 2
    step_length: int = 1024
    workdir: Folder = None

    def shared(self) -> dict[str, Any]:
        """What all commands in one work directory have in common."""
        return dict(sorted(fields_but(self, self.may_differ).items()))

    def directory(self) -> Path:
        """The work directory."""
        return self.workdir or Path("runs", "exclusive", self.preset)


Study = TrainingStudy | OverheadStudy


def both(*options: str) -> tuple[str, ...]:
    """The rows sa and xsa with each of the options."""
    return tuple(f"{kind}@{option}" for option in options for kind in ("sa", "xsa"))


_MAIN = TrainingStudy(
    preset="main",
    similarity=16,
    steps=800,
    batch_size=8,
    length=256,
    learning_rate=8e-3,
    warmup_fraction=0.05,
    checkpoint_every=400,
    log_every=20,
    eval_every=200,
)

PRESETS: dict[str, Study] = by_name(
    # A few seconds: to see that everything works.
    replace(
        _MAIN,
        preset="smoke",
        rows=("sa", "xsa", *both("sinks=1"), "xsa@gate=tanh", "xsa@layers=last1"),
        seeds=2,
        similarity=2,
        steps=8,
        checkpoint_every=4,
        log_every=2,
        eval_every=4,
        batch_size=2,
        length=32,
        validation_bytes=2048,
    ),
    _MAIN,
    replace(
        _MAIN,
        preset="ablations",
        rows=(
            *("sa", "xsa"),
            *both("size=0.4m"),
            *both("rate=2e-3", "rate=8e-3"),
            *both(*(f"length={n}" for n in (64, 128, 512, 1024))),
            *both("sinks=1", "sinks=4"),
            *("xsa@gate=tanh", "xsa@gate=sigmoid"),
            *("xsa@layers=first1", "xsa@layers=last1"),
        ),
        seeds=5,
        similarity=0,
        steps=300,
        learning_rate=4e-3,
        batch_size=4,
        checkpoint_every=300,
        eval_every=300,
    ),
    OverheadStudy(),
    replace(
        _MAIN,
        preset="accelerator",
        rows=(
            *("sa", "xsa"),
            *both("size=10m"),
            *both("rate=5e-4", "rate=2e-3"),
            *both(*(f"length={n}" for n in (256, 512, 1024, 4096))),
            *both("sinks=1", "sinks=4"),
            *("xsa@gate=tanh", "xsa@gate=sigmoid"),
            *("xsa@layers=first4", "xsa@layers=last4"),
        ),
        size="30m",
        steps=10_000,
        batch_size=32,
        length=2048,
        learning_rate=1e-3,
        validation_bytes=1 << 20,
        checkpoint_every=1000,
        log_every=50,
        eval_every=1000,
    ),
)
