"""What a checkpoint is read into: other devices, parts of it, another process."""

import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from attn_jax import models
from attn_jax.train import Checkpointer, CheckpointMismatchError, CheckpointReadError
from tests.train import toy
from tests.train.test_checkpoints import PROCESS
from tests.train.toy import assert_same_bits


def over(devices, *axes):
    mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))
    return NamedSharding(mesh, PartitionSpec(*axes))


def placed(tree, devices):
    """Every leaf laid out over so many devices, cut where they divide its length."""

    def place(x):
        cut = x.ndim > 0 and x.shape[0] % devices == 0 and devices > 1
        return jax.device_put(x, over(devices, *["data"] * cut))

    return jax.tree.map(place, tree)


def test_a_state_of_four_devices_is_restored_on_any_number(tmp_path):
    state, _ = toy.make_run()
    kernels = {"w": jnp.arange(24.0).reshape(8, 3), "b": jnp.ones(4, jnp.bfloat16)}
    state = state._replace(params=kernels)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(0, placed(state, 4))
        checkpointer.wait()
        for devices in (1, 2, 4):
            like = placed(jax.tree.map(jnp.zeros_like, state), devices)
            found = checkpointer.restore(like)
            assert_same_bits(found, state)
            for got, want in zip(
                jax.tree.leaves(found), jax.tree.leaves(like), strict=True
            ):
                assert got.sharding.is_equivalent_to(want.sharding, got.ndim)
        # Nothing said where the arrays should lie: one device holds them.
        shapes = jax.eval_shape(lambda: state)
        for x in jax.tree.leaves(checkpointer.restore(shapes)):
            assert len(x.sharding.device_set) == 1


EVALUATE = """
import sys
import jax
from attn_jax.train import Checkpointer
from tests.train.test_restore import model, scored

with Checkpointer(sys.argv[1]) as checkpointer:
    print(scored(checkpointer.restore(jax.eval_shape(lambda: model(1)[1]))).hex())
"""


def model(seed):
    config = models.DecoderConfig(
        vocab_size=11, max_length=8, num_layers=1, d_model=8, num_heads=2
    )
    return nnx.split(models.Decoder(config, rngs=nnx.Rngs(seed)))


def scored(params):
    """A number that every parameter has a share in."""
    graph, _ = model(0)
    tokens = jnp.arange(8)[None] % 11
    logits = jax.jit(lambda params: nnx.merge(graph, params)(tokens))(params)
    return float(jnp.sum(jnp.sin(logits)))


def test_another_process_restores_what_was_saved_to_the_bit(tmp_path):
    params = model(3)[1]
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(0, params)
    child = subprocess.run(
        [sys.executable, "-c", EVALUATE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        **PROCESS,
    )
    assert child.returncode == 0, child.stderr
    assert float.fromhex(child.stdout.strip()) == scored(params)
    assert scored(params) != scored(model(1)[1])


def test_parts_of_a_checkpoint_are_read_through_the_whole_of_it(tmp_path):
    """Parameters alone: the optimizer's state is named, not left out in silence."""
    state, step = toy.make_run()
    state, _ = step(state, toy.batch_at(0))
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state)
        checkpointer.wait()
        with pytest.raises(CheckpointMismatchError, match=r"opt_state.*nothing expect"):
            checkpointer.restore({"params": state.params})
        shapes = jax.eval_shape(lambda: toy.make_run()[0])
        assert_same_bits(checkpointer.restore(shapes).params, state.params)
        # A field that the file lacks is named too; the run that adds it fills it in.
        more = shapes._replace(params=shapes.params | {"new": jnp.zeros(3)})
        with pytest.raises(CheckpointMismatchError, match=r"new: nothing in the check"):
            checkpointer.restore(more)
        filled = checkpointer.restore(shapes)
        filled = filled._replace(params=filled.params | {"new": jnp.zeros(3)})
    assert jax.tree.structure(filled) == jax.tree.structure(more)


def test_parameters_alone_are_read_without_the_rest(tmp_path):
    """Whatever optimizer has its arrays beside them."""
    state, _ = toy.make_run()
    later = state._replace(params=jax.tree.map(lambda x: x + 1, state.params))
    shapes = jax.eval_shape(lambda: state.params)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state)
        checkpointer.save(2, later)
        checkpointer.wait()
        assert_same_bits(checkpointer.restore_params(shapes), later.params)
        assert_same_bits(checkpointer.restore_params(shapes, step=1), state.params)
        more = shapes | {"new": jnp.zeros(3)}
        with pytest.raises(CheckpointMismatchError, match=r"new: nothing in the check"):
            checkpointer.restore_params(more)
        with pytest.raises(FileNotFoundError, match="step 3"):
            checkpointer.restore_params(shapes, step=3)
    with Checkpointer(tmp_path / "bare") as checkpointer:
        checkpointer.save(1, state.params)
        checkpointer.wait()
        with pytest.raises(CheckpointMismatchError, match="unlike those of the params"):
            checkpointer.restore_params(shapes)


