"""Runs tests/smoke.py from the built wheel on every other supported interpreter.

The wheel is built once and installed, with runtime dependencies only, in `.venv-3.X`
for each version that runs on this machine, except the one that runs this file. The
script then runs from an empty folder, so that a file missing from the wheel or a
dependency missing from pyproject.toml is noticed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import interpreters
from environment import (
    CONSTRAINTS,
    ROOT,
    SetupError,
    create,
    fingerprint,
    install,
    python_of,
    run,
    up_to_date,
)


def build_wheel(folder: Path) -> Path:
    """Builds the wheel with the pinned backend of the environment running this."""
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder])
    (wheel,) = folder.glob("*.whl")
    return wheel


def prepare(version: str, base: Path, wheel: Path) -> Path:
    """Returns the interpreter of `.venv-<version>` with the wheel installed."""
    venv = ROOT / f".venv-{version}"
    stamp = venv / ".installed-wheel"
    wanted = fingerprint(CONSTRAINTS, wheel)
    create(venv, base)
    if not up_to_date(stamp, wanted):
        print(f"Installing {wheel.name} into {venv.name}", flush=True)
        install(venv, base, [wheel])
        # The version number alone doesn't tell pip that the contents have changed.
        install(venv, base, ["--no-deps", "--force-reinstall", wheel])
        stamp.write_text(wanted + "\n")
    return python_of(venv)


def main() -> int:
    """Returns the exit status: 1 where an interpreter failed."""
    own = ".".join(map(str, sys.version_info[:2]))
    found = interpreters.find()
    others = {version: path for version, path in found.items() if version != own}
    print(f"smoke: this is Python {own}; others that run here: ", end="")
    print(", ".join(f"{v} ({p})" for v, p in others.items()) or "none", flush=True)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder) / "wheel")
        empty = Path(folder) / "empty"
        empty.mkdir()
        for version, path in others.items():
            start = time.monotonic()
            try:
                python = prepare(version, path, wheel)
            except SetupError as error:
                print(f"smoke: Python {version} could not be set up: {error}")
                failed.append(version)
                continue
            # -I keeps the clone and the user's own packages off the path.
            command = [python, "-I", ROOT / "tests" / "smoke.py"]
            code = subprocess.run(command, cwd=empty).returncode
            outcome = "ok" if code == 0 else f"FAILED (exit status {code})"
            seconds = time.monotonic() - start
            print(f"smoke: Python {version} {outcome} in {seconds:.0f} s", flush=True)
            if code != 0:
                failed.append(version)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
