"""Checkpoints: whole or not at all, loud about what doesn't fit, and in dtype."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from attn_jax.train import (
    Checkpointer,
    CheckpointMismatchError,
    CheckpointWriteError,
    MetricLogger,
    average_checkpoints,
    fit,
    init_train_state,
    read_metrics,
)
from tests.train import toy
from tests.train.toy import assert_same_bits

# Another process: where it finds the package, and on the devices of this one.
PROCESS = {
    "cwd": Path(__file__).resolve().parents[2],
    "env": {**os.environ, "JAX_PLATFORMS": jax.default_backend()},
}


def abstract(tree):
    """Shapes and dtypes alone, as one has them before anything is allocated."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


@pytest.fixture
def state():
    """A state some steps into a run, so that nothing in it is zero by chance."""
    state, step = toy.make_run()
    for i in range(3):
        state, _ = step(state, toy.batch_at(i))
    return state


def test_a_state_comes_back_to_the_bit(tmp_path, state):
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.latest_step() is None
        checkpointer.save(3, state)
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.latest_step() == 3
        for like in (state, abstract(state), jax.eval_shape(lambda: toy.make_run()[0])):
            assert_same_bits(checkpointer.restore(like), state)


def test_every_kind_of_leaf_comes_back(tmp_path):
    tree = {
        "half": [jnp.ones((2, 3), jnp.bfloat16), jnp.zeros((0, 3))],
        "keys": (jax.random.key(4), jax.random.split(jax.random.key(7, impl="rbg"), 3)),
        "numpy": np.arange(3) / 7,
        "state": optax.ScaleByAdamState(jnp.int32(3), {"a": jnp.ones(2)}, None),
    }
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(0, tree)
        checkpointer.wait()
        assert_same_bits(checkpointer.restore(tree), tree)


def test_no_dtype_is_narrowed_in_silence(tmp_path):
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(0, {"a": np.arange(3) / 7})
        checkpointer.wait()
        with pytest.raises(ValueError, match=r"dtype float64, while jax_enable_x64"):
            checkpointer.restore({"a": jax.ShapeDtypeStruct((3,), np.float64)})
        with pytest.raises(CheckpointMismatchError, match=r"a: float64\[3\] in the"):
            checkpointer.restore({"a": jax.ShapeDtypeStruct((3,), np.float32)})


def test_parameters_of_a_module_and_dicts_are_alike(tmp_path):
    module = nnx.Linear(3, 5, rngs=nnx.Rngs(0))
    state = init_train_state(nnx.state(module, nnx.Param), optax.adam(0.1), seed=0)
    as_dict = state._replace(params=nnx.to_pure_dict(state.params))
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(0, state)
        checkpointer.wait()
        assert_same_bits(checkpointer.restore(state), state)
        pure = init_train_state(as_dict.params, optax.adam(0.1), seed=0)
        restored = checkpointer.restore(pure)
    assert_same_bits(restored.params, as_dict.params)


def test_training_goes_on_while_a_state_is_written(tmp_path):
    # What is written is the state at the call, though its memory is used again.
    optimizer = optax.sgd(1.0)
    state = init_train_state(toy.make_params(hidden=20_000), optimizer, seed=0)
    step = jax.jit(
        lambda state: jax.tree.map(lambda x: x + 1, state._replace(seed=0))._replace(
            seed=state.seed
        ),
        donate_argnums=0,
    )
    with Checkpointer(tmp_path, keep=5) as checkpointer:
        for k in range(4):
            kept = jax.tree.map(lambda x: np.array(x), state.params)
            checkpointer.save(k, state)
            for _ in range(10):
                state = step(state)
            checkpointer.wait()
            assert_same_bits(
                jax.tree.map(np.asarray, checkpointer.restore(state).params), kept
            )


def test_the_latest_are_kept(tmp_path, state):
    with Checkpointer(tmp_path, keep=2) as checkpointer:
        for step in (2, 9, 10, 100):
            checkpointer.save(step, state)
        checkpointer.wait()
        assert checkpointer.all_steps() == [10, 100]
        assert checkpointer.latest_step() == 100
        assert_same_bits(checkpointer.restore(state, step=10), state)
    assert sorted(os.listdir(tmp_path)) == ["00000010", "00000100"]


