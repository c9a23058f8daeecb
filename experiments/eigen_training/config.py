r"""Encoders trained with attention from few scores: fixed and learnt, shared or not.

What the paper says. Models can be trained with attention that computes k scores a query
and reconstructs the others; a learnt map beats a fixed one, most at small k; one map
for all layers is better at k = 16, one a layer at k = 32; MNLI accuracy 81.6 with all
scores and 79.7 with 32 (97.7 % of it): Bhojanapalli et al. 2021, by a review. How the
paper does this in detail is not known; what follows is our choice.

What is done here. Queries select keys of their own, greedily from the covariances of
all layers' scores; heads share a map.

    full         softmax attention
    fixed-K      K scores a query, a map a layer, by least squares, which stays
    learnt-K     the same map to begin with, trained with the model
    shared-K     one map for all layers, from the pooled covariance, trained

`classification` fine-tunes a pretrained encoder, whose scores on training texts give
selection and maps; padded keys count with the mean of their scores. `mlm` trains a
small encoder from random parameters to predict masked pieces (15 %, of which 80 % are
hidden, 10 % another piece, 10 % left), with learnt positions that begin as sinusoids:
nothing is known of its scores, so that selected keys are spread evenly and a map begins
with each key's nearest selected one; `fixed-K` stays so. Every encoder it trains with
softmax is saved in encoders/, for experiments.eigen.

    preset        task                                          hardware     minutes
    smoke         mlm, a few steps                              2 cores      under 1
    sentences     MiniLM on film snippets, n = 128              1 core       45
    mlm           3 layers of 64 on bytes, n = 32               1 core       8
    mnli          BERT base on MNLI, n = 128                    TPU or GPU
    mlm-base      a BERT base of its own, n = 128               TPU or GPU

Commands.

    python -m experiments.eigen_training smoke
    python -m experiments.eigen_training sentences --pretrained FOLDER --data TEXTS
    python -m experiments.eigen_training sentences --pretrained FOLDER --data TEXTS \
        --models full fixed-32 learnt-32 --seeds 1
    python -m experiments.eigen_training mlm --data BROWN --tagged
    python -m experiments.eigen_training mnli --pretrained FOLDER --tfds-dir PREPARED
    python -m experiments.eigen_training mlm-base --data "books/**/*.txt"

FOLDER holds config.json, model.safetensors and tokenizer.json of a model of the BERT
family, TEXTS a class, a tab and a text on each line, BROWN the Brown corpus: how to get
ours, and what they are, stands in docs/eigen.md. For MNLI, prepare `glue/mnli` with
tensorflow-datasets first. Nothing here downloads anything.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments.common.fields import by_name, fields_but

# What may differ between two commands that go on in one work directory.
NOT_SHARED = (
    "preset",
    "models",
    "steps",
    "seeds",
    "pretrained",
    "data",
    "tfds_dir",
    "workdir",
    "checkpoint_every",
    "log_every",
    "eval_every",
)
KINDS = ("fixed", "learnt", "shared")
NINE = tuple(f"{kind}-{k}" for k in (8, 16, 32) for kind in KINDS)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Trains encoders with all scores and with few, and compares them.

    Attributes:
      preset: where the other values come from.
      task: "classification" of texts, or "mlm", masked pieces of a text.
      models: full, and fixed-K, learnt-K or shared-K with K scores a query.
      steps: updates of each model.
      seeds: how many times each model is trained, with seeds 0, 1, 2, ...
      pretrained: of classification: a folder with an encoder and its tokenizer.
      data: of classification, a file with a class, a tab and a text on each line, or
        several texts; of mlm, files, directories or globs with text, None for the
        source of Python's standard library.
      tagged: of mlm: whether words of the text are written word/tag.
      tfds: of classification: a set of tensorflow-datasets in place of a file.
      tfds_dir: where it was prepared. None is the library's own default.
      features: of the data set, the texts of an example.
      splits: of the data set, to train, to validate and to test on.
      length: tokens of a sequence, n.
      batch_size: sequences of a batch.
      learning_rate: its peak; it warms up linearly and falls along a cosine.
      map_learning_rate: factor on it for maps.
      warmup_fraction: the part of the updates that is warm-up.
      weight_decay: of AdamW, on kernels and embeddings.
      dropout_rate: on embeddings and on each layer's output.
      statistics: of classification: training texts from which maps are fitted.
      ridge: of the maps, relative to the mean variance of a score.
      held_out: sequences on which the curve is measured, the first ones of that side.
      vocab_size, num_layers, d_model, num_heads, d_ff: of the encoder of mlm.
      checkpoint_every, log_every, eval_every: steps between two.
      workdir: where everything is written. None is runs/eigen_training/PRESET.
    """

    preset: tyro.conf.Suppress[str] = "sentences"
    task: str = "classification"
    models: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]")] = (
        "full",
        *NINE,
    )
    steps: int = 50
    seeds: int = 3
    pretrained: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    data: Annotated[
        tuple[str, ...] | None, tyro.conf.arg(metavar="PATH [PATH ...]")
    ] = None
    tagged: bool = False
    tfds: str | None = None
    tfds_dir: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    features: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]")] = ()
    splits: tuple[str, str, str] = ("train[:95%]", "train[95%:]", "validation")
    length: int = 128
    batch_size: int = 8
    learning_rate: float = 1e-4
    map_learning_rate: float = 1.0
    warmup_fraction: float = 0.1
    weight_decay: float = 0.01
    dropout_rate: float = 0.1
    statistics: int = 256
    ridge: float = 1e-3
    held_out: int = 128
    vocab_size: int = 4096
    num_layers: int = 4
    d_model: int = 128
    num_heads: int = 4
    d_ff: int = 512
    checkpoint_every: int = 50
    log_every: int = 10
    eval_every: int = 25
    workdir: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None

    def shared(self) -> dict[str, Any]:
        """What all models of one work directory have in common."""
        # As JSON has it, so that it can be compared with what was written.
        return json.loads(json.dumps(fields_but(self, NOT_SHARED)))

    def directory(self) -> Path:
        """The work directory."""
        return self.workdir or Path("runs", "eigen_training", self.preset)


