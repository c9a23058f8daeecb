"""Memory as XLA allots it and as the operating system sees it."""

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATUS, REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def temporary_bytes(compiled: Any) -> int | None:
    """Temporary arrays of a compiled JAX function, by XLA's account."""
    stats = compiled.memory_analysis()
    return None if stats is None else stats.temp_size_in_bytes


def growth(call: Callable[[], Any]) -> int | None:
    """How far a call drives the resident memory of this process above where it was.

    What the call returns counts, unlike in `temporary_bytes`. None where the system
    has no such counter.
    """
    if not REFS.exists():
        return None
    gc.collect()
    _give_back()
    REFS.write_text("5")
    before = _field("VmRSS")
    call()
    return max(0, _field("VmHWM") - before)


def cores() -> int:
    """Processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def of_fresh_process(module: str, *arguments: str) -> dict[str, Any]:
    """What `python -m module ...` prints as JSON, in a process of its own."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def peak_of_this_process() -> int | None:
    """The most memory that this process ever had resident."""
    return _field("VmHWM") if STATUS.exists() else None


def _field(name: str) -> int:
    lines = STATUS.read_text().splitlines()
    return next(int(x.split()[1]) * 1024 for x in lines if x.startswith(f"{name}:"))


def _give_back() -> None:
    """Hand freed memory to the system, so that it doesn't serve the next call."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
