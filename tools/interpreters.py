"""Which of the supported Python interpreters run on this machine.

`python tools/interpreters.py` prints one line for each version: the version and the
path of its interpreter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from environment import version_of

SUPPORTED = ("3.11", "3.12", "3.13")


def pyenv_root() -> Path:
    """The folder in which pyenv keeps its versions, whether or not it is there."""
    if "PYENV_ROOT" in os.environ:
        return Path(os.environ["PYENV_ROOT"])
    if shutil.which("pyenv"):
        done = subprocess.run(["pyenv", "root"], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip():
            return Path(done.stdout.strip())
    return Path.home() / ".pyenv"


def candidates(version: str) -> Iterator[Path]:
    """Paths that may be a Python of this version: those on PATH, then pyenv's.

    A shim of pyenv may lie on PATH and refuse to run because its version isn't
    selected, so its versions are looked at as well, the newest patch first.
    """
    for folder in os.get_exec_path():
        path = Path(folder) / f"python{version}"
        if path.is_file() and os.access(path, os.X_OK):
            yield path
    installed = [
        folder
        for folder in (pyenv_root() / "versions").glob(f"{version}.*")
        if folder.name.rpartition(".")[2].isdigit()
    ]
    for folder in sorted(
        installed, key=lambda f: int(f.name.rpartition(".")[2]), reverse=True
    ):
        yield folder / "bin" / "python"


def find() -> dict[str, Path]:
    """Maps each supported version that runs here to its interpreter."""
    found = {}
    for version in SUPPORTED:
        for path in candidates(version):
            if version_of(path) == version:
                found[version] = path
                break
    return found


if __name__ == "__main__":
    for found_version, interpreter in find().items():
        print(found_version, interpreter)
