"""Kills a training at random moments and sees that nothing of it is lost.

    python -m tests.survive --kills 20

A small decoder is trained twice: once in peace, and once by processes that are killed
with SIGKILL, each by the next of the random moments, and begun again by the same call:
while they start, between two steps, while a checkpoint is written. The two have to end
with the same bits, and with the same lines in metrics.jsonl.
"""

import argparse
import functools
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from attn_jax.train import Checkpointer
from tests.train import small

EVERY = 3  # steps between checkpoints
A_KILL = 8  # steps, more than one loses


class Survived(NamedTuple):
    """What the killed run went through.

    kills: how many there were; starting, saving: those of them that hit a process
        before its first line, and while a step was written.
    same_state, same_lines: whether it ended as the run in peace did.
    """

    kills: int
    starting: int
    saving: int
    same_state: bool
    same_lines: bool


def train(directory: str, steps: int, plain: bool) -> None:
    """Go on in a directory to the end, from where another process left it."""
    jax.config.update("jax_platforms", "cpu")
    small.keep_compiled(directory)
    state, step = small.make_run(steps, plain=plain)
    batch_at = functools.partial(small.batch, plain=plain)
    options = {"num_steps": steps, "checkpoint_every": EVERY}
    small.go_on(directory, state, step, batch_at, **options)


def survive(directory: Path, *, kills: int, seed: int, plain: bool) -> Survived:
    """Train in peace and through so many kills, and compare.

    plain: a plain network, not the decoder.
    """
    steps = A_KILL * (kills + 1)
    peace, war = directory / "peace", directory / "war"

    def begin(place: Path) -> Any:
        child = small.processes().Process(target=train, args=(str(place), steps, plain))
        child.start()
        return child

    def finish(child: Any) -> None:
        child.join()
        if child.exitcode:
            raise RuntimeError(f"a process ended with {child.exitcode}")

    finish(begin(peace))
    rng = random.Random(seed)
    starting = saving = 0
    for _ in range(kills):
        before, unfinished = _lines(war), _saving(war)
        child = begin(war)
        _wait(child, war, rng)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        if child.exitcode != -signal.SIGKILL:
            raise RuntimeError(f"ended with {child.exitcode} before it was killed")
        starting += _lines(war) == before
        saving += bool(_saving(war) - unfinished)
    finish(begin(war))
    same_lines = small.lines(peace) == small.lines(war)
    shapes = jax.eval_shape(lambda: small.make_run(steps, plain=plain)[0])
    same_state = _bits(peace, steps, shapes) == _bits(war, steps, shapes)
    return Survived(kills, starting, saving, same_state, same_lines)


def _wait(child: Any, directory: Path, rng: random.Random) -> None:
    """Until a random moment of one of three kinds."""
    kind = rng.choice(["starting", "stepping", "saving", "saving"])
    if kind == "starting":
        child.join(rng.uniform(0.0, 1.5))
        return
    unfinished = _saving(directory)
    at = _lines(directory) + rng.randint(1, A_KILL - EVERY)
    deadline = time.monotonic() + 120
    while child.is_alive() and time.monotonic() < deadline:
        if _lines(directory) >= at and (
            kind == "stepping" or _saving(directory) - unfinished
        ):
            break
        time.sleep(0.001)
    child.join(rng.uniform(0.0, 0.05))


def _lines(directory: Path) -> int:
    try:
        return (directory / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def _saving(directory: Path) -> set[str]:
    """The steps that have no final name, or never will."""
    begun = (directory / "checkpoints").glob("*.orbax-checkpoint-tmp*")
    return {path.name for path in begun}


def _bits(directory: Path, steps: int, shapes: Any) -> list[bytes]:
    """Every array of the state at the end."""
    with Checkpointer(directory / "checkpoints") as checkpointer:
        state = checkpointer.restore(shapes, step=steps)
    state = state._replace(seed=jax.random.key_data(state.seed))
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        found = survive(Path(directory), **vars(options), plain=False)
    print(
        f"{found.kills} kills, {found.starting} of them before the first line of a "
        f"process and {found.saving} while a step was written; "
        f"{time.monotonic() - began:.0f} s\n"
        f"the same bits at the end: {found.same_state}\n"
        f"the same lines: {found.same_lines}"
    )
    return int(not (found.same_state and found.same_lines))


if __name__ == "__main__":
    sys.exit(main())
