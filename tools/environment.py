"""Virtual environments for the commands of the Makefile.

`python tools/environment.py .venv test` leaves `.venv` with the package installed in
place and the extra `test`, at the versions of constraints.txt. A stamp inside the
environment records what it was made from, so the second call installs nothing. Only
the standard library is used: this is what runs before anything is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"


class SetupError(Exception):
    """Something a person has to put right; the message says what."""


def python_of(venv: Path) -> Path:
    """The interpreter of an environment."""
    return venv / "bin" / "python"


def version_of(python: Path) -> str | None:
    """The version of an interpreter as "3.12", or None where it doesn't run."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def run(command: Sequence[str | Path]) -> None:
    """Runs a command and shows its output; a failure ends the set-up."""
    if subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode:
        raise SetupError(f"this command failed: {' '.join(map(str, command))}")


def succeeds(command: Sequence[str | Path]) -> bool:
    """Whether a command runs and ends with success; its output is dropped."""
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def pip_for(venv: Path, base: Path) -> list[str | Path]:
    """The pip that installs into `venv`.

    Some systems ship Python without ensurepip, so that an environment comes without
    pip; there the pip of the base interpreter installs into it from outside.
    """
    inside = [python_of(venv), "-m", "pip"]
    outside = [base, "-m", "pip", "--python", python_of(venv)]
    for pip in (inside, outside):
        if succeeds([*pip, "--version"]):
            return pip
    raise SetupError(
        f"{base} has neither ensurepip nor pip (22.3 or newer): install pip for this "
        "Python (on Debian and Ubuntu the package python3-venv or python3-pip)."
    )


def create(venv: Path, base: Path) -> None:
    """Makes `venv` with the interpreter `base`, unless a working one is there."""
    if version_of(python_of(venv)) is None:
        print(f"Creating {venv} with Python {version_of(base)} ({base})", flush=True)
        has_ensurepip = succeeds([base, "-c", "import ensurepip"])
        options = [] if has_ensurepip else ["--without-pip"]
        run([base, "-m", "venv", "--clear", *options, venv])


def fingerprint(*parts: Path | str) -> str:
    """A digest of what an environment is made from: files by content, else by text."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part.encode()
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def up_to_date(stamp: Path, wanted: str) -> bool:
    """Whether an earlier run left the fingerprint that is wanted."""
    return stamp.is_file() and stamp.read_text().strip() == wanted


def install(
    venv: Path, base: Path, arguments: Sequence[str | Path], pinned: bool = True
) -> None:
    """Installs into `venv`, at the pinned versions unless told otherwise."""
    quiet = [] if sys.stdout.isatty() else ["--quiet", "--quiet"]
    pins = ["--constraint", CONSTRAINTS] if pinned else []
    options = ["--disable-pip-version-check", *quiet, *pins]
    run([*pip_for(venv, base), "install", *options, *arguments])


def set_up(venv: Path, extra: str, base: Path, pinned: bool) -> None:
    """Leaves `venv` with the package in place and one of its extras.

    The path of the clone is a part of the stamp: an installation in place points to
    it, so a clone that was moved installs again.
    """
    stamp = venv / f".installed-{extra}"
    wanted = fingerprint(ROOT / "pyproject.toml", CONSTRAINTS, str(ROOT))
    if version_of(python_of(venv)) and up_to_date(stamp, wanted):
        return
    create(venv, base)
    print(f"Installing attn_jax[{extra}] into {venv} (some minutes)", flush=True)
    # The build backend comes first and pinned; nothing is built with another one.
    install(venv, base, ["hatchling"], pinned)
    package = ["--no-build-isolation", "--editable", f".[{extra}]"]
    install(venv, base, package, pinned)
    stamp.write_text(wanted + "\n")


def main() -> None:
    """Reads the command line and sets up the environment it names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("venv", help="folder of the environment")
    parser.add_argument("extra", help="extra of pyproject.toml to install")
    parser.add_argument(
        "--exact",
        action="store_true",
        help="fail where the environment has another Python than the one running this",
    )
    parser.add_argument(
        "--unpinned",
        action="store_true",
        help="leave the versions of constraints.txt aside",
    )
    arguments = parser.parse_args()
    venv = ROOT / arguments.venv
    # An activated environment must not be the parent of the one that replaces it.
    base = Path(getattr(sys, "_base_executable", sys.executable))
    present, asked = version_of(python_of(venv)), version_of(base)
    if arguments.exact and present and present != asked:
        raise SetupError(
            f"{arguments.venv} holds Python {present}, but PYTHON asks for {asked}: "
            f"remove it first (rm -r {arguments.venv}), or leave PYTHON= out."
        )
    if not (importlib.util.find_spec("venv")):
        raise SetupError(f"{base} has no module venv: install python3-venv.")
    set_up(venv, arguments.extra, base, pinned=not arguments.unpinned)


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"Set-up stopped: {error}")
