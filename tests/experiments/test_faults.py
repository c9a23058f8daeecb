"""What a program says when the disk or a file fails it, and with which exit code."""

import errno
import os
import re
from typing import NamedTuple

import pytest

from attn_jax.train import CheckpointWriteError, HostLostError, MetricsWriteError
from experiments.common.errors import UserError
from experiments.common.main import run_program
from experiments.common.places import place_of
from experiments.common.workdir import Workdir, write_json


class Plan(NamedTuple):
    workdir: Workdir

    def shared_config(self):
        return {}


def run(tmp_path, act):
    """A program that does nothing else."""
    plan = Plan(Workdir(tmp_path, []))
    return run_program("python -m x", [], lambda _: plan, lambda _: act())


def refusal(number, path=None):
    def act():
        raise OSError(number, os.strerror(number), path)

    return act


@pytest.mark.parametrize(
    ("number", "path", "said"),
    [
        (errno.ENOSPC, "a/results.json", "a/results.json: got No space .*; make room"),
        (errno.EROFS, None, "{}: got Read-only file system; expected .*; change its"),
        (errno.ENOENT, "shards/0.bin", "shards/0.bin: got No such file .* put it back"),
        (errno.EIO, None, "{}: got Input/output error; expected .*; look at the disk"),
    ],
)
def test_what_the_system_refuses_is_named(tmp_path, capsys, number, path, said):
    assert run(tmp_path, refusal(number, path)) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "run the same command again" in error
    match = re.search(said.format(tmp_path), error)
    assert match, error


@pytest.mark.parametrize(
    "kind", [CheckpointWriteError, MetricsWriteError, HostLostError]
)
def test_a_training_that_can_not_go_on_has_its_own_code(tmp_path, capsys, kind):
    def act():
        raise kind("what came, and what to do")

    assert run(tmp_path, act) == 1
    assert capsys.readouterr().err == "error: what came, and what to do\n"


def test_a_work_directory_that_can_not_be_written_is_a_mistake(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(
        "experiments.common.workdir.write_json",
        lambda path, value: refusal(errno.EROFS, str(path))(),
    )
    assert run(tmp_path, list) == 2
    assert f"{tmp_path}/config.json: got Read-only" in capsys.readouterr().err
    monkeypatch.undo()
    assert run(tmp_path, lambda: write_json(tmp_path / "results.json", {})) == 0


def test_hosts_are_options_of_every_experiment():
    words = [
        "demo",
        "--hosts",
        "2",
        "--host",
        "0",
        "--steps",
        "3",
        "--coordinator",
        "a:1",
    ]
    place, rest = place_of(words)
    assert rest == ["demo", "--steps", "3"]
    assert place == {"hosts": 2, "host": 0, "coordinator": "a:1", "timeout": None}
    assert place_of(["--hosts", "auto", "--host-timeout", "2.5"])[0] == {
        "hosts": "auto",
        "host": None,
        "coordinator": None,
        "timeout": 2.5,
    }
    with pytest.raises(UserError, match="--hosts: got 'two'; expected a whole number"):
        place_of(["--hosts", "two"])
