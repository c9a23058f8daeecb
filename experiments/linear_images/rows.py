"""The numbers of one model, each computed once and kept in the work directory."""

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import PyTree

from attn_jax.data import ImageSet
from attn_jax.models import count_parameters
from experiments.common import provenance
from experiments.common.live import Measure, make_display
from experiments.common.runs import run_name, seconds_of_training
from experiments.common.workdir import Workdir
from experiments.linear_images.config import ImagesConfig
from experiments.linear_images.training import BITS, Program
from experiments.linear_images.writing import Written, cache_bytes, ways, write

MEASURE = Measure(
    "bits/dim", 1 / math.log(2), lambda numbers: f"{numbers[BITS]:.3f} bits/dim"
)


class Row:
    """A model of the comparison: trained, measured, and set to write.

    parts: its numbers as they are kept, each with the origin it was computed with.
    """

    def __init__(
        self,
        mechanism: str,
        config: ImagesConfig,
        images: ImageSet,
        workdir: Workdir,
        origin: Mapping[str, Any],
    ) -> None:
        self.mechanism, self.config, self.images = mechanism, config, images
        self.parts: list[dict[str, Any]] = []
        self._workdir, self._origin = workdir, origin
        self._name = run_name(mechanism, config.seed)
        self._program: Program | None = None
        self._params: PyTree = None

    def numbers(self) -> dict[str, Any]:
        """All of them: of the training first, then of what it writes."""
        config = self.config
        judged = {"test_images": config.test_images}
        training = self._once(self._name, judged, self._measure_training)
        softmax = self.mechanism == "softmax"
        found = ways(self.program.model, config.recompute and softmax)
        counts = sorted({1, config.generate}, reverse=True)
        timed = [
            self._once(
                f"{self._name}-{way}-{count}",
                {"repeats": self._repeats(way)},
                lambda way=way, count=count: self._measure_writing(way, count),
            )
            for way in found
            for count in counts
        ]
        occluded = halves(self.images, config.completions)
        completed = self._once(
            f"{self._name}-completions",
            {"completions": config.completions},
            lambda: {"pixels": packed(self._write(found[-1], occluded, 1).pixels)},
        )
        return {
            "model": self.mechanism,
            "training": training,
            "writing": timed,
            "completions": completed["pixels"],
        }

    @property
    def program(self) -> Program:
        """Made when it is first needed."""
        if self._program is None:
            self._program = Program(self.mechanism, self.config, self.images)
        return self._program

    def _once(
        self, name: str, asked: dict[str, Any], compute: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Numbers under a name, computed unless they are there as asked for."""
        asked = {"steps": self.config.steps, **asked}
        there = self._workdir.finished(name)
        if there is None or any(there.get(key) != asked[key] for key in asked):
            there = {**asked, **compute(), **self._origin}
            self._workdir.finish(name, there)
        self.parts.append(there)
        return provenance.without_origin(there)

    def _measure_training(self) -> dict[str, Any]:
        program, config, name = self.program, self.config, self._name
        with make_display([name], MEASURE) as display:
            display.compiling(name)
            cost = program.compile()
            trained = program.train(self._workdir, display.progress(name))
            self._params = trained.params
            tokens = config.batch_size * config.num_pixels
            seconds = seconds_of_training(trained.lines, tokens, config.steps)
            numbers = {
                "seed": config.seed,
                BITS: program.bits_per_dim(trained.params, config.test_images),
                "curve": [[point["step"], point[BITS]] for point in trained.curve],
                "training_seconds": seconds,
                "tokens_per_second": seconds and config.steps * tokens / seconds,
                "images_per_second": seconds
                and config.steps * config.batch_size / seconds,
                "compile_seconds": cost.compile_seconds,
                "memory_bytes": cost.memory_bytes,
                "parameters": count_parameters(program.model),
            }
            display.finished(name, numbers)
        return numbers

    @property
    def params(self) -> PyTree:
        """Those after the last step, restored where they were trained earlier."""
        if self._params is None:
            self._params = self.program.train(self._workdir).params
        return self._params

    def _measure_writing(self, way: str, count: int) -> dict[str, Any]:
        written = self._write(way, np.zeros((count, 0), np.uint8), self._repeats(way))
        median = float(np.median(written.seconds))
        length = self.config.num_pixels
        print(
            f"{self._name}, {way}: {count} images in {median:.3g} s",
            flush=True,
        )
        return {
            "way": way,
            "images": count,
            "seconds": written.seconds,
            "median_seconds": median,
            "compile_seconds": written.compile_seconds,
            "kept_bytes": 0
            if way == "recompute"
            else cache_bytes(self.program.model, length),
            "pixels": packed(written.pixels),
        }

    def _write(self, way: str, given: np.ndarray, repeats: int) -> Written:
        program = self.program
        return write(
            program.graph,
            self.params,
            program.head,
            given,
            way=way,
            seed=self.config.seed,
            repeats=repeats,
        )

    def _repeats(self, way: str) -> int:
        return 1 if way == "recompute" else self.config.repeats


def chosen(images: ImageSet, count: int) -> np.ndarray:
    """Held-out images evenly spaced, so that nobody chose them."""
    count = min(count, len(images.test))
    return images.test[np.arange(count) * len(images.test) // count]


def halves(images: ImageSet, count: int) -> np.ndarray:
    """The upper half of these images."""
    height, width, channels = images.shape
    return chosen(images, count)[:, : height // 2 * width * channels]


def packed(pixels: np.ndarray) -> list[str]:
    """Images as text, bytes in base 64."""
    return [base64.b64encode(row.tobytes()).decode() for row in pixels]


def unpacked(text: str, shape: list[int]) -> np.ndarray:
    """The image of a text, height x width x channels; black where it ends early."""
    values = np.frombuffer(base64.b64decode(text), np.uint8)
    whole = np.zeros(np.prod(shape), np.uint8)
    whole[: len(values)] = values
    return whole.reshape(shape)
