"""Where a run may go on, and how far it has come."""

import json

import jax.numpy as jnp
import pytest

from attn_jax.train import Checkpointer
from experiments.common.errors import UserError
from experiments.common.workdir import Workdir


def test_only_complete_steps_count(tmp_path):
    """A directory with a number for a name is none."""
    workdir = Workdir(tmp_path, [])
    assert workdir.latest_step("a") == 0
    with Checkpointer(workdir.checkpoints("a")) as checkpointer:
        checkpointer.save(7, {"x": jnp.ones(2)})
    (workdir.checkpoints("a") / "00000050").mkdir()
    assert workdir.latest_step("a") == 7


def test_a_config_beside_which_nothing_has_begun_is_written_again(tmp_path):
    workdir = Workdir(tmp_path, [])
    with workdir.claim({"seed": -1}):
        pass
    (tmp_path / "metrics.jsonl").touch()
    (tmp_path / "checkpoints" / "a").mkdir(parents=True)
    workdir.check({"seed": 1})
    with workdir.claim({"seed": 1}):
        pass
    assert json.loads((tmp_path / "config.json").read_text()) == {"seed": 1}
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="seed: 1 there, 2 now"):
        workdir.check({"seed": 2})
    with workdir.claim({"seed": 1}):
        assert workdir.begun()
