"""One run: measure, write results.json, draw, write the page."""

import importlib.metadata
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks import extras, mechanisms, peers, plot, report, results, targets
from benchmarks import training as training_step
from benchmarks.command_line import PROGRAM, parse
from benchmarks.config import BenchConfig
from benchmarks.problem import Case
from benchmarks.sweep import Sweep
from benchmarks.worker import Worker
from experiments.common import provenance


def main(arguments: Sequence[str]) -> int:
    """The command: 0 when everything that is there was measured."""
    config = parse(arguments)
    path = config.out / "results.json"
    config.out.mkdir(parents=True, exist_ok=True)
    for measured in measure(config, arguments):
        path.write_text(results.dumps(measured), encoding="utf-8")
    # What is read is what was rounded, so the page can be made again from the file.
    measured = results.read(path)
    plot.draw(measured, config.figures)
    config.page.parent.mkdir(parents=True, exist_ok=True)
    config.page.write_text(report.page(measured), encoding="utf-8")
    for target in targets.targets(measured):
        print(f"{report.HELD[target.held]:>12}  {target.what}: {target.measured}")
    print(path, config.page, sep="\n")
    return 0


def measure(config: BenchConfig, arguments: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Everything that results.json holds, again after each part that was measured."""
    begin = time.perf_counter()
    here = peers.found(_say)
    cases = [*mechanisms.CASES, *peers.cases(here)]
    if config.only:
        cases = [c for c in cases if any(word in c.name for word in config.only)]
    found: dict[str, Any] = {
        "command": shlex.join([*PROGRAM.split(), *arguments]),
        "preset": config.preset,
        "config": config.shown(),
        "versions": _versions(here),
        "device": provenance.device(),
        "commit": provenance.commit(),
        "seconds": 0.0,
    }
    size = training_step.SIZES[config.preset]
    parts: dict[str, Callable[[], Any]] = {
        "sweep": lambda: _sweep(config, cases, here["torch"]),
        "memory": lambda: extras.memory_of_rows(config),
        **{name: partial(part, config) for name, part in extras.MEASURED.items()},
        "training": lambda: training_step.compare(size, config.rounds, here["torch"]),
    }
    for name, part in parts.items():
        if name in config.parts:
            _say(f"{name} ...")
            found[name] = part()
            found["seconds"] = time.perf_counter() - begin
            yield found


def _sweep(config: BenchConfig, cases: list[Case], torch: bool) -> list[dict[str, Any]]:
    if not torch:
        return Sweep(config, targets.NEEDED, _say).run(cases)
    with Worker() as worker:
        return Sweep(config, targets.NEEDED, _say, worker).run(cases)


def _versions(here: dict[str, bool]) -> dict[str, str]:
    theirs = {n: importlib.metadata.version(n) for n, found in here.items() if found}
    return provenance.versions() | theirs


def _say(line: str) -> None:
    print(line, flush=True)
