"""Ctrl-C and SIGTERM as a request that a loop grants between two steps."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from attn_jax.train.hosts import meet

_STOPPING = b"\nstopping after this step; once more stops at once, unsaved\n"
_SAVING = b"\nthe checkpoint is being written; this ends by itself\n"


class StopRequest:
    """Holds off SIGINT and SIGTERM inside a `with` block.

    The first signal is only noted, so that it can't tear a step apart whose arrays
    are already given away. The second one raises KeyboardInterrupt where it finds the
    program, for those who don't want to wait for the step. After `shield`, while the
    last state is written, all are ignored. The handlers that were there come back at
    the end of the block.

    Signals reach the main thread alone: in another thread this does nothing, and a
    signal that the program ignores or that something outside Python handles is left
    as it is.
    """

    def __init__(self) -> None:
        self._received: str | None = None
        self._hurried = False
        self._shielded = False
        self._previous: dict[signal.Signals, Any] = {}

    @property
    def received(self) -> str | None:
        """The name of the signal that came first, if one has come."""
        return self._received

    @property
    def hurried(self) -> bool:
        """Whether a second signal has torn the program away from what it did."""
        return self._hurried

    def check_together(self, place: str) -> None:
        """Raise KeyboardInterrupt if a signal has come to any host.

        place: where all hosts meet, with its step.
        """
        if meet(place, stop=self._received is not None):
            raise KeyboardInterrupt(self._received)

    def shield(self) -> None:
        """From now on ignore further signals."""
        self._shielded = True

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                previous = signal.getsignal(number)
                if previous not in (signal.SIG_IGN, None):
                    self._previous[number] = previous
                    signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # A handler may run in the middle of a print, so it writes past Python's
        # buffers.
        if self._shielded:
            os.write(2, _SAVING)
        elif self._received is None:
            self._received = signal.Signals(number).name
            os.write(2, _STOPPING)
        else:
            self._hurried = True
            raise KeyboardInterrupt(self._received)
