"""A study: rows that are trained with every seed, and what became of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from experiments.common import provenance
from experiments.common.grid import Grid
from experiments.common.plan import Config, Drawing, Showing, publish
from experiments.common.workdir import Workdir

# The same for all seeds of a row, or of no use in a table.
DROPPED = ("row", "parameters", "sample", "d_ff", "memory_bytes", *provenance.ORIGIN)


class AnyRow(Protocol):
    """What is trained, by a name."""

    @property
    def name(self) -> str: ...


class Task(Protocol):
    """What is learnt in a study, and how."""

    def fingerprints(self) -> dict[str, Any]:
        """What runs of one directory have in common, beside the config."""
        ...

    def corpus(self) -> dict[str, Any]:
        """What results say of the data."""
        ...

    def model(self, row: Any) -> Any:
        """The config of a row's model; raises where there is no such model."""
        ...

    def build(self, row: Any) -> Any:
        """What the seeds of a row share."""
        ...

    def train(self, built: Any, seed: int, workdir: Workdir) -> dict[str, Any]:
        """The numbers of a run, trained from where it was left."""
        ...


class Training(Config, Protocol):
    """The config of a study that trains."""

    kind: ClassVar[str]
    may_differ: ClassVar[tuple[str, ...]]

    @property
    def preset(self) -> str: ...

    @property
    def seeds(self) -> int: ...


class Plot(Drawing, Protocol):
    """The module that draws a study's figures."""

    def figures(self, results: Mapping[str, Any]) -> Iterable[str]:
        """The names of the figures that these results have."""
        ...


class Table(Showing, Protocol):
    """The module that makes a study's table."""

    def in_words(self, numbers: Mapping[str, Any]) -> str:
        """What a run came to, in a line."""
        ...


class StudyPlan(NamedTuple):
    """A study that trains: all that is known before anything is computed."""

    config: Training
    origin: dict[str, Any]
    rows: Sequence[AnyRow]
    task: Task
    workdir: Grid

    def shared_config(self) -> dict[str, Any]:
        """What all runs in the work directory have in common."""
        return self.workdir.config


def plan_study(
    config: Training,
    rows: Sequence[AnyRow],
    task: Task,
    program: str,
    arguments: Sequence[str],
) -> StudyPlan:
    """The plan of a command; raises for a row that no model has, or another config."""
    for row in rows:
        task.model(row)
    shared = {**config.shared(), **task.fingerprints()}
    grid = Grid(config.directory(), shared, config.may_differ)
    grid.check()
    origin = provenance.origin(program, arguments)
    return StudyPlan(config, origin, rows, task, grid)


def run_study(
    experiment: str, plan: StudyPlan, order: Sequence[str], plot: Plot, table: Table
) -> None:
    """Train what nobody has trained, then show what there is by now.

    Args:
      experiment: its folder.
      plan: of this command.
      order: in which rows come; others follow.
      plot, table: the experiment's modules of these names.
    """
    elsewhere = [
        f"{row.name}, seed {seed}"
        for row in plan.rows
        for seed, numbers in _train_row(row, plan, table)
        if numbers is None
    ]
    with plan.workdir.joining():
        if done := plan.workdir.finished(order):
            results = _assemble(experiment, plan, done)
            show_study(results, Workdir(plan.workdir.root, ()), plot, table)
    if elsewhere:
        print(
            f"Another process is training {'; '.join(elsewhere)}. When it has "
            "finished, its table has these rows too."
        )


def show_study(
    results: dict[str, Any], workdir: Workdir, plot: Plot, table: Table
) -> None:
    """Publish results, which say too what figures they have."""
    results = {**results, "figures": list(plot.figures(results))}
    publish(results, workdir, plot, table)


def _train_row(
    row: AnyRow, plan: StudyPlan, table: Table
) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Each seed with its numbers, None where another process is at it.

    The row is built when a seed needs it.
    """
    built = None

    def train(workdir: Workdir) -> dict[str, Any]:
        nonlocal built
        found = {**plan.origin}
        if built is None:
            print(f"{row.name}: compiling", flush=True)
            built = plan.task.build(row)
        else:
            # This seed finds what an earlier one compiled.
            found["compile_seconds"] = 0.0
        return {**plan.task.train(built, seed, workdir), **found}

    for seed in range(plan.config.seeds):
        numbers = plan.workdir.train(row.name, seed, train)
        if numbers is not None:
            print(f"{row.name}, seed {seed}: {table.in_words(numbers)}", flush=True)
        yield seed, numbers


def _assemble(
    experiment: str,
    plan: StudyPlan,
    done: Mapping[str, Sequence[dict[str, Any]]],
) -> dict[str, Any]:
    """The results of the runs that are done, the numbers of each row's seeds."""
    config = plan.config
    runs = [run for row in done.values() for run in row]
    return {
        "experiment": experiment,
        "study": config.kind,
        "preset": config.preset,
        **provenance.joined(runs),
        "config": {**config.shared(), "seeds": sorted({run["seed"] for run in runs})},
        "corpus": dict(plan.task.corpus()),
        "seconds": {
            name: round(sum(run[f"{name}_seconds"] or 0 for run in runs), 1)
            for name in ("training", "compile")
        },
        "rows": [_row(name, row) for name, row in done.items()],
    }


def _row(name: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rates = [run["tokens_per_second"] for run in runs if run["tokens_per_second"]]
    return {
        "row": name,
        "parameters": runs[0]["parameters"],
        "tokens_per_second": sum(rates) / len(rates) if rates else None,
        "runs": [
            {key: value for key, value in run.items() if key not in DROPPED}
            for run in runs
        ],
    }
