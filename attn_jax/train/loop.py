"""The training loop: a plain `for`, and what it takes to stop and go on."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
from jaxtyping import PyTree

from attn_jax.train._checks import fail, integer
from attn_jax.train.checkpoints import Checkpointer
from attn_jax.train.hosts import is_writer, watched
from attn_jax.train.metrics import MetricLogger, MetricsWriteError
from attn_jax.train.progress import Progress, make_progress
from attn_jax.train.recorder import Recorder
from attn_jax.train.signals import StopRequest
from attn_jax.train.state import TrainState
from attn_jax.train.step import TrainStep
from attn_jax.train.storage import CheckpointWriteError


class FitResult(NamedTuple):
    """What a run ends with.

    state: after the last step.
    metrics: the last line that was recorded, with the evaluation after the last step;
        empty where no step was left to do.
    compile_seconds: tracing and compiling the step, before the first one; NaN where no
        step was left to do or train_step is not a jitted function.
    tokens_per_second: of the steps done here but the first, without compiling,
        evaluating and saving; NaN where there was no second one. Tokens are targets
        that count: the sum of weights.
    history: the lines recorded here; metrics.jsonl has those of earlier sessions too.
    """

    state: TrainState
    metrics: dict[str, Any]
    compile_seconds: float
    tokens_per_second: float
    history: list[dict[str, Any]]


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended a run early; the message says how to go on.

    step: steps done, None where a second signal tore the last one apart.
    saved: whether the checkpoint of that step is complete.
    """

    def __init__(self, message: str, *, step: int | None, saved: bool) -> None:
        super().__init__(message)
        self.step = step
        self.saved = saved


def fit(
    state: TrainState,
    train_step: TrainStep,
    batch_at: Callable[[int], PyTree],
    *,
    num_steps: int,
    evaluate: Callable[[PyTree], Mapping[str, Any]] | None = None,
    eval_every: int | None = None,
    logger: MetricLogger | None = None,
    log_every: int = 10,
    checkpointer: Checkpointer | None = None,
    checkpoint_every: int | None = None,
    max_consecutive_skips: int = 10,
    progress: Progress | Literal["auto"] | None = "auto",
) -> FitResult:
    """Trains from state.step to num_steps.

    The metrics of a step are fetched when the next one has been handed to the device,
    which so never waits for Python. In what is recorded steps count from 1: line k and
    checkpoint k are those after k steps. All lines up to k are written before
    checkpoint k is, and lines beyond the step that a run goes on from are dropped, so
    however often a run is interrupted, each line is there once.

    To go on, restore and call again with the same arguments:

        if checkpointer.latest_step() is not None:
            state = checkpointer.restore(state)
        fit(state, ...)

    The end equals that of a run without interruption bit for bit, on one layout of
    devices, if batch_at is a function of the step alone.

    Several hosts (`hosts.joined`) meet before each step: a signal to one of them stops
    all after the same step, and one that doesn't come ends the others. Host 0 writes
    lines and progress.

    Args:
      state: where to begin; its memory is taken over and can't be used afterwards.
      train_step: from `make_train_step`.
      batch_at: the batch for a step, counted from 0.
      num_steps: steps in all, those of earlier sessions included.
      evaluate: params -> metrics to record, {"validation_loss": ...} say; called after
        the last step, and in between if eval_every says so.
      eval_every: steps between evaluations.
      logger: where lines go.
      log_every: steps between lines. The last step, and steps that were evaluated or
        skipped, have a line in any case.
      checkpointer: where states go: after the last step, on interruption, and in
        between if checkpoint_every says so.
      checkpoint_every: steps between checkpoints.
      max_consecutive_skips: how many steps in a row that are not finite end the run.
      progress: "auto" is a bar in a terminal and lines elsewhere, None is silence.

    Returns:
      A FitResult.

    Raises:
      NonFiniteError: max_consecutive_skips steps in a row were not finite.
      TrainingInterrupted: Ctrl-C or SIGTERM. The first signal lets the step end and
        saves it; a second one does not wait, and goes on from the last checkpoint.
      HostLostError: another host is dead, stuck or elsewhere in the program.
      MetricsWriteError: lines could not be written.
      CheckpointWriteError: a checkpoint could not be written. One that fails while
        it is written ends the run at the next step.
    """
    first = _check_start(state, num_steps, checkpointer)
    every = _check_periods(evaluate, eval_every, checkpointer, checkpoint_every)
    label = logger.name if logger else "training"
    if progress == "auto":
        progress = make_progress(label) if is_writer() else None
    recorder = Recorder(
        logger,
        progress,
        log_every=integer("log_every", log_every, minimum=1),
        num_steps=num_steps,
        max_consecutive_skips=integer(
            "max_consecutive_skips", max_consecutive_skips, minimum=1
        ),
    )
    compile_seconds = float("nan")
    with recorder, StopRequest() as stop, watched(label):
        recorder.start(first)
        try:
            for step in range(first, num_steps):
                stop.check_together(f"{label}, step {step + 1}")
                batch = batch_at(step)
                if step == first:
                    compile_seconds = _compile(train_step, state, batch)
                state, metrics = train_step(state, batch)
                done = step + 1
                recorder.push(done, metrics)
                found = None
                if evaluate and (done == num_steps or done % every.evaluation == 0):
                    with recorder.pause():
                        found = evaluate(state.params)
                        recorder.flush(found)
                if checkpointer:
                    checkpointer.check()
                if checkpointer and (done == num_steps or done % every.checkpoint == 0):
                    with recorder.pause():
                        recorder.save()
                        checkpointer.save(done, state, metrics=found)
            recorder.flush()
            if checkpointer:
                checkpointer.wait()
            stop.check_together(f"{label}, the end after step {num_steps}")
        except KeyboardInterrupt:
            stop.shield()
            raise _stopped(stop, state, num_steps, recorder, checkpointer) from None
    return FitResult(
        state=state,
        metrics=recorder.history[-1] if recorder.history else {},
        compile_seconds=compile_seconds,
        tokens_per_second=recorder.clock.total(),
        history=recorder.history,
    )


