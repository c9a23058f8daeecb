"""What tests of whole commands share: how they end, their results, a small study."""

import json
import os
import signal

import pytest

from experiments.compare.text import Text

# Of each run of a small study.
STEPS = 4


def finished(program, arguments):
    """What a command left that has to end well."""
    outcome = program(*arguments)
    assert outcome.code == 0, outcome.err
    return outcome


def stop_at(patch, owner, name, number):
    """SIGINT at the call of that number, in the list of calls that is returned.

    The first batch of each model is for compiling.
    """
    original, calls = getattr(owner, name), []

    def stopping(*arguments, **options):
        calls.append(arguments)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments, **options)

    patch.setattr(owner, name, stopping)
    return calls


def results_of(workdir):
    return json.loads((workdir / "results.json").read_text())


def study(book, workdir, rows, seeds, *sizes):
    """The arguments of a study that trains on text for a few steps."""
    return [
        *("smoke", "--data", book, "--workdir", workdir, "--rows", *rows),
        *("--seeds", str(seeds), "--steps", str(STEPS), "--checkpoint-every", "2"),
        *("--log-every", "1", "--eval-every", "4", "--validation-bytes", "200"),
        *sizes,
    ]


def stopped_study(program, arguments):
    """What a study left that was stopped in its second run, after 3 steps."""
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, Text, "training_batch", (1 + STEPS) + 3)
        outcome = program(*arguments)
    assert outcome.code == 130
    assert f"SIGINT after step 3 of {STEPS}" in outcome.err
    return outcome


def numbers_of(workdir, names):
    """What each run of a study has found, without its times."""
    return {
        (row["row"], run["seed"]): [run[name] for name in names]
        for row in results_of(workdir)["rows"]
        for run in row["runs"]
    }


def refused(program, book, workdir, arguments):
    """What a study says to a mistake, with nothing written."""
    outcome = program("smoke", "--data", book, "--workdir", workdir, *arguments)
    assert outcome.code == 2
    assert not list(workdir.iterdir())
    return outcome.err


def by_arguments(value):
    """The id of a mistake: the arguments alone."""
    return "-".join(value) if isinstance(value, list) else ""
