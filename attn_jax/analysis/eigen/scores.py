"""Statistics of a model's attention scores, by layer and by head or over all heads."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from attn_jax.analysis.eigen.covariance import Covariance, Known, Sketch
from attn_jax.nn._checks import check_sizes
from attn_jax.ops.masks import Mask

KINDS = ("rows", "positions", "matrices")
HEADS = ("pooled", "apart")
Found = TypeVar("Found")


class Batch(NamedTuple):
    """Scores of some sequences, in every layer.

    scores: before the softmax, as `Encoder.attention_logits` gives them.
    mask: what each query may attend to; None is everything. A score that it hides
        never enters.
    """

    scores: Float[Known, "layer b h t t"]
    mask: Mask | None = None


def score_statistics(
    batches: Iterable[Batch],
    *,
    length: int,
    of: str = "rows",
    heads: str = "pooled",
    centred: bool = False,
    start: list[list[Covariance]] | None = None,
) -> list[list[Covariance]]:
    """Means and covariances of scores: a list for each layer, with one a head or one.

    Args:
      batches: scores of a model, any number of sequences at a time.
      length: of the sequences, n.
      of: what a sample is. "rows", the scores of a query, whichever it is; "positions",
        the same, one covariance n n for each position; "matrices", all n² scores of a
        head, which takes memory for n⁴ numbers: see `score_sketches`.
      heads: "pooled", samples of all heads of a layer together, or "apart".
      centred: takes out each row's mean, which the softmax does not see.
      start: what was found so far, to go on from; it stays as it is.

    Raises:
      ValueError: no batch, and no start; sequences of another length; scores that are
        not finite, with their layer and head.
    """
    if of not in KINDS:
        raise ValueError(f"of: got {of!r}; expected one of {_listed(KINDS)}")

    def add(found: Covariance, x: np.ndarray, valid: np.ndarray | None) -> Covariance:
        samples, there = _shaped(x, valid, of)
        return found.update(samples, valid=there)

    parts = _matrices(batches, length, heads, centred)
    return _collected(parts, Covariance(), add, start)


def score_sketches(
    batches: Iterable[Batch],
    *,
    length: int,
    rank: int,
    heads: str = "pooled",
    centred: bool = False,
    seed: int = 0,
    start: list[list[Sketch]] | None = None,
) -> list[list[Sketch]]:
    """The leading components of whole score matrices, of any length.

    A matrix of which the mask hides a score is left out.

    Args:
      rank: components that are wanted.
      seed: of the random columns.
      batches, length, heads, centred, start: as in `score_statistics`.

    Raises:
      ValueError: as in `score_statistics`.
    """

    def add(found: Sketch, x: np.ndarray, valid: np.ndarray | None) -> Sketch:
        samples, there = _shaped(x, valid, "matrices")
        return found.update(samples if there is None else samples[there.all(axis=-1)])

    parts = _matrices(batches, length, heads, centred)
    return _collected(parts, Sketch(size=length**2, rank=rank, seed=seed), add, start)


def _collected(
    parts: Iterable[tuple[int, int, np.ndarray, np.ndarray | None]],
    empty: Found,
    add: Callable[[Found, np.ndarray, np.ndarray | None], Found],
    start: list[list[Found]] | None,
) -> list[list[Found]]:
    """What is found of each layer and head, from `empty` or from `start` on."""
    found = [list(groups) for groups in start or []]
    for layer, head, x, valid in parts:
        if layer == len(found):
            found.append([])
        if head == len(found[layer]):
            found[layer].append(empty)
        found[layer][head] = add(found[layer][head], x, valid)
    if not found:
        raise ValueError(
            "batches: got none; expected a batch of scores at least; an iterator that "
            "was gone through before gives none, make it anew"
        )
    return found


def _matrices(
    batches: Iterable[Batch], length: int, heads: str, centred: bool
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray | None]]:
    """Layer, head or 0, score matrices N n n, and which of their entries are there."""
    check_sizes(length=length)
    if heads not in HEADS:
        raise ValueError(f"heads: got {heads!r}; expected one of {_listed(HEADS)}")
    for batch in batches:
        scores, mask = Batch(*batch)
        _check_length(scores, length)
        valid = None if mask is None else np.asarray(mask.allowed(length, length))
        for layer, each in enumerate(scores):
            x = np.asarray(each, np.float64)
            there = None if valid is None else np.broadcast_to(valid, x.shape)
            _check_finite(x, there, layer)
            if centred:
                x = _row_centred(x, there)
            groups = range(x.shape[1]) if heads == "apart" else [slice(None)]
            for head, group in enumerate(groups):
                yield (
                    layer,
                    head,
                    x[:, group].reshape(-1, length, length),
                    None
                    if there is None
                    else there[:, group].reshape(-1, length, length),
                )


def _shaped(
    samples: np.ndarray, valid: np.ndarray | None, of: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Score matrices as samples of a kind."""
    n = samples.shape[-1]
    if of == "positions":
        return samples.swapaxes(0, 1), None if valid is None else valid.swapaxes(0, 1)
    width = n if of == "rows" else n * n
    samples = samples.reshape(-1, width)
    if valid is None:
        return samples, None
    valid = valid.reshape(-1, width)
    some = valid.any(axis=-1)
    return samples[some], valid[some]


def _row_centred(x: np.ndarray, valid: np.ndarray | None) -> np.ndarray:
    if valid is None:
        return x - x.mean(axis=-1, keepdims=True)
    count = np.maximum(valid.sum(axis=-1, keepdims=True), 1)
    return x - np.where(valid, x, 0.0).sum(axis=-1, keepdims=True) / count


def _check_length(scores: Any, length: int) -> None:
    if np.ndim(scores) != 5 or np.shape(scores)[-2:] != (length, length):
        raise ValueError(
            f"scores: got shape {np.shape(scores)}; expected (layer, b, h, {length}, "
            f"{length}), of sequences of the analysed length {length}; cut longer "
            "ones, and pad shorter ones and say so in the mask"
        )


def _check_finite(x: np.ndarray, valid: np.ndarray | None, layer: int) -> None:
    bad = ~np.isfinite(x)
    if valid is not None:
        bad &= valid
    if bad.any():
        example, head, query, key = map(int, np.argwhere(bad)[0])
        raise ValueError(
            f"scores: got {x[example, head, query, key]} in layer {layer}, head {head} "
            f"(example {example}, query {query}, key {key}); expected finite numbers; "
            "look at the model there, or hide it with the mask"
        )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))
