"""Checkpoints through Orbax: written behind the run's back, whole or not at all."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxtyping import PyTree

from attn_jax.train._checks import fail, integer
from attn_jax.train.filing import abstract, array, compare, nested, restored

_ITEM = "state"
_PARAMS = "params"  # the field of a `TrainState`
_TRASH = ".deleted"


class CheckpointWriteError(RuntimeError):
    """A checkpoint could not be written."""


class CheckpointReadError(RuntimeError):
    """A checkpoint is damaged, or nothing is in it."""


class _Latest:
    """What Orbax asks which steps to keep: the latest, and the latest multiples."""

    def __init__(self, keep: int, every: int) -> None:
        self._keep, self._every = keep, every

    def should_preserve(
        self, checkpoints: Sequence[Any], *, context: Any
    ) -> Sequence[bool]:
        steps = [checkpoint.step for checkpoint in checkpoints]
        regular = sorted(step for step in steps if step % self._every == 0)
        kept = {max(steps, default=0), *regular[-self._keep :]}
        return [step in kept for step in steps]


class Checkpointer:
    """Saves and restores the state of a run in numbered directories.

    A save copies the state and returns; the writing goes on beside the training. A
    step counts as saved once it is complete, when its directory gets its final name in
    one move: a run that is killed while it writes leaves the step before as the
    latest, and may save the same step again. An error of the writing surfaces at the
    next `save`, `wait` or `close`. Use it in a `with` block, or call `close`.

    A state is any pytree of arrays, typed keys included. Arrays are filed under the
    words of their path, so that an `nnx.State` and nested dicts of the same names are
    alike, and so that the kind of a key is part of its name.

    Args:
      directory: where the steps lie; made if needed. One run a directory.
      keep: how many steps to keep, the latest ones.
      every: which steps count for `keep`, its multiples; the latest step is kept beside
        them. With a run's `checkpoint_every`, what an interruption saves in between
        drives out none of them.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, keep: int = 2, every: int = 1
    ) -> None:
        import orbax.checkpoint as ocp

        path = os.fspath(directory)
        # Orbax takes absolute paths alone, and addresses of buckets.
        self._directory = path if "://" in path else os.path.abspath(path)
        self._pending: int | None = None
        _make_directory(self._directory)
        self._empty_trash()
        options = ocp.CheckpointManagerOptions(
            preservation_policy=_Latest(
                integer("keep", keep, minimum=1), integer("every", every, minimum=1)
            ),
            step_format_fixed_length=8,
            cleanup_tmp_directories=True,
            # Renamed before they are deleted: no half of a step passes for a step.
            todelete_subdir=_TRASH,
            # A directory that can't be made is an error of `save` itself.
            async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
        )
        registry = ocp.handlers.create_default_handler_registry(
            **{_ITEM: ocp.StandardCheckpointHandler()}
        )
        self._manager = ocp.CheckpointManager(
            self._directory, options=options, handler_registry=registry
        )

    @property
    def directory(self) -> str:
        """Where the steps lie."""
        return self._directory

    def all_steps(self) -> list[int]:
        """The complete steps, in order."""
        from orbax.checkpoint.utils import checkpoint_steps

        return sorted(checkpoint_steps(self._directory))

    def latest_step(self) -> int | None:
        """The latest complete step, None if there is none."""
        return max(self.all_steps(), default=None)

    def save(self, step: int, state: PyTree) -> None:
        """Copy the state and begin to write it; waits for the save before.

        Args:
          step: steps done, above all steps saved so far.
          state: a pytree of arrays.

        Raises:
          CheckpointWriteError: this save could not begin, or the one before failed.
          ValueError: a step that is not above those in the directory.
        """
        import orbax.checkpoint as ocp

        step = integer("step", step, minimum=0)
        self.wait()
        self._pending = step
        latest = self._write(self.latest_step)
        if latest is not None and latest >= step:
            fail(
                "step",
                f"{step}, while {self._directory} holds step {latest}",
                "a step above all that are saved",
                "restore the latest step and go on from it, or use another directory",
            )
        arrays = jax.tree.map(array, state)
        args = ocp.args.Composite(**{_ITEM: ocp.args.StandardSave(nested(arrays))})
        self._empty_trash()
        self._write(lambda: self._manager.save(step, args=args, force=True))

    def restore(self, abstract_state: PyTree, *, step: int | None = None) -> PyTree:
        """Read a step into arrays like those of abstract_state.

        Args:
          abstract_state: a pytree of arrays or `jax.ShapeDtypeStruct`, of the
            structure to return; an array goes where its counterpart here lies, or to
            the first device if that lies nowhere.
          step: which one; None is the latest.

        Returns:
          The pytree with the values of that step.

        Raises:
          FileNotFoundError: there is no such step.
          CheckpointMismatchError: names, shapes or dtypes differ; all are listed.
          CheckpointReadError: the step is damaged or empty.
        """
        import orbax.checkpoint as ocp

        step = self._complete(step)
        expected = jax.tree.map(abstract, abstract_state)
        compare(expected, self._metadata(step), f"{self._directory}, step {step}")
        args = ocp.args.Composite(**{_ITEM: ocp.args.StandardRestore(nested(expected))})
        read = self._read(step, lambda step: self._manager.restore(step, args=args))
        return restored(read, expected)

    def restore_params(
        self, abstract_params: PyTree, *, step: int | None = None
    ) -> PyTree:
        """Read the parameters of a `TrainState`, and nothing else of it.

        Args:
          abstract_params: of the structure to return, as for `restore`.
          step: which one; None is the latest.

        Raises:
          As `restore`, about the parameters.
        """
        import orbax.checkpoint as ocp

        step = self._complete(step)
        expected = jax.tree.map(abstract, abstract_params)
        there = dict(self._metadata(step)).get(_PARAMS, {})
        compare(expected, there, f"the params in {self._directory}, step {step}")
        target = {_PARAMS: nested(expected)}
        layout = ocp.checkpoint_utils.construct_restore_args(target)
        args = ocp.args.PyTreeRestore(target, restore_args=layout, partial_restore=True)
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
            path = os.path.join(self._directory, f"{step:08}", _ITEM)
            read = self._read(step, lambda _: {_ITEM: reader.restore(path, args=args)})
        return restored(read[_PARAMS], expected)

    def _complete(self, step: int | None) -> int:
        """The step that is asked for, the latest for None, if it is complete."""
        self.wait()
        steps = self.all_steps()
        found = max(steps, default=None) if step is None else step
        if found is None or found not in steps:
            wanted = "a checkpoint" if found is None else f"step {found}"
            fail(
                "step",
                f"{wanted} in {self._directory}",
                f"one of the complete steps there: {steps or 'none'}",
                "start a new run, or name another directory or step",
                FileNotFoundError,
            )
        return found

    def _metadata(self, step: int) -> Any:
        """Names, shapes and dtypes of the arrays of a step."""
        metadata = self._read(step, self._manager.item_metadata)
        if not jax.tree.leaves(metadata):
            raise self._unreadable(step, "no array is in it")
        return metadata

    def _read(self, step: int, act: Callable[[int], Any]) -> Any:
        """What act reads of a step; other errors than of memory mean damage."""
        try:
            return act(step)[_ITEM]
        except (LookupError, ValueError, TypeError, OSError) as error:
            raise self._unreadable(step, f"{error}"[:400]) from error

    def _unreadable(self, step: int, cause: str) -> CheckpointReadError:
        others = [other for other in self.all_steps() if other != step]
        remedy = f"go on from step {max(others)}" if others else "begin anew"
        return CheckpointReadError(
            f"step {step} in {self._directory} can't be read ({cause}); expected a "
            f"complete checkpoint; remove {self._directory}/{step:08} to {remedy}"
        )

    def wait(self) -> None:
        """Block until the save that has begun is complete; raise if it failed."""
        self._write(self._manager.wait_until_finished)
        self._pending = None

    def close(self) -> None:
        """Wait, raise if the last save failed, and let go of threads and files."""
        try:
            self.wait()
        finally:
            self._manager.close()
            self._empty_trash()

    def __enter__(self) -> "Checkpointer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _empty_trash(self) -> None:
        if jax.process_index() == 0:
            shutil.rmtree(os.path.join(self._directory, _TRASH), ignore_errors=True)

    def _discard(self, step: int | None) -> None:
        """Remove what a failed save left, so that its step can be saved again.

        Other arrays of that save may still be on their way, and put files back.
        """
        if step is None or "://" in self._directory or jax.process_index() != 0:
            return
        for _ in range(20):
            begun = [
                x for x in os.listdir(self._directory) if x.startswith(f"{step:08}.")
            ]
            if not begun:
                return
            for name in begun:
                shutil.rmtree(os.path.join(self._directory, name), ignore_errors=True)
            time.sleep(0.1)

    def _write(self, act: Callable[[], Any]) -> Any:
        """Run act; an error in it becomes one that says which step, where, what now."""
        try:
            return act()
        except Exception as error:
            step, self._pending = self._pending, None
            complete = "unknown"
            with contextlib.suppress(OSError):
                self._discard(step)
                self._manager.reload()
                complete = str(self.all_steps() or "none")
            raise CheckpointWriteError(
                f"step {step} could not be written to {self._directory}: {error}; "
                f"expected a directory with room that can be written to, and it holds "
                f"the complete steps {complete}; put that right, then run the same "
                "command again, which goes on from the latest of them"
            ) from error


def _make_directory(directory: str) -> None:
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
