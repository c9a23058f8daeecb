"""The program in docs/training.md runs as it stands, and again."""

import re
from pathlib import Path

from attn_jax.train import read_metrics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training.md"


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = "\n".join(
        re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    )
    names = {}
    exec(compile(program, str(PAGE), "exec"), names)
    lines = read_metrics("runs/shift")
    assert [line["step"] for line in lines] == [10, 20, 30, 40, 50, 60]
    assert lines[-1]["validation_loss"] < lines[0]["loss"] / 2
    assert {"kernel", "bias"} <= set(names["averaged"]["layers"][1])
