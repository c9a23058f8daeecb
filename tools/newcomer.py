"""Walks through docs/quick_start.md in a fresh clone, and writes down how long it took.

    python tools/newcomer.py

Only the standard library is used; each step has what the steps before it left, and
nothing else: no environment, no cache of compiled programs.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "quick_start.md"
TIMES = ROOT / "docs" / "results" / "quick_start.json"
TABLE = re.compile(r"(?<=tools/newcomer.py` -->\n).*?(?=<!-- end of times -->)", re.S)

PYTHON = ".venv/bin/python"
STEPS = {
    "the demo: install, train nine models": [["make", "demo"]],
    "its page": [[PYTHON, "-m", "experiments.report", "runs/compare/demo"]],
    "the tour: install Jupyter, run all cells": [
        ["make", "environment-notebooks"],
        [PYTHON, "-m", "jupyter", "execute", "notebooks/tour.ipynb"],
    ],
    "a function on own data": [[PYTHON, "own.py"]],
}


def walk(clone: Path) -> dict[str, float]:
    """Seconds of each step; the first that fails ends the walk."""
    seconds = {"clone": timed([["git", "clone", "-q", str(ROOT), str(clone)]], ROOT)}
    page = (clone / PAGE.relative_to(ROOT)).read_text("utf-8")
    snippet = re.search(r"^```python\n(.*?)^```", page, re.S | re.M)
    assert snippet is not None
    (clone / "own.py").write_text(snippet[1], encoding="utf-8")
    for name, commands in STEPS.items():
        seconds[name] = timed(commands, clone)
    return seconds


def timed(commands: list[list[str]], folder: Path) -> float:
    """Seconds of commands, which have to end well."""
    environment = os.environ | {"PIP_NO_CACHE_DIR": "1"}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    began = time.perf_counter()
    for command in commands:
        print("$", *command, flush=True)
        subprocess.run(command, cwd=folder, env=environment, check=True)
    return round(time.perf_counter() - began, 1)


def table(times: dict[str, float]) -> str:
    """As Markdown, with the sum."""
    rows = [*times.items(), ("all of it", sum(times.values()))]
    lines = [f"| {name} | {_minutes(seconds)} |" for name, seconds in rows]
    return "\n".join(["| step | minutes:seconds |", "|:--|--:|", *lines]) + "\n"


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def main() -> None:
    """Walks, and writes the numbers and the page."""
    with tempfile.TemporaryDirectory() as folder:
        times = walk(Path(folder) / "attn_jax")
    commit = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(commit, cwd=ROOT, capture_output=True, text=True, check=True)
    found = {
        "command": "python tools/newcomer.py",
        "commit": done.stdout.strip(),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "seconds": times,
    }
    TIMES.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(TABLE.sub(table(times), PAGE.read_text("utf-8")), encoding="utf-8")
    print(table(times))


if __name__ == "__main__":
    main()
