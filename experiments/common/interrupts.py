"""How a program ends: its exit code, and SIGTERM that ends it as Ctrl-C does."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn


def complain(error: Exception, code: int) -> int:
    """Say what is wrong, and return the exit code."""
    print(f"error: {error}", file=sys.stderr)
    return code


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Outside of `fit`, which has handlers of its own, SIGTERM is KeyboardInterrupt."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
