r"""Images written pixel by pixel: the same decoder with softmax and linear attention.

What the paper says. A decoder with linear attention learns images about as well as one
with softmax, and writes them thousands of times faster, since its state does not grow:
on MNIST 0.644 bits a dimension against 0.621, 142.8 images a second against 0.45; on
CIFAR-10 3.40 against 3.47, 17.85 against 0.004; Katharopoulos et al. 2020, tables 1 and
2. Keeping keys and values gives softmax 7.56 and 0.32 images a second (table 4).

What is done here. Both decoders see the same batches for as many updates. Bits a
dimension are counted on held-out images, over all pixels: a sequence begins with a
black pixel, which tells nothing. Then each decoder writes images at temperature 1, one
and many at a time, in one compiled loop: softmax by reading all pixels again for each
(padded to the next eighth of an image), softmax with its keys and values kept, and
linear attention with its state. All draw with the same keys.

    preset          images                      model               hardware    minutes
    smoke           digits, a few steps         1 layer of 32       2 cores     under 1
    digits          8 x 8, 17 levels            2 layers of 64      1 core      4
    fashion-mnist   28 x 28, 256 levels         2 layers of 64      1 core      12
    mnist-paper     28 x 28, 256 levels         8 layers of 256     TPU or GPU
    cifar10-paper   32 x 32 x 3, 256 levels     16 layers of 256    TPU or GPU

Commands.

    python -m experiments.linear_images digits
    python -m experiments.linear_images fashion-mnist --data FOLDER
    python -m experiments.linear_images mnist-paper --tfds-dir PREPARED_FOLDER
    python -m experiments.linear_images cifar10-paper --tfds-dir PREPARED_FOLDER

The digits come with scikit-learn (the extra `images`). FOLDER has idx files, as
Debian's dataset-fashion-mnist installs them in /usr/share/datasets/fashion-mnist, the
default:

    apt-get download dataset-fashion-mnist && dpkg -x dataset-fashion-mnist_*.deb here
    python -m experiments.linear_images fashion-mnist \
        --data here/usr/share/datasets/fashion-mnist

For the last two, prepare `mnist` or `cifar10` with tensorflow-datasets first; nothing
here downloads anything. The paper trains for 250 epochs on MNIST and for 7 days on
CIFAR-10, whose number of updates it doesn't say. Expected numbers stand in
docs/results.md.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments.common.fields import by_name, fields_but

# What may differ between two commands that go on in one work directory, and the steps
# where the learning rate doesn't depend on how many there are.
NOT_SHARED = (
    "preset",
    "mechanisms",
    "data",
    "tfds",
    "tfds_dir",
    "workdir",
    "test_images",
    "generate",
    "repeats",
    "recompute",
    "completions",
    "checkpoint_every",
    "log_every",
    "eval_every",
)


@dataclass(frozen=True, kw_only=True)
class ImagesConfig:
    """Trains decoders on the pixels of images, and times how they write some.

    Attributes:
      preset: where the other values come from.
      mechanisms: models to compare: names of the mechanism table, or lsh-N for hashes
        in N rounds; blanks between.
      head: what a pixel is drawn from: "logistics", a mixture whose means and scales
        the model gives, or "categorical", a probability for each level.
      mixtures: logistics in the mixture.
      data: folder of idx files: train-images-idx3-ubyte and t10k-images-idx3-ubyte, as
        they are or as .gz.
      tfds: an image data set of tensorflow-datasets, in place of a folder. With
        neither, the images are scikit-learn's digits.
      tfds_dir: where it was prepared. None is the library's own default.
      side: height and width of the images.
      channels: 1 is grey, 3 is red, green, blue.
      levels: values that a pixel can have.
      steps: updates of each model. More of them go on from fewer only where the rate
        is constant, without warm-up and fall: another number is another schedule.
      seed: of initial values, batches, dropout and what is written.
      batch_size: images of a batch.
      num_layers: blocks of each decoder.
      d_model: width of the pixels.
      num_heads: attention heads.
      d_ff: width of the feed-forward layers.
      positions: "learned" or "sinusoidal", added to the pixels' embeddings,
        "concatenated" behind them as in the authors' code, or another kind that the
        decoder has.
      norm_placement: "pre", or "post" as in the authors' code.
      use_bias: whether projections and feed-forward layers have biases.
      activation: of the feed-forward layers: "gelu", or "relu" as in the authors' code.
      dropout_rate: on embeddings and on each layer's output.
      optimizer: "adamw", or "radam" as in the paper.
      learning_rate: its peak; it warms up linearly and falls along a cosine.
      warmup_fraction: the part of the updates that is warm-up.
      final_fraction: the last rate as a fraction of the peak; 1 doesn't fall.
      weight_decay: of either, on matrices.
      bucket_size: pixels that lsh and lsh-N attend to from one, and from the one before
        it.
      eval_images: held-out images on which the curve is measured; the first ones.
      test_images: held-out images on which the result is measured; the first ones.
      generate: images written at a time, beside one at a time.
      repeats: how often each way of writing is timed; reading all pixels again, once.
      recompute: whether softmax also writes without a cache, which takes minutes where
        there are many pixels.
      completions: held-out images whose lower half is written anew.
      checkpoint_every: steps between checkpoints.
      log_every: steps between two lines of metrics.jsonl.
      eval_every: steps between two points of the curves.
      workdir: where everything is written. None is runs/linear_images/PRESET, followed
        by the head where that isn't the preset's.
    """

    preset: tyro.conf.Suppress[str] = "digits"
    mechanisms: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]")] = (
        "softmax",
        "linear",
    )
    head: str = "logistics"
    mixtures: int = 10
    data: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    tfds: str | None = None
    tfds_dir: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    side: int = 28
    channels: int = 1
    levels: int = 256
    steps: int = 1000
    seed: int = 0
    batch_size: int = 8
    num_layers: int = 2
    d_model: int = 64
    num_heads: int = 4
    d_ff: int = 256
    positions: str = "learned"
    norm_placement: str = "pre"
    use_bias: bool = False
    activation: str = "gelu"
    dropout_rate: float = 0.0
    optimizer: str = "adamw"
    learning_rate: float = 3e-3
    warmup_fraction: float = 0.05
    final_fraction: float = 0.1
    weight_decay: float = 0.01
    bucket_size: int = 32
    eval_images: int = 128
    test_images: int = 1000
    generate: int = 16
    repeats: int = 3
    recompute: bool = True
    completions: int = 8
    checkpoint_every: int = 100
    log_every: int = 10
    eval_every: int = 100
    workdir: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        return self.side, self.side, self.channels

    @property
    def num_pixels(self) -> int:
        """Values of an image, which are the tokens of a sequence."""
        return self.side * self.side * self.channels

    def shared(self) -> dict[str, Any]:
        """What all commands in one work directory have in common."""
        return fields_but(self, self.may_differ)

    @property
    def may_differ(self) -> tuple[str, ...]:
        """What two commands in one work directory need not have in common."""
        constant = self.warmup_fraction == 0 and self.final_fraction == 1
        return (*NOT_SHARED, "steps") if constant else NOT_SHARED

    def directory(self) -> Path:
        """The work directory."""
        return self.workdir or Path("runs", "linear_images", self.title)

    @property
    def title(self) -> str:
        """The preset, and the head where that isn't the preset's."""
        other = self.head != PRESETS[self.preset].head
        return f"{self.preset}-{self.head}" if other else self.preset


_DIGITS = ImagesConfig(
    head="categorical",
    side=8,
    levels=17,
    steps=2000,
    batch_size=32,
    eval_images=297,
    test_images=297,
    checkpoint_every=500,
    eval_every=250,
)

_FASHION = ImagesConfig(
    preset="fashion-mnist", data=Path("/usr/share/datasets/fashion-mnist")
)

# Layers as the library of the paper's authors has them.
_PAPER = ImagesConfig(
    preset="mnist-paper",
    tfds="mnist",
    steps=1_500_000,
    batch_size=10,
    num_layers=8,
    d_model=256,
    num_heads=8,
    d_ff=1024,
    positions="concatenated",
    norm_placement="post",
    use_bias=True,
    activation="relu",
    dropout_rate=0.1,
    optimizer="radam",
    learning_rate=1e-4,
    warmup_fraction=0.0,
    final_fraction=1.0,
    eval_images=1000,
    test_images=10_000,
    repeats=1,
    checkpoint_every=10_000,
    log_every=100,
    eval_every=10_000,
)

PRESETS = by_name(
    replace(
        _DIGITS,
        preset="smoke",
        head="logistics",
        mixtures=3,
        steps=20,
        batch_size=4,
        num_layers=1,
        d_model=32,
        num_heads=2,
        d_ff=64,
        eval_images=8,
        test_images=16,
        generate=4,
        repeats=1,
        completions=4,
        checkpoint_every=10,
        log_every=5,
        eval_every=10,
    ),
    _DIGITS,
    _FASHION,
    _PAPER,
    replace(
        _PAPER,
        preset="cifar10-paper",
        tfds="cifar10",
        side=32,
        channels=3,
        steps=1_000_000,
        batch_size=4,
        num_layers=16,
    ),
)
