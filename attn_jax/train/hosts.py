"""Several hosts as one program: joined, met at barriers, and missed when they are lost.

A host is a process of JAX: one a machine on TPUs, one a machine or one a device on
GPUs. All of them run the same program on the same files.
"""

import contextlib
import itertools
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any, NoReturn

import jax

from attn_jax.train._checks import fail, integer
from attn_jax.train._place import AUTO as AUTO
from attn_jax.train._place import options_of

_AT, _PULSE, _SEEKS = "attn_jax/at/", "attn_jax/pulse/", "attn_jax/seeks/"
_STOP = " and stops"
_seconds = 300.0


class HostLostError(RuntimeError):
    """Another host is dead, stuck, or somewhere else in the program."""


@contextlib.contextmanager
def joined(
    *,
    hosts: int | str | None = None,
    host: int | None = None,
    coordinator: str | None = None,
    timeout: float | int | None = None,
) -> Iterator[None]:
    """Be one of several hosts inside a `with` block; does nothing where there is one.

    What is None is read from the environment: ATTN_JAX_HOSTS, ATTN_JAX_HOST,
    ATTN_JAX_COORDINATOR, ATTN_JAX_TIMEOUT. It has to come before JAX is asked for its
    devices.

    An error that leaves the block ends the process at once, after its traceback: at an
    orderly end hosts wait for each other, and one of them will not come.

    Args:
      hosts: how many there are; "auto" lets JAX find the others, as it can on Cloud
        TPU, under SLURM, Open MPI and Kubernetes. None, in the environment too, is one.
      host: the number of this one, from 0.
      coordinator: address and port of host 0, "10.0.0.1:8476".
      timeout: seconds, 2 or more (300), within which the others end after a host has
        died or stands still. Hosts that others have met wait half of it for the rest.

    Raises:
      ValueError, TypeError: numbers that do not fit.
      HostLostError: not all hosts came in time.
    """
    global _seconds
    options = options_of(hosts, host, coordinator, timeout)
    if options is None:
        yield
        return
    _seconds = options.pop("timeout")
    _initialize(options)
    threading.Thread(target=_beat, args=(_client(),), daemon=True).start()
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        jax.distributed.shutdown()
        raise
    except BaseException:
        traceback.print_exc()
        leave(1)
    jax.distributed.shutdown()


def leave(code: int) -> None:
    """End this process now if it is one of several; the others will miss it."""
    if jax.distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def is_writer() -> bool:
    """Whether this host writes what is written once: lines, results, progress."""
    # Who is alone is not made to start a backend.
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def rows(batch_size: int) -> range:
    """The rows of a global batch that this host makes, an equal slice in host order.

    Raises:
      ValueError: hosts do not divide them.
    """
    size = integer("batch_size", batch_size, minimum=1)
    count = jax.process_count()
    if size % count:
        remedy = "pass a multiple of the number of hosts"
        fail("batch_size", f"{size} for {count} hosts", "equal slices", remedy)
    share = size // count
    return range(jax.process_index() * share, (jax.process_index() + 1) * share)


def meet(name: str, *, stop: bool = False) -> bool:
    """Wait until every host is here.

    Args:
      name: of this place in the program, with its step: hosts at two of them don't
        meet.
      stop: whether this host wants to stop here.

    Returns:
      Whether any of them does, the same on all hosts.

    Raises:
      HostLostError: not all came in time; it names those that didn't.
    """
    client = _client()
    if client is None:
        return stop
    client.key_value_set(
        f"{_AT}{jax.process_index()}", name + _STOP * stop, allow_overwrite=True
    )
    try:
        client.wait_at_barrier(f"attn_jax/{name}", int(_seconds * 500))
        places = _told(client, _AT)
    except jax.errors.JaxRuntimeError as error:
        _lost(name, client, error)
    return name + _STOP in places.values()


@contextlib.contextmanager
def watched(name: str) -> Iterator[None]:
    """Turns an error of what hosts compute together into one that names who is lost.

    If all hosts live still, the error is what it was.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        client = _client()
        if client is not None and (dead := _silent(client)):
            _lost(f"{name}, in a computation", client, error, dead)
        raise


def _client() -> Any:
    """What hosts talk through, None where there is one host."""
    from jax._src import distributed

    return distributed.global_state.client


def _told(client: Any, what: str) -> dict[int, str]:
    """What each host has said of itself last."""
    there = client.key_value_dir_get(what)
    return {int(key.rsplit("/", 1)[1]): value for key, value in there}


def _beat(client: Any) -> None:
    """Say again and again that this process lives, wherever its main thread waits."""
    for count in itertools.count():
        try:
            at = f"{_PULSE}{jax.process_index()}"
            client.key_value_set(at, str(count), allow_overwrite=True)
        except jax.errors.JaxRuntimeError:
            return  # Nobody listens any more.
        time.sleep(_seconds / 40)


def _silent(client: Any) -> list[int]:
    """The hosts that say nothing for a while: dead, or frozen.

    One that has left because it missed another is not among them.
    """
    try:
        seeks = f"{_SEEKS}{jax.process_index()}"
        client.key_value_set(seeks, "", allow_overwrite=True)
        before = _told(client, _PULSE)
        time.sleep(_seconds / 10)
        after, seek = _told(client, _PULSE), _told(client, _SEEKS)
    except jax.errors.JaxRuntimeError:
        return [0]  # Through which hosts talk.
    return [
        host
        for host in range(jax.process_count())
        if before.get(host) == after.get(host) and host not in seek
    ]


def _lost(
    name: str, client: Any, error: Exception, absent: list[int] | None = None
) -> NoReturn:
    """Say who is lost, and where it was last.

    absent: who is not here, known already to be silent; None is to be found out.
    """
    silent, places = absent, {}
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        places = {
            host: place.removesuffix(_STOP)
            for host, place in _told(client, _AT).items()
        }
    if silent is None:
        silent = _silent(client)
        every = range(jax.process_count())
        absent = [host for host in every if places.get(host) != name]
    # Who waits for the dead in a computation is not here either.
    lost = [host for host in absent or [] if host in silent] or absent or silent
    who = ", ".join(
        f"host {host} {'does not answer' if host in silent else 'is not there'} "
        f"(it was last at {places.get(host, 'an unknown place')})"
        for host in lost
    )
    raise HostLostError(
        f"{name}: {who or 'a host was late'}; expected all {jax.process_count()} hosts "
        f"within {_seconds / 2:g} s; look at what that host said last, then start all "
        "hosts again: the run goes on from its latest checkpoint"
    ) from error


def _initialize(options: dict[str, Any]) -> None:
    """Start JAX on several hosts, with signals left to the program."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if hasattr(jax.config, "jax_enable_preemption_service"):
        jax.config.update("jax_enable_preemption_service", False)
    seconds = max(1, int(_seconds))
    # JAX counts from the last heartbeat that it has looked at, which is some time ago.
    silence = max(1, int(0.75 * _seconds))
    try:
        jax.distributed.initialize(
            **options,
            initialization_timeout=seconds,
            heartbeat_timeout_seconds=silence,
            shutdown_timeout_seconds=seconds,
        )
    except jax.errors.JaxRuntimeError as error:
        raise HostLostError(
            f"hosts: got {error}; expected all of them within {seconds} s; see that "
            "each is started, with the same coordinator and a number of its own"
        ) from error