def test_what_is_named_is_read_and_nothing_else(tmp_path):
    state, _ = toy.make_run()
    named = {"params": {"second": state.params["second"]}, "step": state.step}
    shapes = jax.eval_shape(lambda: named)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state)
        checkpointer.wait()
        assert_same_bits(checkpointer.restore_part(shapes), named)
        other = {"params": {"second": {"kernel": jnp.zeros((5, 6)), "b": jnp.zeros(7)}}}
        with pytest.raises(CheckpointMismatchError) as caught:
            checkpointer.restore_part(other)
    assert str(caught.value).splitlines()[1:] == [
        "  params.second.b: nothing in the checkpoint, float32[7] expected",
        "  params.second.kernel: float32[5,7] in the checkpoint, float32[5,6] expected",
    ]


def test_a_config_is_filed_and_compared(tmp_path):
    """Where a run goes on may be another place; what it is may not."""
    state = {"a": jnp.arange(3.0)}
    config = {"width": 64, "betas": (0.9, 0.99), "mesh": "data=8", "data": "a.txt"}
    with Checkpointer(tmp_path, config=config) as checkpointer:
        checkpointer.save(1, state)
    with Checkpointer(tmp_path, config=config | {"mesh": "data=1"}) as checkpointer:
        assert_same_bits(checkpointer.restore(state), state)
    other = {"width": 32, "betas": [0.9, 0.98], "data": "a.txt", "seed": 1}
    with (
        Checkpointer(tmp_path, config=other) as checkpointer,
        pytest.raises(CheckpointMismatchError, match="config: got 3 fields") as caught,
    ):
        checkpointer.restore(state)
    assert str(caught.value).splitlines()[1:] == [
        "  betas: [0.9, 0.99] in the checkpoint, [0.9, 0.98] now",
        "  seed: None in the checkpoint, 1 now",
        "  width: 64 in the checkpoint, 32 now",
    ]


def _lose_arrays(step):
    for folder in list(step.rglob("d")):
        shutil.rmtree(folder)


def _lose_all(step):
    shutil.rmtree(step)
    step.mkdir()


def _lose_sums_and_arrays(step):
    # As in a step that was written before there were sums.
    (step / "state/CHECKSUMS").unlink()
    _lose_arrays(step)


def _arrays(step):
    """The file that has the numbers, and what is in it."""
    files = [file for file in step.rglob("d/*") if NUMBERS in file.read_bytes()]
    return files[0], bytearray(files[0].read_bytes())


def _cut(step):
    file, content = _arrays(step)
    file.write_bytes(content[:-1])


def _flip(step):
    # One bit of one number, which is a number still.
    file, content = _arrays(step)
    content[content.index(NUMBERS)] ^= 1
    file.write_bytes(content)


# Of these zstd can save nothing: the file holds them as they are.
NOISE = np.random.default_rng(0).integers(1 << 32, size=50, dtype=np.uint32)
NUMBERS = NOISE[7:].tobytes()


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (_lose_arrays, "d/.* is gone, was .*"),
        (_lose_sums_and_arrays, "NOT_FOUND: .*"),
        (_lose_all, ".*state.*"),
        (_cut, r"d/\w+ is \d+ bytes of CRC-32 \w+, was \d+ bytes of CRC-32 \w+"),
        (_flip, r"d/\w+ is \d+ bytes of CRC-32 \w+, was \d+ bytes of CRC-32 \w+"),
        (lambda step: (step / "state/_METADATA").unlink(), "_METADATA is gone, was .*"),
        (lambda step: (step / "state/CHECKSUMS").write_text("{"), "CHECKSUMS is no .*"),
    ],
    ids=["arrays", "older", "all", "cut", "flipped", "names", "sums"],
)
def test_a_damaged_step_is_named_and_what_to_do(tmp_path, damage, cause):
    state = {"a": jnp.asarray(NOISE)}
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(10, state)
        checkpointer.save(20, state)
    damage(tmp_path / "00000020")
    said = (
        rf"(?s)step 20 in {tmp_path} can't be read \((\S+: )?{cause}\); expected a "
        rf"complete checkpoint; remove {tmp_path}/00000020 to go on from step 10"
    )
    with Checkpointer(tmp_path) as checkpointer:
        for restore in (checkpointer.restore, checkpointer.restore_part):
            with pytest.raises(CheckpointReadError, match=said):
                restore(state)
        assert_same_bits(checkpointer.restore(state, step=10), state)


def test_a_sharding_that_does_not_fit_is_no_damage(tmp_path):
    like = jax.ShapeDtypeStruct((3,), jnp.float32, sharding=over(2, "data"))
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(0, {"a": jnp.arange(3.0)})
        checkpointer.wait()
        with pytest.raises(ValueError, match="divi"):
            checkpointer.restore({"a": like})
