"""Writes constraints.txt from fresh installs on every supported interpreter.

For each version it makes a temporary environment, installs the package with the
extras that run on any machine, and reads back what pip chose. One line serves all
versions where they agree; markers tell them apart where they don't.

    .venv/bin/python tools/pin.py
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import interpreters
from environment import CONSTRAINTS, ROOT, create, pip_for, run

EXTRAS = "data,experiments,notebooks,test"
HEADER = """\
# Versions of everything that the commands of the Makefile install.
# Written by tools/pin.py; change pyproject.toml and run it again.
"""


def resolve(base: Path, venv: Path) -> dict[str, str]:
    """Installs without constraints and returns each package's version."""
    create(venv, base)
    pip = pip_for(venv, base)
    run([*pip, "install", "--quiet", "hatchling"])
    run([*pip, "install", "--quiet", "--no-build-isolation", f"{ROOT}[{EXTRAS}]"])
    frozen = subprocess.run(
        [*pip, "freeze", "--exclude", "attn_jax"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    pairs = (line.split("==") for line in frozen.splitlines())
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def merge(resolved: dict[str, dict[str, str]]) -> str:
    """One constraints file of several resolutions, keyed by Python version."""
    lines = []
    for name in sorted({name for pins in resolved.values() for name in pins}):
        pythons = defaultdict(list)
        for python, pins in resolved.items():
            if name in pins:
                pythons[pins[name]].append(python)
        for version, where in pythons.items():
            lines.append(f"{name}=={version}{marker(where, list(resolved))}")
    return HEADER + "".join(line + "\n" for line in lines)


def marker(where: list[str], supported: list[str]) -> str:
    """The environment marker that holds on exactly these of the supported Pythons."""
    if where == supported:
        return ""
    if where == supported[: len(where)]:
        following = supported[len(where)]
        return f' ; python_version < "{following}"'
    if where == supported[-len(where) :]:
        return f' ; python_version >= "{where[0]}"'
    return " ; " + " or ".join(f'python_version == "{python}"' for python in where)


def main() -> None:
    """Resolves on every interpreter and writes the file."""
    found = interpreters.find()
    missing = [v for v in interpreters.SUPPORTED if v not in found]
    if missing:
        sys.exit(f"Versions are pinned on every Python; not here: {', '.join(missing)}")
    with tempfile.TemporaryDirectory() as folder:
        resolved = {
            version: resolve(base, Path(folder) / version)
            for version, base in found.items()
        }
    CONSTRAINTS.write_text(merge(resolved))
    print(f"Wrote {CONSTRAINTS}")


if __name__ == "__main__":
    main()
