"""Tables of a page: what differs between runs, and their own tables joined."""

import importlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from experiments.common import listing, provenance
from experiments.common.errors import fail
from experiments.common.tables import parse
from experiments.report.runs import Run, holders, readable

ABSENT = "–"
OVERVIEW = ["run", "experiment", "preset", "state", "seconds of training"]


class Table(NamedTuple):
    """Cells, a list a row."""

    columns: list[str]
    rows: list[list[str]]


def overview(run: Run) -> list[str]:
    """What a run is, and how far it came: a row with the columns OVERVIEW."""
    seconds = run.results.get("seconds")
    training = seconds.get("training") if isinstance(seconds, Mapping) else seconds
    return [
        run.name,
        run.results.get("experiment", ABSENT),
        str(run.results.get("preset", run.config.get("preset", ABSENT))),
        _state(run),
        ABSENT if training is None else f"{training:,.0f}",
    ]


def differences(runs: Sequence[Run]) -> Table:
    """The settings that are not the same in all runs, a column a run.

    Of a run without results few are known: what isn't there is no difference.
    """
    known = [_settings(run) for run in runs]
    rows = []
    for name in dict.fromkeys(name for each in known for name in each):
        told = {
            each.get(name, ABSENT)
            for run, each in zip(runs, known, strict=True)
            if run.results or name in each
        }
        if len(told) > 1:
            rows.append([name, *(each.get(name, ABSENT) for each in known)])
    return Table(["setting", *(run.name for run in runs)], rows)


def unknown(runs: Sequence[Run]) -> list[str]:
    """The runs of which few settings are known, or none."""
    return [run.name for run in runs if not run.results]


def settings(run: Run) -> Table:
    """All that is known of how a run was made."""
    return Table(["setting", "value"], [[*each] for each in _settings(run).items()])


def joined(runs: Sequence[Run]) -> list[Table]:
    """The experiments' own tables; those with the same columns are one."""
    found: dict[tuple[str, ...], Table] = {}
    for run in runs:
        own = _own(run)
        with readable(run.path):
            written = parse(own.markdown(run.results)) if own else []
        for columns, rows in written:
            table = found.setdefault(tuple(columns), Table(["run", *columns], []))
            if any(len(row) != len(columns) for row in rows):
                fail(
                    "RUN",
                    f"{run.path}, with a | in a name",
                    "names without",
                    "rename it",
                )
            table.rows.extend([run.name, *row] for row in rows)
    return list(found.values())


def notes(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """What the experiments say of their tables: the runs, and what is said of them."""
    found: dict[str, list[str]] = {}
    for run in runs:
        own = _own(run)
        with readable(run.path):
            for note in own.notes(run.results) if own else []:
                found.setdefault(note, []).append(run.name)
    said: dict[str, list[str]] = {}
    for note, names in found.items():
        said.setdefault(", ".join(names), []).append(note)
    return list(said.items())


def _own(run: Run) -> Any:
    """The module of a run's experiment that makes its tables; None without results."""
    name = run.results.get("experiment")
    if name not in listing.names():
        return None
    return importlib.import_module(f"experiments.{name}.table")


def _state(run: Run) -> str:
    if not run.results:
        return f"at step {run.step:,}"
    if run.goes_on:
        return f"finished at step {run.config['steps']:,}, now at {run.step:,}"
    return "finished"


def _settings(run: Run) -> dict[str, str]:
    """The config, the data, and where the numbers are from, flat and in words."""
    origin = {name: run.results.get(name) for name in provenance.ORIGIN}
    corpus = {"corpus": run.results.get("corpus")}
    rows = dict.fromkeys(line.row for line in run.lines)
    if not run.lines and isinstance(run.results.get("rows"), list):
        rows = dict.fromkeys(row for row, _ in holders(run.results["rows"], "runs"))
    names = ", ".join(filter(None, rows)) or None
    return _flat({"rows": names, **run.config, **corpus, **origin})


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, str):
            found[f"{prefix}{name}"] = value
        elif value is not None:
            found[f"{prefix}{name}"] = json.dumps(value, ensure_ascii=False)
    return found
