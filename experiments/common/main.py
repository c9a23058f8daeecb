"""What the programs of all experiments do alike: mistakes, interruption, exit codes."""

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from attn_jax.train import (
    CheckpointMismatchError,
    CheckpointReadError,
    CheckpointWriteError,
    HostLostError,
    MetricsWriteError,
    TrainingInterrupted,
    hosts,
)
from experiments.common import provenance
from experiments.common.errors import UserError, of_the_system
from experiments.common.interrupts import complain, sigterm_interrupts
from experiments.common.mesh import on_mesh, split_mesh
from experiments.common.places import place_of, silent

MISTAKES = (UserError, ValueError, TypeError, OSError, ImportError)
# Numbers that are not finite, in training or in what a model writes, are the last.
FAILURES = (
    CheckpointMismatchError,
    CheckpointReadError,
    CheckpointWriteError,
    HostLostError,
    MetricsWriteError,
    FloatingPointError,
)


class Place(Protocol):
    """Where a program writes: a `Workdir`, or a `Grid` of them."""

    def claim(self, config: dict[str, Any]) -> contextlib.AbstractContextManager[None]:
        """Begin to write there, or raise."""
        ...


class Plan(Protocol):
    """All that is known before anything is computed."""

    @property
    def workdir(self) -> Place: ...

    def shared_config(self) -> dict[str, Any]:
        """What all commands in the work directory have in common."""
        ...


AnyPlan = TypeVar("AnyPlan", bound=Plan)


def run_program(
    program: str,
    arguments: Sequence[str] | None,
    prepare: Callable[[Sequence[str]], AnyPlan],
    run: Callable[[AnyPlan], None],
) -> int:
    """Prepare, keep other processes out of the work directory, run.

    0: the results are there. 1: the training failed, or the disk did. 2: a mistake on
    the command line. 130: interrupted by Ctrl-C or SIGTERM, and to be run again.

    Args:
      program: how it is called, "python -m experiments.compare" say.
      arguments: None is those of the process.
      prepare: raises for everything that can be wrong, before anything is computed.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    words = arguments
    with sigterm_interrupts(), contextlib.ExitStack() as stack:
        try:
            try:
                place, words = place_of(words)
                stack.enter_context(hosts.joined(**place))
                if not hosts.is_writer():
                    stack.enter_context(silent())
                mesh, _ = split_mesh(words)
                stack.enter_context(on_mesh(mesh))
                plan = prepare(words)
                stack.enter_context(plan.workdir.claim(plan.shared_config()))
            except MISTAKES as error:
                return _end(error, 2)
            run(plan)
        except KeyboardInterrupt as error:
            return _interrupted(error, provenance.command(program, arguments))
        except FAILURES as error:
            return _end(error, 1)
        except OSError as error:
            return _end(of_the_system(error, plan.workdir), 1)
    return 0


def _end(error: Exception, code: int) -> int:
    """Say what is wrong; one of several hosts doesn't wait for the others."""
    complain(error, code)
    hosts.leave(code)
    return code


def _interrupted(error: KeyboardInterrupt, command: str) -> int:
    """Say what is safe, and how to go on."""
    said = isinstance(error, TrainingInterrupted)
    print(
        f"\n{error if said else 'Interrupted outside of a training'}\n"
        f"What is finished is kept. To go on:\n  {command}",
        file=sys.stderr,
    )
    return 130