def test_what_is_saved_off_the_schedule_drives_out_nothing(tmp_path):
    with Checkpointer(tmp_path, keep=2, every=10) as checkpointer:
        kept = []
        for step in (10, 13, 20, 21, 22, 30, 31):
            checkpointer.save(step, {"a": jnp.ones(2)})
            checkpointer.wait()
            kept.append(checkpointer.all_steps())
    assert kept[1:4] == [[10, 13], [10, 20], [10, 20, 21]]
    assert kept[4:] == [[10, 20, 22], [20, 30], [20, 30, 31]]


def test_the_best_are_kept_beside_the_latest(tmp_path):
    losses = {1: 5.0, 2: 3.0, 3: 4.0, 4: float("nan"), 5: 6.0, 6: None, 7: 9.0}
    options = {"keep": 1, "best": 2, "score": lambda metrics: metrics["loss"]}
    with Checkpointer(tmp_path, **options) as checkpointer:
        assert checkpointer.best_step() is None
        for step, loss in losses.items():
            metrics = None if loss is None else {"loss": jnp.float32(loss)}
            checkpointer.save(step, {"a": jnp.full(2, step)}, metrics=metrics)
        checkpointer.wait()
        assert checkpointer.all_steps() == [2, 3, 7]
    # Another session knows the scores of this one.
    with Checkpointer(tmp_path, **options) as checkpointer:
        assert checkpointer.best_step() == 2
        checkpointer.save(8, {"a": jnp.ones(2)}, metrics={"loss": 3.5})
        checkpointer.wait()
        assert checkpointer.all_steps() == [2, 8]
    for wrong in ({"best": 2}, {"score": min}):
        with pytest.raises(ValueError, match=r"(best|score): got .* both or neither"):
            Checkpointer(tmp_path, **wrong)


def test_a_step_that_is_being_deleted_counts_no_more(tmp_path, state, monkeypatch):
    # As if the run were killed in the middle of a deletion.
    monkeypatch.setattr(shutil, "rmtree", lambda *arguments, **options: None)
    with Checkpointer(tmp_path, keep=1) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state)
    monkeypatch.undo()
    with Checkpointer(tmp_path, keep=1) as checkpointer:
        assert checkpointer.all_steps() == [2]
    assert os.listdir(tmp_path) == ["00000002"]


def test_a_step_counts_once_it_is_complete(tmp_path, state, monkeypatch):
    rename = os.rename

    def slow(source, target, **options):
        time.sleep(0.3)
        return rename(source, target, **options)

    with Checkpointer(tmp_path) as checkpointer:
        monkeypatch.setattr(os, "rename", slow)
        checkpointer.save(1, state)
        assert checkpointer.latest_step() is None
        checkpointer.wait()
        assert checkpointer.latest_step() == 1


def test_what_differs_is_listed(tmp_path, state):
    other = jax.tree.map(lambda x: x, state)
    other.params["first"]["kernel"] = jnp.zeros((3, 6))
    other.params["second"]["bias"] = other.params["second"]["bias"].astype(jnp.bfloat16)
    other.params["third"] = {"kernel": jnp.zeros((2, 2))}
    del other.params["second"]["kernel"]
    other = other._replace(seed=jax.random.key(0, impl="rbg"))
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(3, state)
        checkpointer.wait()
        with pytest.raises(CheckpointMismatchError) as caught:
            checkpointer.restore(other)
    lines = str(caught.value).splitlines()
    assert "got 6 arrays unlike those of" in lines[0]
    assert lines[1:] == [
        "  params.first.kernel: float32[3,5] in the checkpoint, float32[3,6] expected",
        "  params.second.bias: float32[7] in the checkpoint, bfloat16[7] expected",
        "  params.second.kernel: float32[5,7] in the checkpoint, nothing expected",
        "  params.third.kernel: nothing in the checkpoint, float32[2,2] expected",
        "  seed.key<fry>: uint32[2] in the checkpoint, nothing expected",
        "  seed.key<rbg>: nothing in the checkpoint, uint32[4] expected",
    ]


