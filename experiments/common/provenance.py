"""Where numbers come from: command, versions, device, commit."""

import importlib.metadata
import os
import platform
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

import attn_jax

ORIGIN = ("command", "commit", "versions", "device")
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def origin(program: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Where the numbers are from that this command computes, to be kept with them."""
    return {
        "command": command(program, arguments),
        "commit": commit(),
        "versions": versions(),
        "device": device(),
    }


def joined(runs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Where the numbers of several runs are from: what differs, one after the other.

    >>> runs = [{"commit": "a"}, {"commit": "b"}, {"commit": "a"}]
    >>> joined(runs)["commit"]
    'a; b'
    """
    # A run that doesn't say was trained before runs recorded it.
    here = {"command": "unknown", "commit": None}
    here |= {"versions": versions(), "device": device()}
    known = [{**here, **run} for run in runs]
    return {name: _merged([run[name] for run in known]) for name in here}


def without_origin(run: Mapping[str, Any]) -> dict[str, Any]:
    """What a run found."""
    return {name: value for name, value in run.items() if name not in ORIGIN}


def _merged(values: Sequence[Any]) -> Any:
    """One value where all are equal; of mappings, entry by entry."""
    if isinstance(values[0], Mapping):
        return {
            name: _merged([each.get(name) for each in values]) for name in values[0]
        }
    different = list(dict.fromkeys(values))
    if len(different) == 1:
        return different[0]
    return "; ".join(str(value or "unknown") for value in different)


def command(program: str, arguments: Sequence[str]) -> str:
    """The command line that does it again, with paths relative to here."""
    return shlex.join([*program.split(), *(relative(word) for word in arguments)])


def relative(path: str) -> str:
    """An absolute path as one from here; other words as they are."""
    return os.path.relpath(path) if os.path.isabs(path) else path


def versions() -> dict[str, str]:
    """Of Python and of the packages that the numbers depend on."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    ours = {"python": platform.python_version(), "attn_jax": attn_jax.__version__}
    return {**ours, **found}


def device() -> dict[str, Any]:
    """What computed."""
    first = jax.devices()[0]
    return {
        "platform": first.platform,
        "kind": _processor() if first.platform == "cpu" else first.device_kind,
        "count": jax.device_count(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
    }


def _processor() -> str:
    """The name of the processor, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2] for line in lines if line.startswith("model name"))
    return next(names, platform.machine()).strip()


def sentence(results: Mapping[str, Any]) -> str:
    """Where the numbers of a results.json are from."""
    device = results["device"]
    return (
        f"`{results['command']}` at commit {results['commit'] or 'unknown'}, "
        f"{device['kind']} ({device['cores']} cores), jax "
        f"{results['versions']['jax']}."
    )


def commit() -> str | None:
    """The commit of the code, with -modified where the code differs from it."""
    head = _git("rev-parse", "--short", "HEAD")
    code = ("attn_jax", "experiments", "benchmarks/*.py")
    changed = _git("status", "--porcelain", "--", *code)
    return head and (f"{head}-modified" if changed else head)


def _git(*arguments: str) -> str | None:
    """What git says about this clone; None where there is no git or no clone."""
    here = Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=here, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
