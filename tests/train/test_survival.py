"""A training that is killed, or that the disk fails, loses nothing."""

import errno
import os
from pathlib import Path

import pytest

from attn_jax.train import (
    Checkpointer,
    MetricLogger,
    MetricsWriteError,
    TrainingInterrupted,
    fit,
    read_metrics,
)
from tests import survive
from tests.train import small, toy
from tests.train.toy import assert_same_bits


def test_killed_at_random_moments_it_ends_with_the_same_bits_and_lines(tmp_path):
    """`python -m tests.survive` does so 20 times."""
    found = survive.survive(tmp_path, kills=2, seed=1, plain=True)
    assert found.same_state
    assert found.same_lines
    assert found.kills == 2
    assert found.saving > 0
    steps = [line["step"] for line in small.lines(tmp_path / "war")]
    assert steps == list(range(1, 3 * survive.A_KILL + 1))


@pytest.fixture(scope="module")
def step():
    return toy.make_run()[1]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("interrupted", [False, True], ids=["running", "stopping"])
def test_lines_that_can_not_be_written_end_a_run_that_goes_on(
    tmp_path, step, monkeypatch, number, interrupted
):
    opened = Path.open

    def refuse(path, mode="r", *arguments, **options):
        """Half a line, then an error, as on a full disk."""
        if path.name != "metrics.jsonl" or mode != "a":
            return opened(path, mode, *arguments, **options)
        if path.exists() and len(read_metrics(path)) >= 4:
            with opened(path, "a") as file:
                file.write('{"name": "to')
            raise OSError(number, os.strerror(number), str(path))
        return opened(path, mode, *arguments, **options)

    def batch_at(i):
        if interrupted and i == 4:
            os.kill(os.getpid(), 2)
        return toy.batch_at(i)

    def run():
        state = toy.make_run()[0]
        with (
            MetricLogger(tmp_path, name="toy", tensorboard=False) as logger,
            Checkpointer(tmp_path / "checkpoints") as checkpointer,
        ):
            if checkpointer.latest_step() is not None:
                state = checkpointer.restore(state)
            options = {"checkpointer": checkpointer, "checkpoint_every": 2}
            common = {"num_steps": 8, "log_every": 1, "progress": None}
            return fit(state, step, batch_at, logger=logger, **options, **common)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        kind = TrainingInterrupted if interrupted else MetricsWriteError
        said = f"toy could not be written to {tmp_path}: .*{os.strerror(number)}"
        with pytest.raises(kind, match=said):
            run()
    interrupted = False
    result = run()
    assert [line["step"] for line in read_metrics(tmp_path)] == [*range(1, 9)]
    straight = fit(toy.make_run()[0], step, toy.batch_at, num_steps=8, progress=None)
    assert_same_bits(result.state, straight.state)
