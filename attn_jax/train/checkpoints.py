"""Checkpoints through Orbax: written behind the run's back, whole or not at all."""

import contextlib
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
from jaxtyping import PyTree

from attn_jax.train import filing, storage
from attn_jax.train._checks import fail, integer
from attn_jax.train.hosts import HostLostError, meet
from attn_jax.train.keeping import Score, check_best, kept_steps, scored
from attn_jax.train.storage import CheckpointReadError, CheckpointWriteError

_ITEM = "state"
_CONFIG = "config"
_PARAMS = "params"  # the field of a `TrainState`


class Checkpointer:
    """Saves and restores the state of a run in numbered directories.

    A save copies the state and returns; the writing goes on beside the training. A
    step counts as saved once it is complete, when its directory gets its final name in
    one move: a run that is killed while it writes leaves the step before as the
    latest, and may save the same step again. An error of the writing surfaces at the
    next `check`, `save`, `wait` or `close`. Use it in a `with` block.

    A state is any pytree of arrays, typed keys included. Arrays are filed under the
    words of their path, so that an `nnx.State` and nested dicts of the same names are
    alike, and so that the kind of a key is part of its name.

    Args:
      directory: where the steps lie; made if needed. One run a directory.
      keep: how many steps to keep, the latest ones.
      every: which steps count for `keep`, its multiples; the latest step is kept beside
        them. With a run's `checkpoint_every`, what an interruption saves in between
        drives out none of them.
      best: how many steps to keep beside these, those of the lowest score among the
        steps that were saved with metrics.
      score: metrics of an evaluation -> a number, the lower the better.
      config: what the run is, in JSON's types; filed with each step and compared by
        `restore`.
      may_differ: fields of config that may be others when a run goes on: where it
        runs, not what it is.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        keep: int = 2,
        every: int = 1,
        best: int = 0,
        score: Score | None = None,
        config: Mapping[str, Any] | None = None,
        may_differ: Collection[str] = ("mesh", "hosts"),
    ) -> None:
        path = os.fspath(directory)
        # Orbax takes absolute paths alone, and addresses of buckets.
        self._directory = path if "://" in path else os.path.abspath(path)
        self._pending: int | None = None
        self._config, self._may_differ = config, may_differ
        keep = integer("keep", keep, minimum=1)
        every = integer("every", every, minimum=1)
        check_best(integer("best", best, minimum=0), score)
        self._score = score
        storage.make_directory(self._directory)
        storage.empty_trash(self._directory)
        kept = kept_steps(keep, every, best)
        self._manager = storage.open_manager(self._directory, _ITEM, kept)

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

    def best_step(self) -> int | None:
        """The complete step of the lowest score, None if no step has one."""
        self.wait()
        return None if self._score is None else self._manager.best_step()

    def save(
        self, step: int, state: PyTree, *, metrics: Mapping[str, Any] | None = None
    ) -> None:
        """Copy the state and begin to write it; waits for the save before.

        Args:
          step: steps done, above all steps saved so far.
          state: a pytree of arrays.
          metrics: of an evaluation of this state, for `score`; None is no candidate
            for the best.

        Raises:
          CheckpointWriteError: this save could not begin, or the one before failed.
          ValueError: a step that is not above those in the directory.
        """
        import orbax.checkpoint as ocp

        step = integer("step", step, minimum=0)
        meet(f"saving step {step} in {self._directory}")
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
        arrays = jax.tree.map(filing.array, state)
        args = ocp.args.Composite(
            **{_ITEM: ocp.args.StandardSave(filing.nested(arrays))}
        )
        storage.empty_trash(self._directory)
        options = {} if self._config is None else {_CONFIG: dict(self._config)}
        rank = None
        if metrics is not None and self._score is not None:
            rank = scored(metrics, self._score)
        self._write(
            lambda: self._manager.save(
                step, args=args, metrics=rank, custom_metadata=options, force=True
            )
        )

    def check(self) -> None:
        """Raise if the save that has begun has failed by now; waits for nothing."""
        if self._pending is not None and not self._manager.is_saving_in_progress():
            self.wait()

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
          CheckpointMismatchError: names, shapes, dtypes or the config differ; all that
            do are listed.
          CheckpointReadError: the step is damaged, a single byte of it even, or empty.
        """
        import orbax.checkpoint as ocp

        step = self._complete(step)
        expected = jax.tree.map(filing.abstract, abstract_state)
        place = f"{self._directory}, step {step}"
        filing.compare(expected, self._metadata(step), place)
        filing.compare_configs(
            self._config, self._filed_config(step), self._may_differ, place
        )
        args = ocp.args.Composite(
            **{_ITEM: ocp.args.StandardRestore(filing.nested(expected))}
        )
        read = self._read(step, lambda step: self._manager.restore(step, args=args))
        return filing.restored(read, expected)

    def restore_params(
        self, abstract_params: PyTree, *, step: int | None = None
    ) -> PyTree:
        """Read all parameters of a `TrainState`, and nothing else of it.

        Arguments and errors are those of `restore`, about the parameters.
        """
        step = self._complete(step)
        expected = jax.tree.map(filing.abstract, abstract_params)
        there = dict(self._metadata(step)).get(_PARAMS, {})
        filing.compare(expected, there, f"the params in {self._directory}, step {step}")
        read = self._read_part(step, {_PARAMS: filing.nested(expected)})
        return filing.restored(read[_PARAMS], expected)

    def restore_part(self, abstract_part: PyTree, *, step: int | None = None) -> PyTree:
        """Read the arrays that are named, and leave all others where they are.

        Args:
          abstract_part: a part of what was saved, under the same names:
            `{"params": {"embed": ...}}`, say, of a `TrainState`.
          step: which one; None is the latest. Errors are those of `restore`.
        """
        step = self._complete(step)
        expected = jax.tree.map(filing.abstract, abstract_part)
        place = f"{self._directory}, step {step}"
        filing.compare(expected, self._metadata(step), place, partial=True)
        return filing.restored(self._read_part(step, filing.nested(expected)), expected)

    def _read_part(self, step: int, target: PyTree) -> Any:
        """The arrays of target, which is filed among others."""
        import orbax.checkpoint as ocp

        layout = ocp.checkpoint_utils.construct_restore_args(target)
        args = ocp.args.PyTreeRestore(target, restore_args=layout, partial_restore=True)
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
            path = os.path.join(self._directory, f"{step:08}", _ITEM)
            return self._read(step, lambda _: {_ITEM: reader.restore(path, args=args)})

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
        meet(f"restoring step {found} from {self._directory}")
        if changed := storage.changed_files(self._directory, found, _ITEM):
            raise self._unreadable(found, "; ".join(changed)[:400])
        return found

    def _filed_config(self, step: int) -> Any:
        """The config that a step was saved with, None if with none."""
        return (self._manager.metadata(step).custom_metadata or {}).get(_CONFIG)

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
            storage.empty_trash(self._directory)

    def __enter__(self) -> "Checkpointer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A host that is lost never finishes its part of a save.
        if kind is None or not issubclass(kind, HostLostError):
            self.close()

    def _write(self, act: Callable[[], Any]) -> Any:
        """Run act; an error in it becomes one that says which step, where, what now."""
        try:
            return act()
        except Exception as error:
            step, self._pending = self._pending, None
            complete = "unknown"
            with contextlib.suppress(OSError):
                storage.discard(self._directory, step)
                if jax.process_count() == 1:  # It waits for all hosts.
                    self._manager.reload()
                complete = str(self.all_steps() or "none")
            raise CheckpointWriteError(
                f"step {step} could not be written to {self._directory}: {error}; "
                f"expected a directory with room that can be written to, and it holds "
                f"the complete steps {complete}; put that right, then run the same "
                "command again, which goes on from the latest of them"
            ) from error
