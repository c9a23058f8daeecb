"""Which of several hosts this is: as it is passed, or as the environment says."""

import math
import os
from numbers import Real
from typing import Any, TypeVar

from attn_jax.train._checks import fail, integer

# What is read where nothing is passed.
HOSTS, HOST = "ATTN_JAX_HOSTS", "ATTN_JAX_HOST"
COORDINATOR, TIMEOUT = "ATTN_JAX_COORDINATOR", "ATTN_JAX_TIMEOUT"
AUTO = "auto"

Number = TypeVar("Number", int, float)


def options_of(
    hosts: int | str | None,
    host: int | None,
    coordinator: str | None,
    timeout: float | int | None,
) -> dict[str, Any] | None:
    """What `jax.distributed` and `joined` need to know; None where one host is all.

    Each argument is what `joined` was passed; None is what the environment says.
    """
    hosts = os.environ.get(HOSTS) if hosts is None else hosts
    if hosts is None:
        if host is not None or coordinator is not None:
            expected, remedy = "how many, or 'auto'", f"pass hosts, or set {HOSTS}"
            fail("hosts", "none with host or coordinator", expected, remedy)
        return None
    seconds = timeout
    if seconds is None:
        seconds = _number(TIMEOUT, os.environ.get(TIMEOUT, "300"), float)
    if not isinstance(seconds, Real) or not 2 <= seconds < math.inf:
        # JAX counts the silence of a host in whole seconds.
        expected = "a finite number of seconds, 2 or more"
        remedy = f"pass 300, or set {TIMEOUT}"
        fail("timeout", repr(seconds), expected, remedy)
    if hosts == AUTO:
        return {"timeout": float(seconds)}
    if isinstance(hosts, str):
        hosts = _number("hosts", hosts, int)
    count = integer("hosts", hosts, minimum=1)
    if count == 1:
        return None
    if host is None and HOST in os.environ:
        host = _number(HOST, os.environ[HOST], int)
    if host is None or integer("host", host, minimum=0) >= count:
        got = "none" if host is None else host
        expected, remedy = f"0 to {count - 1}", f"pass host, or set {HOST}"
        fail("host", f"{got} of {count} hosts", expected, remedy)
    coordinator = coordinator or os.environ.get(COORDINATOR)
    if not coordinator or not coordinator.rpartition(":")[2].isdigit():
        fail(
            "coordinator",
            repr(coordinator),
            "the address of host 0 with a port, such as 10.0.0.1:8476",
            f"pass coordinator, or set {COORDINATOR}, to the same on all hosts",
        )
    return {
        "timeout": float(seconds),
        "coordinator_address": coordinator,
        "num_processes": count,
        "process_id": host,
    }


def _number(name: str, text: str, kind: type[Number]) -> Number:
    """A number that was written, in the environment as a rule."""
    try:
        return kind(text)
    except ValueError:
        expected = "a whole number" if kind is int else "a number of seconds"
        expected += ", or 'auto'" * (name == "hosts")
        fail(name, repr(text), expected, "pass one, or set it in the environment")
