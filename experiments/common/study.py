"""A study: rows that are trained with every seed, and what became of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from experiments.common import provenance
from experiments.common.grid import Grid
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


class Training(Protocol):
    """The config of a study that trains."""

    @property
    def kind(self) -> str: ...

    @property
    def preset(self) -> str: ...

    @property
    def seeds(self) -> int: ...

    def shared(self) -> dict[str, Any]:
        """What all runs of one work directory have in common."""
        ...


class InWords(Protocol):
    """What a run came to, in a line."""

    def __call__(self, numbers: Mapping[str, Any]) -> str: ...


def train_rows(
    rows: Sequence[AnyRow],
    seeds: int,
    task: Task,
    grid: Grid,
    *,
    origin: Mapping[str, Any],
    in_words: InWords,
) -> list[str]:
    """Train what nobody has trained; the runs that another process is at.

    origin: where the numbers are from that are new, to be kept with them.
    """
    return [
        f"{row.name}, seed {seed}"
        for row in rows
        for seed, numbers in _train_row(row, seeds, task, grid, origin, in_words)
        if numbers is None
    ]


def say_elsewhere(runs: Sequence[str]) -> None:
    """Name what another process is training."""
    if runs:
        print(
            f"Another process is training {'; '.join(runs)}. When it has finished, its "
            "table has these rows too."
        )


def _train_row(
    row: AnyRow,
    seeds: int,
    task: Task,
    grid: Grid,
    origin: Mapping[str, Any],
    in_words: InWords,
) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Each seed with its numbers; the row is built when a seed needs it."""
    built = None

    def train(workdir: Workdir) -> dict[str, Any]:
        nonlocal built
        found = {**origin}
        if built is None:
            print(f"{row.name}: compiling", flush=True)
            built = task.build(row)
        else:
            # This seed finds what an earlier one compiled.
            found["compile_seconds"] = 0.0
        return {**task.train(built, seed, workdir), **found}

    for seed in range(seeds):
        numbers = grid.train(row.name, seed, train)
        if numbers is not None:
            print(f"{row.name}, seed {seed}: {in_words(numbers)}", flush=True)
        yield seed, numbers


def assemble(
    experiment: str,
    config: Training,
    corpus: Mapping[str, Any],
    done: Mapping[str, Sequence[dict[str, Any]]],
) -> dict[str, Any]:
    """The results of the runs that are done, row by row.

    Args:
      experiment: its folder.
      config: of the command that joins them; what may differ is not in it.
      corpus: what was learnt.
      done: the numbers of each row's seeds.
    """
    runs = [run for row in done.values() for run in row]
    return {
        "experiment": experiment,
        "study": config.kind,
        "preset": config.preset,
        **provenance.joined(runs),
        "config": {**config.shared(), "seeds": sorted({run["seed"] for run in runs})},
        "corpus": dict(corpus),
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
