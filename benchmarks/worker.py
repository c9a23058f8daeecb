"""A process of its own for PyTorch, whose threads and memory then stand alone.

In one process with JAX its calls took 10 to 20 % longer. The worker sleeps while others
have their turn, and reads the clock itself.
"""

import importlib
import multiprocessing
import traceback
from collections.abc import Callable
from typing import Any

from benchmarks import clock


class WorkerError(RuntimeError):
    """Something failed in the worker; the message is its traceback."""


class Worker:
    """Holds calls by name in another process, and times them there."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        # Held by the worker alone, so that its end is seen here.
        other.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join()

    def build(self, name: str, factory: str, *arguments: Any) -> Any:
        """Let `factory`, "module:function", make a call and what it says of it.

        The factory returns (call, facts); the facts come back, the call stays.
        """
        return self._ask("build", name, factory, arguments)

    def turn(self, name: str) -> clock.Turn:
        """Mean seconds of so many calls."""
        return lambda count: self._ask("time", name, count)

    def forget(self) -> None:
        """Free all calls and their arrays."""
        self._ask("forget")

    def _ask(self, *question: Any) -> Any:
        self._pipe.send(question)
        answered, answer = self._pipe.recv()
        if not answered:
            raise WorkerError(answer)
        return answer


def _serve(pipe: Any) -> None:
    """Answer until the other end is closed."""
    calls: dict[str, Callable[[], Any]] = {}
    while True:
        try:
            question = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, _answer(calls, *question)))
        except Exception:
            pipe.send((False, traceback.format_exc()))


def _answer(calls: dict[str, Callable[[], Any]], verb: str, *rest: Any) -> Any:
    if verb == "build":
        name, factory, arguments = rest
        module, function = factory.split(":")
        build = getattr(importlib.import_module(module), function)
        calls[name], facts = build(*arguments)
        return facts
    if verb == "time":
        return clock.local(calls[rest[0]])(rest[1])
    return calls.clear()
