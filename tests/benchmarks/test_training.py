"""Two models are compared only when they are the same one."""

import pytest

from benchmarks.training import _require_alike

OURS = {"parameters": 12, "loss": 5.5}


@pytest.mark.parametrize("theirs", [{"parameters": 13}, {"loss": 5.501}])
def test_another_model_is_not_compared_with_ours(theirs):
    facts = {"attn_jax": OURS, "torch eager": OURS | theirs}
    with pytest.raises(RuntimeError, match="torch eager: got"):
        _require_alike(facts, "torch eager")


def test_the_same_model_up_to_rounding_is():
    _require_alike({"attn_jax": OURS, "torch": OURS | {"loss": 5.50001}}, "torch")
