"""Which of several hosts this is: as it is passed, or as the environment says."""

import os
from collections.abc import Mapping
from typing import Any

from attn_jax.train._checks import fail, integer

# What is read where nothing is passed.
HOSTS, HOST = "ATTN_JAX_HOSTS", "ATTN_JAX_HOST"
COORDINATOR, TIMEOUT = "ATTN_JAX_COORDINATOR", "ATTN_JAX_TIMEOUT"
AUTO = "auto"


def options_of(
    hosts: int | str | None,
    host: int | None,
    coordinator: str | None,
    timeout: float | int | None,
) -> dict[str, Any] | None:
    """What `jax.distributed` and `joined` need to know; None where one host is all.

    Each argument is what `joined` was passed; None is what the environment says.
    """
    environment = os.environ
    hosts = environment.get(HOSTS) if hosts is None else hosts
    if hosts is None:
        if host is not None or coordinator is not None:
            expected, remedy = "how many, or 'auto'", f"pass hosts, or set {HOSTS}"
            fail("hosts", "none with host or coordinator", expected, remedy)
        return None
    seconds = _number(TIMEOUT, environment, 300) if timeout is None else timeout
    if not seconds >= 2:
        fail("timeout", f"{seconds}", "at least 2 seconds", "pass more")
    if hosts == AUTO:
        return {"timeout": float(seconds)}
    if isinstance(hosts, str):
        hosts = _number("hosts", {"hosts": hosts}, 1)
    count = integer("hosts", hosts, minimum=1)
    if count == 1:
        return None
    host = _number(HOST, environment, -1) if host is None else host
    if not 0 <= host < count:
        got = "none" if host == -1 else host
        expected, remedy = f"0 to {count - 1}", f"pass host, or set {HOST}"
        fail("host", f"{got} of {count} hosts", expected, remedy)
    coordinator = coordinator or environment.get(COORDINATOR)
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
        "process_id": integer("host", host, minimum=0),
    }


def _number(name: str, environment: Mapping[str, str], default: int) -> int:
    """A number of the environment."""
    text = environment.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        expected = "a whole number" + ", or 'auto'" * (name == "hosts")
        fail(name, repr(text), expected, "pass one, or set it in the environment")
