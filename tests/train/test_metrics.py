"""metrics.jsonl and TensorBoard: what is written, and what a resumed run drops."""

import json
import struct
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.train import MetricLogger, read_metrics


def quiet(directory, name="softmax"):
    return MetricLogger(directory, name=name, tensorboard=False)


def strict(text):
    """Parsed lines of JSON that knows no NaN."""

    def refuse(constant):
        raise AssertionError(constant)

    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def test_one_object_a_line(tmp_path):
    with quiet(tmp_path / "deep" / "er") as logger:
        logger.log(1, {"loss": jnp.float32(2.5), "skipped": False, "note": "é"})
        logger.log(2, {"loss": np.float64(2.25), "rate": None, "n": np.int32(3)})
        logger.log(3, {"loss": jnp.bfloat16(1.5), "flag": np.bool_(True)})
    assert strict((tmp_path / "deep/er/metrics.jsonl").read_text("utf-8")) == [
        {"name": "softmax", "step": 1, "loss": 2.5, "skipped": False, "note": "é"},
        {"name": "softmax", "step": 2, "loss": 2.25, "rate": None, "n": 3},
        {"name": "softmax", "step": 3, "loss": 1.5, "flag": True},
    ]


def test_what_is_not_finite_is_null_and_said_so(tmp_path):
    logger = quiet(tmp_path)
    logger.log(7, {"loss": jnp.nan, "norm": np.float32(np.inf), "low": -np.inf, "x": 1})
    assert strict(logger.path.read_text()) == [
        {
            "name": "softmax",
            "step": 7,
            "loss": None,
            "norm": None,
            "low": None,
            "x": 1,
            "nonfinite": {"loss": "nan", "norm": "inf", "low": "-inf"},
        }
    ]


def test_resume_drops_later_lines_of_this_name_and_half_a_line(tmp_path):
    for name in ("softmax", "linear"):
        logger = quiet(tmp_path, name)
        for step in (1, 2, 3, 4):
            logger.log(step, {"loss": step / 2})
    whole = logger.path.read_text()
    logger.path.write_text(whole + '{"name": "linear", "st')
    logger.resume(2)
    logger.log(3, {"loss": 9.0})
    assert [(e["name"], e["step"]) for e in strict(logger.path.read_text())] == [
        *[("softmax", step) for step in (1, 2, 3, 4)],
        *[("linear", step) for step in (1, 2, 3)],
    ]
    assert read_metrics(tmp_path, name="linear")[-1]["loss"] == 9.0
    assert len(read_metrics(logger.path)) == 7
    quiet(tmp_path, "linear").resume(0)
    assert {e["name"] for e in read_metrics(tmp_path)} == {"softmax"}
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_half_a_line_is_dropped_without_resume_too(tmp_path):
    quiet(tmp_path).log(1, {"loss": 1.0})
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"name": "é')
    assert len(read_metrics(path)) == 1
    quiet(tmp_path).log(2, {"loss": 2.0})
    assert [entry["step"] for entry in strict(path.read_text())] == [1, 2]


def test_a_damaged_line_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"name": "a", "step": 1}\nnonsense\n{"name": "a", "step": 2}\n')
    with pytest.raises(ValueError, match=r"line 2: got 'nonsense'"):
        quiet(tmp_path).resume(1)
    with pytest.raises(ValueError, match="line 2"):
        read_metrics(path)


def test_bad_arguments_are_named(tmp_path):
    with pytest.raises(ValueError, match="name: got ''"):
        quiet(tmp_path, "")
    logger = quiet(tmp_path)
    with pytest.raises(ValueError, match="values: got 'step'"):
        logger.log(1, {"step": 2})
    with pytest.raises(
        TypeError, match=r"values\['loss'\]: got ndarray of shape \(2,\)"
    ):
        logger.log(1, {"loss": np.ones(2)})
    with pytest.raises(TypeError, match=r"values\['loss'\]: got list"):
        logger.log(1, {"loss": [1.0, 2.0]})
    assert not logger.path.exists()


def events(directory):
    """Scalars as (tag, step, value), and the steps at which a session starts."""
    from tensorboardX.proto.event_pb2 import Event

    scalars, starts = [], []
    for path in sorted(directory.glob("events*"), key=lambda p: p.stat().st_mtime_ns):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            scalars += [
                (value.tag, event.step, value.simple_value)
                for value in event.summary.value
            ]
            if event.HasField("session_log"):
                starts.append(event.step)
    return scalars, starts


def test_tensorboard_events_lie_beside(tmp_path):
    with MetricLogger(tmp_path, name="linear") as logger:
        logger.log(1, {"loss": 0.5, "rate": None, "note": "x"})
        logger.log(2, {"loss": jnp.nan, "accuracy": 0.25})
    scalars, starts = events(tmp_path / "tensorboard" / "linear")
    assert scalars == [("loss", 1, 0.5), ("accuracy", 2, 0.25)]
    assert starts == []


def test_tensorboard_forgets_what_is_done_again(tmp_path):
    with MetricLogger(tmp_path, name="linear") as logger:
        logger.log(1, {"loss": 0.5})
        logger.log(2, {"loss": 0.25})
    with MetricLogger(tmp_path, name="linear") as logger:
        logger.resume(1)
        logger.log(2, {"loss": 0.125})
    scalars, starts = events(tmp_path / "tensorboard" / "linear")
    assert ("loss", 2, 0.125) in scalars
    assert starts == [2]


def test_tensorboard_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"attn_jax\[experiments\]"):
        MetricLogger(tmp_path, name="linear")


def test_importing_train_is_light():
    heavy = ["orbax", "tensorboardX", "rich", "matplotlib", "tensorflow_datasets"]
    code = (
        f"import sys, attn_jax.train; print([m for m in {heavy} if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