@pytest.mark.parametrize("layers", [1, 3])
def test_another_number_of_layers_is_refused(tmp_path, layers):
    def stack(count):
        return {"layers": [{"kernel": jnp.ones((2, 2))}] * count}

    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(0, stack(2))
        checkpointer.wait()
        with pytest.raises(CheckpointMismatchError, match=rf"layers\.{min(layers, 2)}"):
            checkpointer.restore(stack(layers))
        with pytest.raises(CheckpointMismatchError, match="got 3 arrays unlike"):
            checkpointer.restore({"layers": jnp.ones((layers, 2, 2))})


def test_what_is_not_there_is_named(tmp_path, state):
    with Checkpointer(tmp_path) as checkpointer:
        with pytest.raises(FileNotFoundError, match="complete steps there: none"):
            checkpointer.restore(state)
        checkpointer.save(3, state)
        with pytest.raises(FileNotFoundError, match=r"step 2 in .* there: \[3\]"):
            checkpointer.restore(state, step=2)
        for step in (2, 3):
            with pytest.raises(ValueError, match=f"step: got {step}, while .* step 3"):
                checkpointer.save(step, state)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="directory: got"):
        Checkpointer(tmp_path / "file")


@pytest.mark.parametrize("surface", ["check", "save", "wait", "close"])
def test_an_error_of_writing_surfaces_later(tmp_path, state, monkeypatch, surface):
    rename = os.rename

    def full(source, target, **options):
        if str(target).endswith("00000002"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(source, target, **options)

    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(1, state)
    checkpointer.wait()
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        checkpointer.save(2, state)

        def check():
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                checkpointer.check()

        look = {
            "check": check,
            "save": lambda: checkpointer.save(3, state),
            "wait": checkpointer.wait,
            "close": checkpointer.close,
        }[surface]
        message = r"step 2 could not .*No space left on device.* complete steps \[1\]"
        with pytest.raises(CheckpointWriteError, match=message):
            look()
    if surface == "close":
        checkpointer = Checkpointer(tmp_path)
    # There is room again: the same step can be saved.
    assert os.listdir(tmp_path) == ["00000001"]
    checkpointer.save(2, state)
    checkpointer.close()
    with Checkpointer(tmp_path) as again:
        assert again.all_steps() == [1, 2]
        assert_same_bits(again.restore(state), state)


FULL = """
import resource, sys
import jax.numpy as jnp
import numpy as np
from attn_jax.train import Checkpointer, CheckpointWriteError

# No file may grow beyond 64 KiB, as on a full disk; the noise can't be compressed.
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
state = {"a": jnp.ones(3), "noise": np.random.default_rng(0).normal(size=100_000)}
checkpointer = Checkpointer(sys.argv[1])
for attempt in range(3):
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, limits[1]))
    checkpointer.save(1, state)
    try:
        checkpointer.wait()
    except CheckpointWriteError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
checkpointer.save(1, state)
checkpointer.close()
with Checkpointer(sys.argv[1]) as checkpointer:
    restored = checkpointer.restore(state)
print(np.array_equal(restored["noise"], state["noise"]))
"""


def test_a_full_disk_is_an_error_and_leaves_nothing_behind(tmp_path):
    # In a process of its own: what Orbax had begun complains from its threads.
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, **PROCESS)
    assert run.returncode == 0, run.stderr
    *errors, equal = run.stdout.splitlines()
    assert len(errors) == 3
    assert all("step 1 could not be written" in error for error in errors)
    assert equal == "True"
    assert os.listdir(tmp_path) == ["00000001"]


