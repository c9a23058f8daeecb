"""The numbers of one model, each computed once and kept in the work directory."""

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import PyTree

from attn_jax.data import ImageSet
from experiments.common.workdir import Workdir
from experiments.linear_images.config import ImagesConfig
from experiments.linear_images.training import BITS, Program, train
from experiments.linear_images.writing import Written, cache_bytes, ways, write


class Row:
    """A model of the comparison: trained, measured, and set to write.

    computed: whether something had to be computed, and wasn't there from earlier.
    """

    def __init__(
        self, mechanism: str, config: ImagesConfig, images: ImageSet, workdir: Workdir
    ) -> None:
        self.mechanism, self.config, self.images = mechanism, config, images
        self.computed = False
        self._workdir = workdir
        self._program: Program | None = None
        self._trained: tuple[PyTree, dict[str, Any]] | None = None

    def numbers(self) -> dict[str, Any]:
        """All of them: of the training first, then of what it writes."""
        config = self.config
        judged = {"test_images": config.test_images}
        training = self._once(self.mechanism, judged, self._measure_training)
        softmax = self.mechanism == "softmax"
        found = ways(self.program.model, config.recompute and softmax)
        counts = sorted({1, config.generate}, reverse=True)
        timed = [
            self._once(
                f"{self.mechanism}-{way}-{count}",
                {"repeats": self._repeats(way)},
                lambda way=way, count=count: self._measure_writing(way, count),
            )
            for way in found
            for count in counts
        ]
        occluded = halves(self.images, config.completions)
        completed = self._once(
            f"{self.mechanism}-completions",
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
            there = {**asked, **compute()}
            self._workdir.finish(name, there)
            self.computed = True
        return there

    def _train(self) -> tuple[PyTree, dict[str, Any]]:
        """Trains what is left, or restores the last state."""
        if self._trained is None:
            self._trained = train(self.program, self._workdir)
        return self._trained

    def _measure_training(self) -> dict[str, Any]:
        print(f"{self.mechanism}: training", flush=True)
        params, numbers = self._train()
        bits = self.program.bits_per_dim(params, self.config.test_images)
        print(f"{self.mechanism}: {bits:.3f} bits/dim", flush=True)
        earlier = self._workdir.finished(self.mechanism) or {}
        seconds = numbers["compile_seconds"] or earlier.get("compile_seconds")
        return {**numbers, "compile_seconds": seconds, BITS: bits}

    def _measure_writing(self, way: str, count: int) -> dict[str, Any]:
        written = self._write(way, np.zeros((count, 0), np.uint8), self._repeats(way))
        median = float(np.median(written.seconds))
        length = self.config.num_pixels
        print(
            f"{self.mechanism}, {way}: {count} images in {median:.3g} s",
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
        params, _ = self._train()
        return write(
            program.graph,
            params,
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
