"""Five feature maps of linear attention, each with and without a normaliser.

What is compared. Linear attention that differs in its feature map alone, and in what
makes the size of its output independent of the number of keys:

    elu             x + 1 or exp(x)                     Katharopoulos et al. 2020
    relu            max(x, 0)
    squared_relu    max(x, 0)^2
    exp             exp(x), stabilised at each position
    polynomial      the features of (1 + x.y)^2         degree 2

    elu             divided by the sum of similarities, as in the paper
    elu+norm        not divided; each head's output RMS-normalised (Qin et al. 2022)

What the papers say. Katharopoulos et al. chose elu over relu, whose gradient is 0
below 0. Qin et al. found the gradient of the division unbounded, and put a norm in its
place.

On what. The copy task at the size of `experiments.linear_copy`'s preset cpu, and the
bytes of Python's standard library with the models of `experiments.compare`'s demo. All
rows see the same batches, and begin with the same values where they share parameters.

    preset    what                                              hardware      minutes
    smoke     two maps, a few steps                             2 cores       under 1
    cpu       10 rows on 2 tasks                                2 cores       24

Commands.

    python -m experiments.feature_maps smoke
    python -m experiments.feature_maps cpu --seeds 2
    python -m experiments.feature_maps cpu --maps elu relu --tasks copy
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments.common.fields import by_name
from experiments.compare import config as compare
from experiments.linear_copy import config as linear_copy

# What may differ between two commands that go on in one work directory. The steps may
# not: the rate of text falls along a cosine to its last step.
NOT_SHARED = ("preset", "maps", "tasks", "seeds", "data", "workdir")

MAPS = ("elu", "relu", "squared_relu", "exp", "polynomial")
TASKS = ("copy", "text")


@dataclass(frozen=True, kw_only=True)
class FeatureMapsConfig:
    """Trains decoders that differ in the feature map of their linear attention.

    Attributes:
      preset: where the other values come from.
      maps: feature maps, with blanks between; each with a normaliser and with a norm.
      tasks: copy, text or both.
      seeds: how many times each model is trained, with seeds 0, 1, 2, ...
      copy_steps: training steps of each model on the copy task.
      text_steps: training steps of each model on the text.
      data: files, directories or globs with text. None is the source of Python's
        standard library on this machine.
      workdir: where everything is written. None is runs/feature_maps/PRESET.
      copy: of the copy task and its models.
      text: of the text and its models.
    """

    preset: tyro.conf.Suppress[str] = "cpu"
    maps: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]")] = MAPS
    tasks: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME]")] = TASKS
    seeds: int = 1
    copy_steps: int = 1000
    text_steps: int = 1000
    data: Annotated[
        tuple[str, ...] | None, tyro.conf.arg(metavar="PATH [PATH ...]")
    ] = None
    workdir: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    copy: tyro.conf.Suppress[linear_copy.CopyConfig] = field(
        default_factory=lambda: linear_copy.PRESETS["cpu"]
    )
    text: tyro.conf.Suppress[compare.CompareConfig] = field(
        default_factory=lambda: compare.PRESETS["demo"]
    )

    def copy_config(self) -> linear_copy.CopyConfig:
        """The copy task, for so many steps."""
        return replace(self.copy, steps=self.copy_steps)

    def text_config(self) -> compare.CompareConfig:
        """The text, for so many steps."""
        return replace(self.text, steps=self.text_steps, data=self.data)

    def shared(self) -> dict[str, Any]:
        """What all runs of one work directory have in common, but for the text."""
        copy, text = self.copy.shared(), self.text.shared()
        return {
            "copy_steps": self.copy_steps,
            "text_steps": self.text_steps,
            **{f"copy_{name}": value for name, value in copy.items()},
            **{f"text_{name}": value for name, value in text.items()},
        }

    def directory(self) -> Path:
        """The work directory."""
        return self.workdir or Path("runs", "feature_maps", self.preset)


_CPU = FeatureMapsConfig()

PRESETS = by_name(
    _CPU,
    replace(
        _CPU,
        preset="smoke",
        maps=("elu", "exp"),
        copy_steps=10,
        text_steps=10,
        copy=linear_copy.PRESETS["smoke"],
        text=compare.PRESETS["smoke"],
    ),
)
