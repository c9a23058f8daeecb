r"""The Transformer of 2017 on sentence pairs: one model, trained and measured.

What the paper says. A model of attention alone translates better than recurrent and
convolutional ones, for a fraction of the training: 27.3 BLEU from English to German
(newstest2014, base, 65 M parameters, 12 hours on 8 P100) and 28.4 (big, 3.5 days);
Vaswani et al. 2017, table 2. Its BLEU is tokenised with compounds split, from the mean
of the last checkpoints and a beam of 4 with alpha 0.6.

What is done here. The paper's model and training, at the size that the preset says:
post-norm, sinusoidal positions, one matrix of embeddings, label smoothing 0.1, Adam
(0.9, 0.98, 1e-9) with a linear warm-up and an inverse square root, batches of about as
many tokens each, the mean of the last checkpoints, beam search. Two cores cannot train
on WMT14's 4.5 million pairs, so the presets for a CPU learn the 22,000 sentences of
LibreOffice's help pages, which are split by page.

    preset               what                                       hardware    minutes
    smoke                reversed words, a few steps                2 cores     under 1
    reversal             words of 1 to 20 letters, reversed         2 cores     under 2
    libreoffice-en-de    help pages, English to German              2 cores     45 to 85
    libreoffice-en-fr    help pages, English to French              2 cores     45 to 85
    wmt14-en-de-base     the paper's base model                     TPU or GPU
    wmt14-en-de-big      the paper's big model                      TPU or GPU

Commands.

    python -m experiments.translation smoke
    python -m experiments.translation smoke --data FOLDER
    python -m experiments.translation reversal
    python -m experiments.translation libreoffice-en-de --data PREPARED_FOLDER
    python -m experiments.translation libreoffice-en-de --data PREPARED_FOLDER \
        --mechanism factorized_random
    python -m experiments.translation libreoffice-en-fr --data OTHER_FOLDER
    python -m experiments.translation wmt14-en-de-base --tfds-dir PREPARED_FOLDER

`python -m experiments.translation.prepare --help` says how to get the help pages. For
WMT14, prepare `wmt14_translate/de-en` with tensorflow-datasets first; nothing here
downloads anything. Each choice of attention has a work directory of its own, see
`variant`. Expected numbers stand in docs/results.md.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments.common.fields import by_name, fields_but

# What may differ between two commands that go on in one work directory.
NOT_SHARED = (
    "preset",
    "steps",
    "data",
    "tfds_dir",
    "workdir",
    "average",
    "beam_size",
    "alpha",
    "checkpoint_every",
    "log_every",
    "eval_every",
    "eval_sentences",
    "map_sentence",
)


@dataclass(frozen=True, kw_only=True)
class TranslationConfig:
    """Trains an encoder-decoder on sentence pairs, and translates the held-out ones.

    Attributes:
      preset: where the other values come from.
      mechanism: self-attention of the decoder: a name of the mechanism table,
        fixed_random, or several with + between, random+softmax say: their mixture.
      encoder_mechanism: self-attention of the encoder. None is that of the decoder.
      cross_mechanism: attention of the decoder to the encoder: softmax or linear.
      exclusive: exclusive self-attention in both stacks.
      data: folder with train.en, train.de, valid.en, ...: line-aligned files.
      tfds: a translation data set of tensorflow-datasets, in place of a folder.
      tfds_dir: where it was prepared. None is the library's own default.
      source, target: languages, as the files' names end or as the data set calls them.
      synthetic: words of up to so many letters to reverse, in place of text; 0 is none.
        --data or --tfds takes the place of a preset's.
      vocab_size: pieces of the shared vocabulary, 259 or more.
      max_length: pieces of a side at most, eos included; longer pairs are left out of
        training, and longer sources are cut when they are translated.
      max_tokens: of a batch, source, target and padding counted.
      steps: training steps.
      seed: of initial values, order of batches and dropout.
      num_layers: of each stack.
      d_model, num_heads, d_ff: widths, as in the paper.
      dropout_rate: on embeddings and on each layer's output.
      norm_placement: "post" as in the paper, or "pre".
      warmup_steps: of the schedule, whose peak they set.
      learning_rate: factor on the paper's schedule.
      label_smoothing: as in the paper.
      average: the last checkpoints of which the mean is evaluated: those of the last
        step and of multiples of checkpoint_every, not what an interruption saves.
      beam_size, alpha: of the search.
      extra_length: pieces that a translation may have more than the bucket of its
        source's length: 16, 24, 40, 64, 96, ... or max_length.
      checkpoint_every, log_every, eval_every: steps between two.
      eval_sentences: validation sentences translated at each evaluation, greedily.
      map_sentence: which test sentence the attention maps show.
      workdir: where everything is written. None is
        runs/translation/VARIANT: the preset, and how the attention differs from the
        paper's.
    """

    preset: tyro.conf.Suppress[str] = "smoke"
    mechanism: str = "softmax"
    encoder_mechanism: str | None = None
    cross_mechanism: str = "softmax"
    exclusive: bool = False
    data: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    tfds: str | None = None
    tfds_dir: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    source: str = "en"
    target: str = "de"
    synthetic: int = 0
    vocab_size: int = 37000
    max_length: int = 256
    max_tokens: int = 50_000
    steps: int = 100_000
    seed: int = 0
    num_layers: int = 6
    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    dropout_rate: float = 0.1
    norm_placement: str = "post"
    warmup_steps: int = 4000
    learning_rate: float = 1.0
    label_smoothing: float = 0.1
    average: int = 5
    beam_size: int = 4
    alpha: float = 0.6
    extra_length: int = 50
    checkpoint_every: int = 1500
    log_every: int = 50
    eval_every: int = 1500
    eval_sentences: int = 256
    map_sentence: int = 0
    workdir: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None

    def shared(self) -> dict[str, Any]:
        """What all commands in one work directory have in common."""
        return fields_but(self, NOT_SHARED)

    def directory(self) -> Path:
        """The work directory."""
        return self.workdir or Path("runs", "translation", variant(self))


def variant(config: TranslationConfig) -> str:
    """The preset, and how the attention differs from the paper's.

    Names the work directory and the results, so that variants stand beside each other.
    """
    return "-".join([config.preset, *departures(asdict(config))])


def departures(config: Mapping[str, Any]) -> list[str]:
    """How the attention of a config differs from the paper's: in nothing, if empty.

    >>> departures({"mechanism": "linear", "encoder_mechanism": "softmax",
    ...             "cross_mechanism": "linear", "exclusive": True})
    ['linear', 'encoder_softmax', 'cross_linear', 'exclusive']
    """
    decoder, cross = config["mechanism"], config["cross_mechanism"]
    encoder = config["encoder_mechanism"] or decoder
    names = {
        decoder: decoder != "softmax",
        f"encoder_{encoder}": encoder != decoder,
        f"cross_{cross}": cross != "softmax",
        "exclusive": config["exclusive"],
    }
    return [name for name, differs in names.items() if differs]


def scheduled_steps(config: Mapping[str, Any]) -> list[int]:
    """The checkpoints to average: those that a run without interruption saves last.

    >>> scheduled_steps({"steps": 25, "checkpoint_every": 10, "average": 2})
    [20, 25]
    """
    steps, every = config["steps"], config["checkpoint_every"]
    return [*range(every, steps, every), steps][-config["average"] :]


_BASE = TranslationConfig()

_REVERSAL = replace(
    _BASE,
    preset="reversal",
    source="letters",
    target="reversed",
    synthetic=20,
    vocab_size=259,
    max_length=24,
    max_tokens=2048,
    steps=2400,
    num_layers=2,
    d_model=64,
    num_heads=4,
    d_ff=128,
    dropout_rate=0.0,
    norm_placement="pre",
    warmup_steps=300,
    learning_rate=0.4,
    label_smoothing=0.0,
    average=4,
    extra_length=2,
    checkpoint_every=200,
    eval_every=600,
    eval_sentences=128,
)

_HELP = replace(
    _BASE,
    preset="libreoffice-en-de",
    vocab_size=4000,
    max_length=96,
    max_tokens=4096,
    steps=5000,
    num_layers=3,
    d_model=192,
    num_heads=4,
    d_ff=512,
    dropout_rate=0.1,
    warmup_steps=1000,
    checkpoint_every=500,
    eval_every=500,
    eval_sentences=128,
)


def with_text(preset: TranslationConfig) -> TranslationConfig:
    """A preset of made-up words for sentences: other lengths, another directory."""
    return replace(
        preset,
        preset=f"{preset.preset}-text",
        source=_BASE.source,
        target=_BASE.target,
        synthetic=0,
        max_length=192,
        max_tokens=max(preset.max_tokens, 1024),
    )


PRESETS = by_name(
    replace(
        _REVERSAL,
        preset="smoke",
        synthetic=6,
        max_length=8,
        max_tokens=256,
        steps=20,
        num_layers=1,
        d_model=32,
        num_heads=2,
        d_ff=64,
        warmup_steps=10,
        beam_size=2,
        average=2,
        checkpoint_every=10,
        log_every=5,
        eval_every=10,
        eval_sentences=8,
    ),
    _REVERSAL,
    _HELP,
    replace(_HELP, preset="libreoffice-en-fr", target="fr"),
    replace(_BASE, preset="wmt14-en-de-base", tfds="wmt14_translate/de-en"),
    replace(
        _BASE,
        preset="wmt14-en-de-big",
        tfds="wmt14_translate/de-en",
        steps=300_000,
        d_model=1024,
        num_heads=16,
        d_ff=4096,
        dropout_rate=0.3,
        average=20,
    ),
)