_SENTENCES = TrainingConfig()

_MLM = replace(
    _SENTENCES,
    preset="mlm",
    task="mlm",
    models=("full", "learnt-4", "learnt-8", "fixed-8", "shared-8"),
    steps=2500,
    seeds=1,
    length=32,
    batch_size=32,
    learning_rate=3e-3,
    dropout_rate=0.0,
    held_out=256,
    vocab_size=259,
    num_layers=3,
    d_model=64,
    d_ff=128,
    checkpoint_every=500,
    log_every=50,
    eval_every=250,
)

PRESETS = by_name(
    # A few seconds: to see that everything works.
    replace(
        _MLM,
        preset="smoke",
        models=("full", "learnt-2", "shared-2"),
        steps=6,
        length=16,
        batch_size=4,
        held_out=8,
        vocab_size=300,
        num_layers=2,
        d_model=16,
        num_heads=2,
        d_ff=32,
        checkpoint_every=4,
        log_every=2,
        eval_every=4,
    ),
    _SENTENCES,
    _MLM,
    replace(
        _SENTENCES,
        preset="mnli",
        tfds="glue/mnli",
        features=("premise", "hypothesis"),
        splits=("train[:95%]", "train[95%:]", "validation_matched"),
        steps=36_000,
        batch_size=32,
        learning_rate=3e-5,
        statistics=4096,
        held_out=2048,
        checkpoint_every=2000,
        log_every=100,
        eval_every=2000,
    ),
    # Devlin et al. 2019, base, 90 % of whose updates are at this length.
    replace(
        _SENTENCES,
        preset="mlm-base",
        task="mlm",
        models=("full", "learnt-8", "learnt-16", "learnt-32", "fixed-32", "shared-32"),
        steps=1_000_000,
        seeds=1,
        batch_size=256,
        warmup_fraction=0.01,
        held_out=4096,
        vocab_size=30522,
        num_layers=12,
        d_model=768,
        num_heads=12,
        d_ff=3072,
        checkpoint_every=10_000,
        log_every=100,
        eval_every=10_000,
    ),
)
