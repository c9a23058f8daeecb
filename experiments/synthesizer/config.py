r"""The rows of table 2 of Tay et al. 2021, on tasks that two cores can learn.

What the paper says. Attention needs no dot products: logits that are parameters, or
that come from one token alone, do nearly as well, and mixed with dot products better
than these alone. Table 2 has nine rows on translation (WMT14, BLEU) and on language
(LM1B, perplexity); cross-attention is softmax in all of them.

    softmax             dot products, its "Transformer" or "vanilla"
    fixed_random        logits drawn once and never trained
    random              logits learnt for every pair of positions
    factorized_random   the same at rank 8
    dense               logits from the query's token alone
    factorized_dense    the same as a product of two short vectors
    random+dense, dense+softmax, random+softmax     mixtures, weights learnt a head

What is done here. The same rows at the sizes that a study says, each with several
seeds. As in the paper, the rows are not made equally large: width, depth and d_ff are
the same, and the table says what that makes of parameters. (`experiments.compare` has
rows of one size.) What is not trained is not counted.

    study               what                                          minutes on 1 core
    translation         help pages, English to German, short pairs    45
    lm-bytes            Python's standard library, byte by byte       25
    lm-subwords         the same in 1,024 pieces                      25
    snippets            film reviews, good or bad, an encoder         20
    heads               random and dense with 2, 4, 8, 16 heads       15
    speed               a layer's time and memory against length      3
    smoke               two rows on bytes, a few steps                under 1
    lm1b                the billion words in 32,000 pieces            GPU or TPU
    cnn-dailymail       summaries of articles                         GPU or TPU
    glue-*              a task of GLUE: cola, sst2, mrpc, qqp, ...    GPU or TPU
    superglue-*         a task of SuperGLUE: boolq, cb, copa, ...     GPU or TPU
    ag-news, imdb       topics of news, opinions of films             GPU or TPU

Commands.

    python -m experiments.synthesizer lm-bytes
    python -m experiments.synthesizer translation --data PREPARED_FOLDER
    python -m experiments.synthesizer snippets --data PREPARED_FILE

Every run, a row with a seed, is a directory of its own in runs/synthesizer/STUDY and
goes on where it was stopped. A command leaves alone what another process is training,
so two of them share the work; results.json holds whatever is finished:

    python -m experiments.synthesizer lm-bytes --rows softmax random dense
    python -m experiments.synthesizer lm-bytes --rows random+dense dense+softmax

`row@16` is the row with 16 heads. Expected numbers stand in docs/results.md.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from experiments.common.fields import fields_but
from experiments.compare.config import CompareConfig
from experiments.translation.config import TranslationConfig

ROWS = (
    "softmax",
    "fixed_random",
    "random",
    "factorized_random",
    "dense",
    "factorized_dense",
    "random+dense",
    "dense+softmax",
    "random+softmax",
)

# What may differ between two commands that go on in one work directory; of the data
# only the place, since their fingerprint is checked.
MAY_DIFFER = ("preset", "rows", "seeds", "data", "tfds_dir", "workdir", "log_every")
# Fields of the experiment that a study runs which a row or a seed decides.
DECIDED = ("mechanism", "mechanisms", "encoder_mechanism", "seed", "map_sentence")

Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]")]
Folder = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]
_Hidden = (tyro.conf.Fixed, tyro.conf.Suppress)


@dataclass(frozen=True, kw_only=True)
class Study:
    """Rows that differ in their attention.

    Attributes:
      preset: where the other values come from.
      rows: names of the mechanism table, fixed_random, or several with + between: their
        mixture. @16 behind a name is the same with 16 heads.
      workdir: where everything is written. None is runs/synthesizer/STUDY.
    """

    kind: ClassVar[str]
    may_differ: ClassVar[tuple[str, ...]] = (*MAY_DIFFER, "checkpoint_every")

    preset: tyro.conf.Suppress[str] = ""
    rows: Names = ROWS
    workdir: Folder = None

    def shared(self) -> dict[str, Any]:
        """What all runs of one work directory have in common."""
        shared = fields_but(self, {*self.may_differ, *DECIDED})
        return dict(sorted(shared.items()))

    def directory(self) -> Path:
        """The work directory."""
        return self.workdir or Path("runs", "synthesizer", self.preset)


@dataclass(frozen=True, kw_only=True)
class Training(Study):
    """Rows that are trained, each several times.

    Attributes:
      seeds: how many times each row is trained, with seeds 0, 1, 2, ...
    """

    seeds: int = 3


@dataclass(frozen=True, kw_only=True)
class LanguageStudy(Training, CompareConfig):
    """The next byte or piece of text, by a decoder: `experiments.compare`'s training.

    Attributes:
      d_ff: width of the feed-forward layers, in all rows.
      vocab_size: pieces of a vocabulary learnt from the training text; 0 is bytes.
      tfds: a data set of tensorflow-datasets with a feature `text`, in place of files.
      tfds_dir: where it was prepared. None is the library's own default.
      splits: of the data set, to train and to validate on.
    """

    kind: ClassVar[str] = "language"

    vocab_size: int = 0
    tfds: str | None = None
    tfds_dir: Folder = None
    splits: tuple[str, str] = ("train[:1%]", "test")
    mechanisms: Annotated[tuple[str, ...], *_Hidden] = ()


@dataclass(frozen=True, kw_only=True)
class TranslationStudy(Training, TranslationConfig):
    """Sentence pairs, by an encoder-decoder: `experiments.translation`'s training.

    Attributes:
      test_sentences: of the test set that are short enough, how many are translated,
        greedily, evenly spaced.
      cut_sources: whether longer sources are cut, rather than their pairs left out.
    """

    kind: ClassVar[str] = "translation"
    # The last checkpoints are averaged: how far apart they are changes the numbers.
    may_differ: ClassVar[tuple[str, ...]] = MAY_DIFFER

    test_sentences: int = 300
    cut_sources: bool = False
    mechanism: Annotated[str, *_Hidden] = "softmax"
    encoder_mechanism: Annotated[str | None, *_Hidden] = None
    seed: Annotated[int, *_Hidden] = 0
    map_sentence: Annotated[int, *_Hidden] = 0


@dataclass(frozen=True, kw_only=True)
class ClassificationStudy(Training):
    """The class of a text or of several, by an encoder.

    Attributes:
      data: a file with a class, a tab and a text on each line, or several texts; it is
        split by a hash of the texts.
      tfds: a data set of tensorflow-datasets, in place of a file.
      tfds_dir: where it was prepared. None is the library's own default.
      features: of the data set, the texts of an example.
      splits: of the data set, to train, to validate and to test on.
      vocab_size: pieces of the vocabulary, 259 or more.
      length: pieces of an example; longer ones are cut.
      pooling: what is classified, "mean" of the tokens or "first" of them.
      steps: training steps of each run.
      batch_size: examples of a batch.
      num_layers, d_model, num_heads, d_ff: of the encoder.
      dropout_rate: on embeddings, on each layer's output and on what is classified.
      learning_rate: its peak; it warms up over a twentieth of the steps and falls along
        a cosine.
      weight_decay: of AdamW, on matrices other than a Synthesizer's.
      checkpoint_every, log_every, eval_every: steps between two.
    """

    kind: ClassVar[str] = "classification"

    data: Folder = None
    tfds: str | None = None
    tfds_dir: Folder = None
    features: Names = ()
    splits: tuple[str, str, str] = ("train[:95%]", "train[95%:]", "validation")
    vocab_size: int = 2000
    length: int = 56
    pooling: str = "mean"
    steps: int = 600
    batch_size: int = 32
    num_layers: int = 2
    d_model: int = 64
    num_heads: int = 4
    d_ff: int = 256
    dropout_rate: float = 0.1
    learning_rate: float = 1e-3
    weight_decay: float = 0.1
    checkpoint_every: int = 200
    log_every: int = 20
    eval_every: int = 100


@dataclass(frozen=True, kw_only=True)
class SpeedStudy(Study):
    """Time and memory of one attention layer, by the length.

    Attributes:
      lengths: tokens a row.
      tokens: of all rows together; at least one row.
      d_model, num_heads: of the layer.
      rounds: counted calls of each; all rows take turns.
    """

    kind: ClassVar[str] = "speed"

    lengths: tuple[int, ...] = (64, 256, 1024)
    tokens: int = 2048
    d_model: int = 128
    num_heads: int = 4
    rounds: int = 5
