"""Texts and the class of each: files, splits, and batches of token ids."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32

from attn_jax.data._checks import example_arguments, fail, integer
from attn_jax.data._random import below, random_words
from attn_jax.data._split import place_of
from attn_jax.data.parallel import read_lines


@dataclass(frozen=True)
class LabelledText:
    """Examples of one or several parts, and the class of each.

    Attributes:
        texts: the parts of each example, a premise and a hypothesis say.
        labels: the number of each one's class.
        classes: their names.
        name: where the examples are from.
    """

    texts: list[tuple[str, ...]]
    labels: list[int]
    classes: tuple[str, ...]
    name: str

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_parts(self) -> int:
        return len(self.texts[0]) if self.texts else 0

    @property
    def largest_share(self) -> float:
        """The part of the examples in the commonest class: what guessing it gets."""
        return max(np.bincount(self.labels).tolist()) / len(self)

    def take(self, chosen: Sequence[int]) -> "LabelledText":
        """Some of the examples."""
        texts = [self.texts[i] for i in chosen]
        labels = [self.labels[i] for i in chosen]
        return LabelledText(texts, labels, self.classes, self.name)


def load_labelled(path: str | os.PathLike[str]) -> LabelledText:
    r"""A file with a class, a tab and a text on each line, or several texts.

    Nothing is quoted and nothing is a header. White space around a column goes, a line
    without any text is left out. The classes are the words of the first column, sorted.

    Args:
        path: the file, in UTF-8; lines end with \n or \r\n.

    Returns:
        The examples in the order of the file.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: the file is empty or holds undecodable bytes, a line has one column
            alone, another number of columns than the first or an empty one, or all
            lines have the same class.
    """
    name = os.fspath(path)
    rows: list[list[str]] = []
    for number, line in enumerate(read_lines("path", name), start=1):
        if not line.strip():
            continue
        rows.append([column.strip() for column in line.split("\t")])
        _check_columns(f"path ({name}, line {number})", rows[-1], len(rows[0]))
    classes = sorted({row[0] for row in rows})
    if len(classes) < 2:
        fail(
            f"path ({name})",
            f"{len(rows)} lines of the class {classes[0]!r} alone",
            "at least two classes, in the first column",
            "write the class first, then a tab and the text",
        )
    number_of = {name: number for number, name in enumerate(classes)}
    return LabelledText(
        [tuple(row[1:]) for row in rows],
        [number_of[row[0]] for row in rows],
        tuple(classes),
        name,
    )


def split_labelled(
    data: LabelledText,
    *,
    validation_fraction: float = 0.1,
    test_fraction: float = 0.1,
) -> tuple[LabelledText, LabelledText, LabelledText]:
    """Training, validation and test, by a hash of the texts.

        example -> test         when  blake2b(texts) / 2⁶⁴ < test_fraction
                -> validation   when  it is below test_fraction + validation_fraction

    The same text is on the same side wherever it occurs, and stays there when others
    come or go.

    Raises:
        ValueError: fractions that leave a side nothing, or a side that got no example.
    """
    sides: tuple[list[int], list[int], list[int]] = ([], [], [])
    both = test_fraction + validation_fraction
    if not (test_fraction > 0 and validation_fraction > 0 and both < 1):
        fail(
            "validation_fraction and test_fraction",
            f"{validation_fraction} and {test_fraction}",
            "numbers above 0 whose sum is below 1",
            "0.1 and 0.1 are the defaults",
        )
    for i, texts in enumerate(data.texts):
        place = place_of("\t".join(texts))
        sides[2 if place < test_fraction else 1 if place < both else 0].append(i)
    if not all(sides):
        fail(
            f"data ({data.name})",
            f"{len(data)} examples, which leave a side empty",
            "some for each of training, validation and test",
            "pass more of them, or other fractions",
        )
    train, validation, test = (data.take(side) for side in sides)
    return train, validation, test


class LabelledBatch(NamedTuple):
    """Examples of one step, padded with 0 to one length.

    tokens: bos, then each part and eos.
    types: which part a token is of, counted from 0.
    real: True at tokens, False at padding.
    labels: the class of each example.
    weights: 1, or 0 in an empty row of the last batch of a validation.
    """

    tokens: Int32[np.ndarray, "b t"]
    types: Int32[np.ndarray, "b t"]
    real: Bool[np.ndarray, "b t"]
    labels: Int32[np.ndarray, " b"]
    weights: Float32[np.ndarray, " b"]


class LabelledBatches:
    """Encoded examples in batches of one shape.

    An example that is too long loses the end of its longest parts, so that something of
    each is left.

    Args:
        parts: the token ids of each example's parts, without bos and eos, above 0.
        labels: the class of each.
        bos_id: what begins an example.
        eos_id: what ends each part.
        length: tokens of a row; num_cut says how many examples are longer.

    Raises:
        ValueError: no example, another number of labels, or a length that doesn't hold
            a token of each part beside bos and eos.
    """

    def __init__(
        self,
        parts: Sequence[Sequence[Sequence[int]]],
        labels: Sequence[int],
        *,
        bos_id: int,
        eos_id: int,
        length: int,
    ) -> None:
        if len(parts) != len(labels) or not parts:
            fail(
                "parts and labels",
                f"{len(parts)} and {len(labels)}",
                "as many of both, at least one",
                "pass the label of each example",
            )
        most = max(map(len, parts))
        length = integer("length", length, minimum=1 + 2 * most)
        self.num_cut = 0
        self._tokens = np.zeros((len(parts), length), np.int32)
        self._types = np.zeros_like(self._tokens)
        self._sizes = np.zeros(len(parts), np.int64)
        self._labels = np.asarray(labels, np.int32)
        for row, example in enumerate(parts):
            cut = _shortened(example, length - 1 - len(example))
            self.num_cut += sum(map(len, cut)) < sum(map(len, example))
            ids, types = [bos_id], [0]
            for number, part in enumerate(cut):
                ids += [*part, eos_id]
                types += [number] * (len(part) + 1)
            self._tokens[row, : len(ids)] = ids
            self._types[row, : len(ids)] = types
            self._sizes[row] = len(ids)

    def __len__(self) -> int:
        return len(self._labels)

    def batch(
        self, step: int, *, seed: int, batch_size: int, rows: slice | None = None
    ) -> LabelledBatch:
        """Examples drawn uniformly: a pure function of (seed, step).

        Args:
            step: global step, from 0.
            seed: names the order of the run, any integer.
            batch_size: rows of the global batch.
            rows: those of them that are wanted (None: all).
        """
        seed, step, wanted = example_arguments(seed, step, batch_size, rows)
        words = random_words("labelled", seed=seed, step=step, rows=wanted, num_words=1)
        return self._make(below(words[:, 0], len(self)), len(wanted))

    def in_order(self, *, batch_size: int) -> Iterator[LabelledBatch]:
        """Every example once, the last batch filled with rows of weight 0."""
        batch_size = integer("batch_size", batch_size, minimum=1)
        return (
            self._make(np.arange(i, min(i + batch_size, len(self))), batch_size)
            for i in range(0, len(self), batch_size)
        )

    def _make(self, chosen: np.ndarray, rows: int) -> LabelledBatch:
        empty = rows - len(chosen)

        def fill(x: np.ndarray) -> np.ndarray:
            return np.pad(x[chosen], [(0, empty), *[(0, 0)] * (x.ndim - 1)])

        tokens = fill(self._tokens)
        return LabelledBatch(
            tokens=tokens,
            types=fill(self._types),
            real=np.arange(tokens.shape[1]) < fill(self._sizes)[:, None],
            labels=fill(self._labels),
            weights=np.pad(np.ones(len(chosen), np.float32), (0, empty)),
        )


def _shortened(example: Sequence[Sequence[int]], room: int) -> list[Sequence[int]]:
    """The parts within so many tokens, the longest of them cut to one length."""
    sizes = sorted(map(len, example))
    # Short parts stay whole; what they leave is shared among the others.
    for place, size in enumerate(sizes):
        share = room // (len(sizes) - place)
        if size > share:
            return [part[:share] for part in example]
        room -= size
    return list(example)


def _check_columns(where: str, columns: list[str], expected: int) -> None:
    remedy = "write the class, a tab and the text; no further tab may stand in a text"
    if len(columns) < 2:
        fail(where, "one column", "at least two: a class, then texts", remedy)
    if len(columns) != expected:
        wanted = f"{expected}, as on the first line"
        fail(where, f"{len(columns)} columns", wanted, remedy)
    if not all(columns):
        empty = columns.index("") + 1
        fail(where, f"an empty column {empty}", "text in every column", remedy)