class _Periods(NamedTuple):
    """Steps between two of a kind; infinite where it is only done at the end."""

    evaluation: float
    checkpoint: float


def _check_start(
    state: TrainState, num_steps: int, checkpointer: Checkpointer | None
) -> int:
    """The steps done so far, if the run can go on from there."""
    first = int(state.step)
    if first > integer("num_steps", num_steps, minimum=0):
        fail(
            "num_steps",
            f"{num_steps}, with a state after {first} steps",
            f"at least {first}: it counts the steps of earlier sessions too",
            "raise num_steps, or begin with a new state in another directory",
        )
    latest = None if checkpointer is None else checkpointer.latest_step()
    if checkpointer is not None and latest is not None and latest > first:
        fail(
            "state",
            f"one after {first} steps, while {checkpointer.directory} holds "
            f"step {latest}",
            "a state that is not behind its checkpoints",
            "go on with checkpointer.restore(state), or use another directory",
        )
    return first


def _check_periods(
    evaluate: Any, eval_every: Any, checkpointer: Any, checkpoint_every: Any
) -> _Periods:
    """The periods, which make sense only with something to do."""
    periods = []
    for name, every, need, what in (
        ("eval_every", eval_every, "evaluate", evaluate),
        ("checkpoint_every", checkpoint_every, "checkpointer", checkpointer),
    ):
        if every is not None and what is None:
            fail(name, f"{every} without {need}", "both or neither", f"pass {need} too")
        periods.append(
            float("inf") if every is None else integer(name, every, minimum=1)
        )
    return _Periods(*periods)


def _compile(train_step: Any, state: TrainState, batch: PyTree) -> float:
    """Compile the step before it is called, and say how many seconds that took.

    The call that follows finds the executable in the cache of the jitted function.
    """
    if not hasattr(train_step, "lower"):
        return float("nan")
    jax.block_until_ready(state)
    begin = time.perf_counter()
    train_step.lower(state, batch).compile()
    return time.perf_counter() - begin


def _stopped(
    stop: StopRequest,
    state: TrainState,
    num_steps: int,
    recorder: Recorder,
    checkpointer: Checkpointer | None,
) -> TrainingInterrupted:
    """Save the last complete state, and say how to go on."""
    cause = stop.received or "KeyboardInterrupt"
    torn = stop.hurried or any(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    if torn:
        where = f"{cause} in the middle of a step, which is lost"
        return TrainingInterrupted(
            f"{where}. {_go_on(checkpointer)}", step=None, saved=False
        )
    step = int(state.step)
    where = f"{cause} after step {step} of {num_steps}"
    try:
        recorder.flush(strict=False)
    except MetricsWriteError as error:
        # Not saved: a run that went on from here would lack a line.
        return TrainingInterrupted(f"{where}; {error}", step=step, saved=False)
    if checkpointer is None:
        remedy = "Nothing is saved; pass a checkpointer to be able to go on from here"
        return TrainingInterrupted(f"{where}. {remedy}", step=step, saved=False)
    try:
        checkpointer.wait()
        if checkpointer.latest_step() != step:
            checkpointer.save(step, state)
            checkpointer.wait()
    except CheckpointWriteError as error:
        return TrainingInterrupted(f"{where}; {error}", step=step, saved=False)
    return TrainingInterrupted(
        f"{where}. {_go_on(checkpointer)}", step=step, saved=True
    )


def _go_on(checkpointer: Checkpointer | None) -> str:
    """What the same command does when it is run again."""
    latest = None
    if checkpointer is not None:
        try:
            checkpointer.wait()
        except CheckpointWriteError as error:
            return str(error)
        latest = checkpointer.latest_step()
    if checkpointer is None or latest is None:
        return "No checkpoint is there; the same command begins anew"
    return (
        f"Step {latest} is saved in {checkpointer.directory}; "
        "run the same command again to go on from it"
    )
