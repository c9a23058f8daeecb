r"""Attention scores of encoders: their dimension, what they share, what a few tell.

What the paper says. Attention scores before the softmax vary mostly in a space of few
dimensions; these spaces overlap across layers and across models; and scores of a few
query-key pairs, chosen greedily, say what the others are: Bhojanapalli et al. 2021. Its
text was not at hand, only its abstract and a review, which says that 16 to 32 scores a
query give a low error and that n is the length of BERT's sequences. All else is our
choice, and stands here.

What is done here. Every sequence is [CLS], text and [SEP], of `length` tokens, without
padding. Scores are scaled by 1 / sqrt(d). A sample is the row of a query, of any head;
of one position (`positions`), of any (`rows`), or a whole matrix (`matrices`, by a
random sketch). Covariances are of the first sequences of the text, errors of
reconstruction of those that follow. Beside each model stands one of random parameters,
and beside each overlap that of random spaces, r / n. Maps have a ridge of `ridge` times
the mean variance. Up to n = 32, scores are also selected from whole matrices, of which
any may tell of any other: for longer ones a covariance would have n⁴ numbers.

    preset   models                     sequences             hardware   minutes
    smoke    random, on bytes           24 of 16 tokens       2 cores    under 1
    default  those named by --models    1000 of 128 tokens    1 core     3 a model
    short    those named by --models    1000 of 32 tokens     1 core     2 a model

Commands.

    python -m experiments.eigen smoke
    python -m experiments.eigen --models minilm=FOLDER --data BROWN --tagged
    python -m experiments.eigen short --data BROWN --tagged \
        --models minilm=FOLDER own=runs/eigen_training/mlm/encoders/full

FOLDER holds config.json, model.safetensors and tokenizer.json of a model of the BERT
family, BROWN the Brown corpus, with words as word/tag: docs/eigen.md says how to get
them. Expected numbers stand in docs/results.md.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments.common.fields import by_name, fields_but

# What may differ between two commands that go on in one work directory.
NOT_SHARED = ("preset", "models", "data", "workdir")


@dataclass(frozen=True, kw_only=True)
class EigenConfig:
    """Analyses attention scores of encoders on one text.

    Attributes:
      preset: where the other values come from.
      models: NAME=FOLDER of each encoder to analyse; a random one of the first's size
        joins them. None is a small random one, on bytes.
      data: files, directories or globs with text. None is the source of Python's
        standard library on this machine.
      tagged: whether words of the text are written word/tag.
      length: tokens of a sequence, n.
      sequences: from which statistics are made.
      held_out: others, by which reconstructions are judged.
      batch_size: sequences at a time; it changes no number but by rounding.
      ranks: numbers of components that are compared; overlaps are of the middle one.
      known: numbers of scores a query from which the others are reconstructed.
      matrix_rank: components of whole matrices.
      ridge: of the maps, relative to the mean variance of a score.
      seed: of the random encoder and of what else is random.
      repeats: how often each way of attention is timed.
      workdir: where everything is written. None is runs/eigen/PRESET.
    """

    preset: tyro.conf.Suppress[str] = "default"
    models: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="NAME=FOLDER [NAME=FOLDER ...]")
    ] = ()
    data: Annotated[
        tuple[str, ...] | None, tyro.conf.arg(metavar="PATH [PATH ...]")
    ] = None
    tagged: bool = False
    length: int = 128
    sequences: int = 1000
    held_out: int = 250
    batch_size: int = 16
    ranks: Annotated[tuple[int, ...], tyro.conf.arg(metavar="R [R ...]")] = (8, 16, 32)
    known: Annotated[tuple[int, ...], tyro.conf.arg(metavar="K [K ...]")] = (
        4,
        8,
        16,
        24,
        32,
        48,
        64,
    )
    matrix_rank: int = 32
    ridge: float = 1e-3
    seed: int = 0
    repeats: int = 5
    workdir: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None

    @property
    def rank(self) -> int:
        """The one of which overlaps are shown."""
        return self.ranks[len(self.ranks) // 2]

    def shared(self) -> dict[str, Any]:
        """What all commands in one work directory have in common."""
        lists = {"ranks": list(self.ranks), "known": list(self.known)}
        return fields_but(self, NOT_SHARED) | lists

    def directory(self) -> Path:
        """The work directory."""
        return self.workdir or Path("runs", "eigen", self.preset)


_DEFAULT = EigenConfig()

PRESETS = by_name(
    _DEFAULT,
    replace(
        _DEFAULT,
        preset="short",
        length=32,
        ranks=(4, 8, 16),
        known=(4, 8, 16),
    ),
    # A few seconds: to see that everything works.
    replace(
        _DEFAULT,
        preset="smoke",
        length=16,
        sequences=24,
        held_out=8,
        batch_size=8,
        ranks=(2, 4, 8),
        known=(2, 4, 8),
        matrix_rank=4,
        repeats=1,
    ),
)