def test_a_directory_that_is_gone_is_an_error(tmp_path, state):
    place = tmp_path / "checkpoints"
    checkpointer = Checkpointer(place)
    checkpointer.save(1, state)
    checkpointer.wait()
    os.rename(place, tmp_path / "elsewhere")
    place.write_text("")
    with pytest.raises(CheckpointWriteError, match="step 2 could not be written"):
        checkpointer.save(2, state)
    place.unlink()
    checkpointer.close()


KILLED = """
import os, sys, time
from attn_jax.train import Checkpointer, MetricLogger, fit
from tests.train import toy

directory = sys.argv[1]
rename = os.rename

def stuck(source, target, **options):
    # Everything of step 4 is written; its last move never happens.
    if str(target).endswith("00000004"):
        open(os.path.join(directory, "stuck"), "w").close()
        time.sleep(600)
    return rename(source, target, **options)

os.rename = stuck
state, step = toy.make_run()
logger = MetricLogger(directory, name="toy", tensorboard=False)
fit(state, step, toy.batch_at, num_steps=8, logger=logger, log_every=1, progress=None,
    checkpointer=Checkpointer(directory + "/checkpoints"), checkpoint_every=2)
"""


def test_a_run_killed_while_it_saves_goes_on_from_the_step_before(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], **PROCESS)
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "stuck").exists():
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        # Steps 5 and 6 are done and recorded, 6 waits for its checkpoint.
        while len(read_metrics(tmp_path)) < 6:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    state, step = toy.make_run()
    with (
        Checkpointer(tmp_path / "checkpoints") as checkpointer,
        MetricLogger(tmp_path, name="toy", tensorboard=False) as logger,
    ):
        assert checkpointer.latest_step() == 2
        state = checkpointer.restore(state)
        assert state.step == 2
        result = fit(
            state,
            step,
            toy.batch_at,
            num_steps=8,
            logger=logger,
            log_every=1,
            checkpointer=checkpointer,
            checkpoint_every=2,
            progress=None,
        )
        assert checkpointer.all_steps() == [6, 8]
    state, step = toy.make_run()
    straight = fit(state, step, toy.batch_at, num_steps=8, log_every=1, progress=None)
    assert_same_bits(result.state, straight.state)
    recorded = read_metrics(tmp_path)
    assert [entry["step"] for entry in recorded] == list(range(1, 9))
    assert [entry["loss"] for entry in recorded] == [
        line["loss"] for line in straight.history
    ]


def test_the_average_is_taken_in_float32():
    # In bfloat16 256 + 1 is 256: a sum in that dtype would lose every one.
    trees = [{"w": jnp.full(2, x, jnp.bfloat16)} for x in (256.0, 1.0, 1.0, 1.0, 1.0)]
    mean = average_checkpoints(iter(trees))
    assert mean["w"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(mean["w"], jnp.full(2, 52.0, jnp.bfloat16))
    params = toy.make_params()
    assert_same_bits(average_checkpoints([params]), params)


def test_checkpoints_of_a_run_are_averaged(tmp_path, state):
    _, step = toy.make_run()
    kept = []
    with Checkpointer(tmp_path, keep=3) as checkpointer:
        for k in range(3):
            state, _ = step(state, toy.batch_at(k))
            kept.append(jax.tree.map(np.array, state.params))
            checkpointer.save(k, state)
        checkpointer.wait()
        mean = average_checkpoints(
            checkpointer.restore(state, step=k).params for k in checkpointer.all_steps()
        )
    for value, *sources in zip(*map(jax.tree.leaves, (mean, *kept)), strict=True):
        np.testing.assert_allclose(value, np.mean(sources, axis=0), rtol=1e-6)


@pytest.mark.usefixtures("plain_errors")
def test_what_has_no_average_is_refused(state):
    params = toy.make_params()
    with pytest.raises(ValueError, match="checkpoints: got none"):
        average_checkpoints([])
    for other in ({"a": jnp.ones(3)}, toy.make_params(hidden=6)):
        with pytest.raises(ValueError, match="number 1 unlike number 0"):
            average_checkpoints([params, other])
    with pytest.raises(TypeError, match=r"checkpoints\.step: got int32"):
        average_checkpoints([state])
