"""The directory in which checkpoints lie: made, cleaned, looked at for damage."""

import os
import shutil
import time
from typing import Any

import jax
import numpy as np

from attn_jax.train._checks import fail
from attn_jax.train.integrity import damaged_files, write_sums

TRASH = ".deleted"


class CheckpointWriteError(RuntimeError):
    """A checkpoint could not be written."""


class CheckpointReadError(RuntimeError):
    """A checkpoint is damaged, or nothing is in it."""


def open_manager(directory: str, item: str, kept: dict[str, Any]) -> Any:
    """What Orbax reads and writes the steps with.

    Args:
      item: what a state is called inside a step.
      kept: options that say which steps to keep.
    """
    import orbax.checkpoint as ocp

    options = ocp.CheckpointManagerOptions(
        **kept,
        step_format_fixed_length=8,
        cleanup_tmp_directories=True,
        # Renamed before they are deleted: no half of a step passes for a step.
        todelete_subdir=TRASH,
        # A directory that can't be made is an error of `save` itself.
        async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
    )

    class Handler(ocp.StandardCheckpointHandler):
        """Records the sums of the files before they count as written."""

        def finalize(self, directory: Any) -> None:
            super().finalize(directory)
            write_sums(directory)

    handler = Handler()
    registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
    for kind in (ocp.args.StandardSave, ocp.args.StandardRestore):
        registry.add(item, kind, handler)
    return ocp.CheckpointManager(directory, options=options, handler_registry=registry)


def make_directory(directory: str) -> None:
    """Make a local directory, or say why it can't be one."""
    if "://" in directory:
        return
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        fail(
            "directory",
            f"{directory}, which can't be made: {error}",
            "a directory, or a place where one can be made",
            "name another one",
            NotADirectoryError if os.path.exists(directory) else OSError,
        )


def empty_trash(directory: str) -> None:
    """Remove the steps that were put aside to be deleted."""
    if jax.process_index() == 0:
        shutil.rmtree(os.path.join(directory, TRASH), ignore_errors=True)


def discard(directory: str, step: int | None) -> None:
    """Remove what a failed save left, so that its step can be saved again.

    Other arrays of that save may still be on their way, and put files back.
    """
    if step is None or "://" in directory or jax.process_index() != 0:
        return
    for _ in range(20):
        begun = [x for x in os.listdir(directory) if x.startswith(f"{step:08}.")]
        if not begun:
            return
        for name in begun:
            shutil.rmtree(os.path.join(directory, name), ignore_errors=True)
        time.sleep(0.1)


def changed_files(directory: str, step: int, item: str) -> list[str]:
    """Which files of a step are not what was written; hosts share the reading."""
    from etils import epath

    part, parts = jax.process_index(), jax.process_count()
    place = epath.Path(directory) / f"{step:08}" / item
    changed = damaged_files(place, part=part, parts=parts)
    if parts > 1:
        from jax.experimental import multihost_utils

        counts = multihost_utils.process_allgather(np.array(len(changed)))
        if (found := np.flatnonzero(counts)).size and not changed:
            changed = [f"as host {', '.join(map(str, found))} sees"]
    return changed
