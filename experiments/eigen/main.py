"""Analyses every model in turn, compares them, and shows what came out."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from attn_jax.data import ByteCorpus
from benchmarks import memory
from experiments.common import provenance
from experiments.common.errors import fail
from experiments.common.main import run_program
from experiments.common.plan import publish
from experiments.common.workdir import Workdir
from experiments.eigen import numbers, plot, table, timing
from experiments.eigen.command_line import PROGRAM, parse
from experiments.eigen.config import NOT_SHARED, EigenConfig
from experiments.eigen.results import assemble
from experiments.eigen.statistics import gather
from experiments.eigen.subjects import Model, find_models, load_text


class Plan(NamedTuple):
    """All that is known before anything is computed."""

    config: EigenConfig
    origin: dict[str, Any]
    corpus: ByteCorpus
    models: list[Model]
    workdir: Workdir

    def shared_config(self) -> dict[str, Any]:
        """What all models of the work directory have in common."""
        fingerprint = self.corpus.fingerprint
        return {**self.config.shared(), "corpus_fingerprint": fingerprint}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit code, as `run_program` says."""
    return run_program(PROGRAM, arguments, prepare, run)


def prepare(arguments: Sequence[str]) -> Plan:
    """Everything that can be wrong, looked at before anything is computed."""
    config = parse(arguments)
    text, corpus = load_text(config)
    models = find_models(config, text)
    workdir = Workdir(config.directory(), NOT_SHARED)
    origin = provenance.origin(PROGRAM, arguments)
    plan = Plan(config, origin, corpus, models, workdir)
    workdir.check(plan.shared_config())
    for model in models:
        _check_same(model, workdir)
    return plan


def _check_same(model: Model, workdir: Workdir) -> None:
    """Raise where numbers of another encoder of this name are there."""
    there = workdir.finished(model.name)
    if there is not None and there["digest"] != model.digest:
        fail(
            "--models",
            f"another {model.name} than {workdir.path} holds numbers of",
            "the same files",
            "pass another name, or another --workdir",
        )


def run(plan: Plan) -> None:
    """Compute what isn't there yet, then write and show the results."""
    config, workdir = plan.config, plan.workdir
    print(
        f"{plan.corpus.summary}\n{config.sequences:,} sequences of {config.length} "
        f"tokens, {config.held_out:,} held out",
        flush=True,
    )
    rows = [_numbers(model, plan) for model in plan.models]
    timed = workdir.finished("timing")
    if timed is None:
        heads, width = rows[0]["heads"], rows[0]["head_dim"]
        timed = timing.measure(heads, width, config)
        workdir.finish("timing", timed)
    covariances = {row["model"]: _load(workdir, row["model"]) for row in rows}
    results = assemble(rows, covariances, timed, config, plan.corpus)
    publish(results, workdir, plot, table)


def _numbers(model: Model, plan: Plan) -> dict[str, Any]:
    """The numbers of a model, computed unless they are there."""
    config, workdir, name = plan.config, plan.workdir, model.name
    there = workdir.finished(name)
    if there is not None and _file(workdir, name).is_file():
        return there
    print(f"{name}: analysing", flush=True)
    begin = time.perf_counter()
    subject = model.load()
    made = subject.encoder.config
    statistics = gather(subject, config)
    gathered, peak = time.perf_counter() - begin, memory.peak_of_this_process()
    found = {
        "model": name,
        "digest": model.digest,
        "heads": made.num_heads,
        "head_dim": made.attention().key_dim,
        **numbers.measure(statistics, config),
        "seconds": round(gathered, 1),
        "peak_bytes": peak,
        "all_seconds": round(time.perf_counter() - begin, 1),
        **plan.origin,
    }
    _file(workdir, name).parent.mkdir(exist_ok=True)
    np.save(_file(workdir, name), np.stack([rows.matrix for rows in statistics.rows]))
    workdir.finish(name, found)
    print(f"{name}: done in {found['all_seconds']:.0f} s", flush=True)
    return found


def _file(workdir: Workdir, name: str) -> Any:
    """Where the covariances of a model's rows are kept."""
    return workdir.path / "covariances" / f"{name}.npy"


def _load(workdir: Workdir, name: str) -> list[np.ndarray]:
    return list(np.load(_file(workdir, name)))
