"""Which keys to select and how to rebuild the others, from a pretrained encoder."""

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from attn_jax.analysis import eigen
from attn_jax.data import LabelledBatch
from attn_jax.nn import Partial, Softmax
from attn_jax.ops import masks
from experiments.eigen_training.classification import Classification
from experiments.eigen_training.command_line import kind, known

SIZE = 64  # texts at a time


class Start(NamedTuple):
    """What a model with few scores begins with.

    selected: Int[n k], positions that each query selects.
    layers, shared: a map a layer, and one for all.
    """

    selected: np.ndarray
    layers: list[eigen.RowMaps]
    shared: eigen.RowMaps


def find(task: Classification, names: list[str], folder: Path) -> dict[int, Start]:
    """{k: what models with k scores begin with}, read from a folder or found."""
    ks = sorted({known(name) for name in names} - {0})
    paths = {k: folder / f"maps-{k}.npz" for k in ks}
    missing = [k for k in ks if not paths[k].is_file()]
    if missing:
        print(f"scores of {task.config.statistics} texts", flush=True)
        statistics = _statistics(task)
        pooled = eigen.Covariance()
        for layer in statistics:
            pooled = pooled.merge(layer)
        most = eigen.row_selection(pooled.matrix, max(missing))
        folder.mkdir(parents=True, exist_ok=True)
        for k in missing:
            # The first k of greedily selected keys are what k alone would be.
            selected, ridge = most[:, :k], task.config.ridge
            maps = [eigen.fit_rows(each, selected, ridge) for each in statistics]
            _save(
                paths[k], Start(selected, maps, eigen.fit_rows(pooled, selected, ridge))
            )
    return {k: _load(paths[k]) for k in ks}


def _statistics(task: Classification) -> list[eigen.Covariance]:
    """By position, heads together, of every layer; padding never enters."""
    model = task.encoder(Softmax(), nnx.Rngs(0))
    graph, state = nnx.split(model)

    @jax.jit
    def logits(state: Any, batch: LabelledBatch) -> jax.Array:
        encoder = nnx.merge(graph, state)
        mask = masks.padding(batch.real, batch.real)
        types = batch.types if encoder.config.num_types else None
        return encoder.attention_logits(batch.tokens, mask=mask, types=types)

    batches = task.sides["train"].in_order(batch_size=SIZE)
    found = None
    for batch in itertools.islice(batches, -(-task.config.statistics // SIZE)):
        scores = np.asarray(logits(state, batch))
        real = jnp.asarray(batch.real)
        part = [eigen.Batch(scores, masks.padding(real, real))]
        found = eigen.score_statistics(
            part, length=task.length, of="positions", start=found
        )
    return [layer[0] for layer in found or []]


def mechanism(name: str, n: int, start: Start | None) -> Softmax | Partial:
    """The attention of a model."""
    if kind(name) == "full":
        return Softmax()
    return Partial(
        max_length=n,
        rank=None if start is not None else known(name),
        selected=None if start is None else start.selected,
        causal=False,
        share_layers=kind(name) == "shared",
        trainable=kind(name) != "fixed",
    )


def begin(model: Any, name: str, start: Start) -> None:
    """Sets the maps of a model, in the stacked parameters of its layers."""
    core = model.stack.blocks.attention.mechanism
    for part in eigen.RowMaps._fields:
        if kind(name) == "shared":
            value = getattr(start.shared, part)[None]
        else:
            value = np.stack([getattr(maps, part)[None] for maps in start.layers])
        variable = getattr(core, part)
        variable[...] = jnp.asarray(value, variable.dtype)


def _save(path: Path, start: Start) -> None:
    arrays = {"selected": start.selected}
    for part in eigen.RowMaps._fields:
        layers = np.stack([getattr(maps, part) for maps in start.layers])
        arrays[f"layers-{part}"] = layers.astype(np.float32)
        arrays[f"shared-{part}"] = getattr(start.shared, part).astype(np.float32)
    scratch = path.with_suffix(".tmp.npz")
    np.savez(scratch, **arrays)
    scratch.replace(path)


def _load(path: Path) -> Start:
    with np.load(path) as arrays:
        parts = {name: arrays[name] for name in arrays.files}
    fields = eigen.RowMaps._fields
    layers = zip(*(parts[f"layers-{part}"] for part in fields), strict=True)
    return Start(
        parts["selected"],
        [eigen.RowMaps(*each) for each in layers],
        eigen.RowMaps(*(parts[f"shared-{part}"] for part in fields)),
    )
