"""Several hosts, as real processes: one order of rows, and nobody waits for ever."""

import math
import shutil
import signal

import pytest

from attn_jax.train import HostLostError, _place, hosts
from tests import hosts as several
from tests.train import small, toy


@pytest.fixture(scope="module")
def lost(tmp_path_factory):
    """A run of two hosts, saved after 4 steps; host 1 dies in the sixth."""
    directory = tmp_path_factory.mktemp("hosts") / "run"
    return directory, several.start(
        directory, 2, several.STEPS, (1, "dies"), plain=True
    )


def test_a_host_that_dies_ends_the_others_in_time_and_is_named(lost):
    """`python -m tests.hosts` does so with more of them, frozen and stuck ones too."""
    _, (first, second) = lost
    assert second.code == -9
    assert several.named(first, 1), first.said
    # Twice, since a busy machine wakes nobody in time.
    assert first.seconds < 2 * several.TIMEOUT


def test_two_hosts_go_on_as_one_with_the_rows_of_one(lost, tmp_path):
    """What was read after the last checkpoint is read again, and recorded once."""
    directory, _ = lost
    before = several.rows_read(directory)
    every = [(step, row) for step in range(4) for row in range(toy.ROWS)]
    assert before[: len(every)] == every
    state, step = toy.make_run()
    both = {"num_steps": several.STEPS, "checkpoint_every": several.SAVED}
    shutil.copytree(directory, tmp_path / "one")
    small.go_on(tmp_path / "one", state, step, toy.batch_at, **both)
    state, _ = toy.make_run()
    small.go_on(tmp_path / "straight", state, step, toy.batch_at, **both)
    assert several.same_losses(tmp_path / "one", tmp_path / "straight")


def test_a_host_with_fewer_batches_does_not_hang_the_others(tmp_path):
    """It is at the barrier of its last save, and the other one at that of a step."""
    one, two = several.start(
        tmp_path / "uneven", 2, several.STEPS, (1, "ends early"), plain=True
    )
    assert one.code == 1, one.said
    assert one.seconds < 2 * several.TIMEOUT
    assert several.named(one, 1), one.said
    assert "run, step 6: host 1 is not there (it was last at saving step 5" in one.said
    # All talk through host 0: where it has left already, JAX ends host 1 with a signal.
    assert two.code in (1, -signal.SIGABRT), two.said
    assert several.named(two, 0), two.said
    if two.code == 1:
        assert "saving step 5" in two.said
        assert "(it was last at run, step 6)" in two.said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"hosts": "two"}, "hosts: got 'two'; expected a whole number, or 'auto'"),
        ({"host": 1}, "hosts: got none with host"),
        ({"coordinator": "a:1"}, "hosts: got none with host or coordinator"),
        ({"hosts": 0}, "hosts: got 0"),
        ({"hosts": 2}, "host: got none of 2 hosts; expected 0 to 1; .* ATTN_JAX_HOST"),
        ({"hosts": 2, "host": 2}, "host: got 2 of 2 hosts"),
        ({"hosts": 2, "host": 0}, "coordinator: got None; .* ATTN_JAX_COORDINATOR"),
        ({"hosts": 2, "host": 0, "coordinator": "a"}, "coordinator: got 'a'"),
        ({"hosts": 2, "timeout": 1}, "timeout: got 1"),
        ({"hosts": 2, "timeout": math.inf}, "timeout: got inf; expected a finite num"),
        ({"hosts": 2, "timeout": "9"}, "timeout: got '9'; .* ATTN_JAX_TIMEOUT"),
        ({"hosts": 2, "host": -1}, "host: got -1; expected an integer of at least 0"),
    ],
)
def test_a_place_that_does_not_fit_is_named(wrong, said, plain_errors):
    with pytest.raises(ValueError, match=said), hosts.joined(**wrong):
        pass


def test_seconds_of_the_environment_may_be_parts_of_one(monkeypatch):
    monkeypatch.setenv(_place.TIMEOUT, "2.5")
    assert _place.options_of(_place.AUTO, None, None, None) == {"timeout": 2.5}
    monkeypatch.setenv(_place.TIMEOUT, "soon")
    with pytest.raises(ValueError, match="ATTN_JAX_TIMEOUT: got 'soon'; expected a"):
        _place.options_of(_place.AUTO, None, None, None)


def test_one_host_is_all_of_them(monkeypatch):
    for alone in (None, "1"):
        if alone:
            monkeypatch.setenv(_place.HOSTS, alone)
        with hosts.joined():
            assert hosts.is_writer()
            assert hosts.rows(6) == range(6)
            assert hosts.meet("step 1", stop=True)
            assert not hosts.meet("step 2")
    monkeypatch.setattr("jax.process_count", lambda: 4)
    monkeypatch.setattr("jax.process_index", lambda: 2)
    assert hosts.rows(8) == range(4, 6)
    with pytest.raises(ValueError, match="batch_size: got 6 for 4 hosts"):
        hosts.rows(6)
    assert issubclass(HostLostError, RuntimeError)
