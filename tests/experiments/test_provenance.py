"""Where numbers are from that several commands computed."""

from experiments.common import provenance

HERE = provenance.origin("python -m experiments.x", ["a", "--seeds", "2"])


def test_what_runs_share_stands_once_and_the_rest_side_by_side():
    there = {
        "command": "python -m experiments.x b",
        "commit": None,
        "versions": {**HERE["versions"], "jax": "0.0"},
        "device": HERE["device"],
    }
    found = provenance.joined([HERE, {**there, "loss": 1.0}, HERE])
    assert found["command"] == (
        "python -m experiments.x a --seeds 2; python -m experiments.x b"
    )
    assert found["commit"].endswith("; unknown") or HERE["commit"] is None
    assert found["versions"]["jax"] == f"{HERE['versions']['jax']}; 0.0"
    assert found["versions"]["numpy"] == HERE["versions"]["numpy"]
    assert found["device"] == HERE["device"]
    assert provenance.without_origin({**there, "loss": 1.0}) == {"loss": 1.0}


def test_one_origin_is_as_it_was_kept():
    assert provenance.joined([HERE, HERE]) == HERE


def test_a_run_that_does_not_say_is_of_an_unknown_command():
    assert provenance.joined([{"loss": 1.0}])["command"] == "unknown"
