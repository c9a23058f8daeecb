"""A run, which is one model with one seed: trained from where it was left."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from jaxtyping import PyTree

from attn_jax.train import (
    Checkpointer,
    MetricLogger,
    Progress,
    TrainState,
    TrainStep,
    fit,
    read_metrics,
)
from experiments.common.errors import fail
from experiments.common.live import Display
from experiments.common.mesh import placed, placed_batch
from experiments.common.workdir import Workdir

Program = TypeVar("Program")


class Pace(Protocol):
    """The fields of a config that say how long a run is, and how often what happens."""

    @property
    def steps(self) -> int: ...

    @property
    def checkpoint_every(self) -> int: ...

    @property
    def log_every(self) -> int: ...

    @property
    def eval_every(self) -> int: ...


class Trained(NamedTuple):
    """What training leaves.

    lines: those of metrics.jsonl, of interrupted sessions too.
    curve: a dict an evaluation, with its step; the last one is after the last step.
    """

    params: PyTree
    lines: list[dict[str, Any]]
    curve: list[dict[str, Any]]


def run_name(model: str, seed: int) -> str:
    """The name of a model and seed, for lines of metrics and for files."""
    return model if seed == 0 else f"{model}-seed{seed}"


class RunLogger(MetricLogger):
    """Lines that also say which model and seed they are of."""

    def __init__(self, workdir: Workdir, model: str, seed: int) -> None:
        super().__init__(workdir.path, name=run_name(model, seed))
        self._origin = {"model": model, "seed": seed}

    def log(self, step: int, values: Any) -> None:
        super().log(step, {**self._origin, **values})


def train_run(
    model: str,
    seed: int,
    state: TrainState,
    train_step: TrainStep,
    batch_at: Callable[[int], PyTree],
    *,
    evaluate: Callable[[PyTree], dict[str, float]],
    measures: Sequence[str],
    pace: Pace,
    workdir: Workdir,
    progress: Progress,
) -> Trained:
    """Train a run from where it was left, `state` if it is new, to its end.

    measures: the names, of what `evaluate` returns, that the curve has.
    """
    name = run_name(model, seed)
    with (
        RunLogger(workdir, model, seed) as logger,
        Checkpointer(workdir.checkpoints(name)) as checkpointer,
    ):
        state = placed(state)
        if checkpointer.latest_step() is not None:
            state = checkpointer.restore(state)
        result = fit(
            state,
            train_step,
            lambda step: placed_batch(batch_at(step)),
            num_steps=pace.steps,
            evaluate=evaluate,
            eval_every=pace.eval_every,
            logger=logger,
            log_every=pace.log_every,
            checkpointer=checkpointer,
            checkpoint_every=pace.checkpoint_every,
            progress=progress,
        )
    params = result.state.params
    lines = read_metrics(workdir.path, name=name)
    names = ("step", *measures)
    curve = [
        {each: line[each] for each in names} for line in lines if names[-1] in line
    ]
    if not curve or curve[-1]["step"] != pace.steps:
        # Interrupted earlier after as many steps as are now asked for.
        last = {"step": pace.steps, **evaluate(params)}
        curve.append({each: last[each] for each in names})
    return Trained(params, lines, curve)


def seconds_of_training(
    lines: Sequence[Mapping[str, Any]], tokens_a_step: float, steps: int
) -> float | None:
    """Seconds of all steps, those of interrupted sessions included.

    A line gives the rate since the line before it, so the steps between two lines took
    their tokens over that rate. The first step of a session has no rate; it counts as
    the others do.
    """
    seconds, counted, before = 0.0, 0, 0
    for line in lines:
        rate = line["tokens_per_second"]
        if rate:
            seconds += (line["step"] - before) * tokens_a_step / rate
            counted += line["step"] - before
        before = line["step"]
    return seconds * steps / counted if counted else None


def finish_runs(
    model: str,
    *,
    seeds: int,
    steps: int,
    workdir: Workdir,
    origin: Mapping[str, Any],
    display: Display,
    build: Callable[[], Program],
    train: Callable[[Program, int, Progress], dict[str, Any]],
) -> list[dict[str, Any]]:
    """The numbers of a model, one dict a seed, trained unless they are there.

    What `build` compiles serves all seeds, and isn't called where none is left to
    train. "stages" are the steps at which a run was done; a run keeps the origin that
    it was trained with.
    """
    program, runs = None, []
    for seed in range(seeds):
        name = run_name(model, seed)
        numbers = workdir.finished(name)
        if steps_done(numbers) != steps:
            if program is None:
                display.compiling(name)
                program = build()
            earlier = [] if numbers is None else numbers.get("stages", [])
            numbers = {**train(program, seed, display.progress(name)), **origin}
            numbers["stages"] = [*earlier, steps]
            workdir.finish(name, numbers)
        display.finished(name, numbers)
        runs.append(numbers)
    return runs


def steps_done(numbers: Mapping[str, Any] | None) -> int:
    """The steps of a run that is done, 0 for one that is not."""
    return 0 if numbers is None else numbers.get("steps", 0)


def require_steps(workdir: Workdir, names: Sequence[str], steps: int) -> None:
    """Raise where a run has already come further than is asked for."""
    for name in names:
        done = max(workdir.latest_step(name), steps_done(workdir.finished(name)))
        if done > steps:
            fail(
                "--steps",
                f"{steps}, while {workdir.path} holds {done} steps of {name}",
                f"at least {done}",
                "pass more --steps, or another --workdir",
            )
