"""Trains on several hosts, real processes of this machine, and takes one away.

    python -m tests.hosts

Two and four hosts train and save; one, two and four go on from there, on the rows that
one host alone would have read. Then a host dies, or stands still: the others have to
end in time, and say which one it was.
"""

import functools
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from attn_jax.train import TrainingInterrupted, hosts
from tests.train import small, toy

SAVED, STEPS = 4, 8
TIMEOUT = 20.0


class Ended(NamedTuple):
    """How a host ended: exit code, what it said, seconds since the mishap."""

    code: int
    said: str
    seconds: float


def run(
    directory: str,
    place: dict[str, Any],
    steps: int,
    mishap: tuple[int, str] | None,
    plain: bool,
) -> None:
    """What each host does: train to the end, from where a run was left.

    mishap: a host, and what befalls it in the sixth step; "is told to stop" is SIGTERM,
        "ends early" to have one batch less.
    """
    number = place["host"]
    os.makedirs(directory, exist_ok=True)
    said = os.open(f"{directory}/said{number}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(said, 2)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 1)
    with hosts.joined(**place):
        mesh = Mesh(np.array(jax.devices()), ("data",))
        everywhere = NamedSharding(mesh, PartitionSpec())
        cut = NamedSharding(mesh, PartitionSpec("data"))
        state, step = small.make_run(STEPS, plain=plain)
        state = jax.jit(lambda: state, out_shardings=everywhere)()

        def batch_at(at: int) -> Any:
            rows = hosts.rows(toy.ROWS)
            if mishap is not None and at == SAVED + 1 and mishap[0] == number:
                befall(directory, mishap[1])
            with open(f"{directory}/rows{number}", "a") as file:
                file.write("".join(f"{at} {row}\n" for row in rows))
            batch = small.batch(at, rows, plain=plain)
            join = functools.partial(jax.make_array_from_process_local_data, cut)
            return jax.tree.map(join, batch)

        if mishap == (number, "ends early"):
            steps = SAVED + 1
            Path(directory, "mishap").touch()
        options = {"num_steps": steps, "checkpoint_every": SAVED}
        try:
            small.go_on(directory, state, step, batch_at, **options)
        except TrainingInterrupted as stopped:
            print(stopped, file=sys.stderr)
            sys.exit(130)


def befall(directory: str, what: str) -> None:
    """The mishap of a host; its time is that of a file."""
    Path(directory, "mishap").touch()
    if what == "is told to stop":
        os.kill(os.getpid(), signal.SIGTERM)
        return
    if what == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "freezes":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(10 * TIMEOUT)  # Stuck, while JAX's own threads live.


def start(
    directory: Path,
    count: int,
    steps: int,
    mishap: tuple[int, str] | None = None,
    *,
    plain: bool = False,
) -> list[Ended]:
    """Run so many hosts in a directory, and see how each ends.

    The one that is stuck is killed when the others have ended.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    common = {"hosts": count, "coordinator": coordinator, "timeout": TIMEOUT}
    children = []
    for host in range(count):
        place = {**common, "host": host}
        child = small.processes().Process(
            target=run, args=(str(directory), place, steps, mishap, plain)
        )
        child.start()
        children.append(child)
    lost = None if mishap is None else mishap[0]
    ended: dict[int, Ended] = {}
    for host in sorted(range(count), key=lambda host: host == lost):
        stays = host == lost and mishap[1] in ("dies", "freezes", "is stuck")
        children[host].join(0 if stays else 500)
        ended[host] = _ended(directory, host, children[host])
    return [ended[host] for host in range(count)]


def _ended(directory: Path, host: int, child: Any) -> Ended:
    now = time.time()
    code = child.exitcode
    if code is None:
        child.kill()
        child.join()
        code = child.exitcode
    mishap = directory / "mishap"
    seconds = now - mishap.stat().st_mtime if mishap.exists() else 0.0
    return Ended(code, (directory / f"said{host}").read_text(), seconds)


def rows_read(directory: Path) -> list[tuple[int, int]]:
    """The steps and rows that all hosts together have read, in order."""
    pairs = [
        tuple(map(int, line.split()))
        for file in directory.glob("rows*")
        for line in file.read_text().splitlines()
    ]
    return sorted(pairs)


def same_losses(directory: Path, other: Path) -> bool:
    """Whether two runs recorded the same steps, and losses alike to rounding."""
    here, there = small.lines(directory), small.lines(other)
    steps = [line["step"] for line in here] == [line["step"] for line in there]
    losses = [[line["loss"] for line in each] for each in (here, there)]
    return steps and np.allclose(*losses, rtol=1e-5, atol=0)


def named(ended: Ended, host: int) -> bool:
    """Whether a host that ended says that another one is lost, and no third one."""
    ways = (
        r"host (\d+) (?:is not there|does not answer)",
        r"stopped sending heartbeats\):\s+(\d+)",
        r"the leader \(usually slice 0 task (\d)\)",
    )
    # JAX tells of the leader too where that one has left for want of the lost host.
    found = next(filter(None, (set(re.findall(way, ended.said)) for way in ways)), None)
    return ended.code != 0 and found == {str(host)}


def main() -> int:
    fine = []

    def report(text: str, passed: bool) -> None:
        fine.append(passed)
        print(f"{'ok  ' if passed else 'FAIL'} {text}", flush=True)

    every = [(step, row) for step in range(STEPS) for row in range(toy.ROWS)]
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        one = start(root / "one", 1, STEPS)
        report("1 host, in one go", one[0].code == 0)
        for before in (2, 4):
            first = root / f"first{before}"
            codes = [end.code for end in start(first, before, SAVED)]
            report(f"{before} hosts, {SAVED} steps", codes == [0] * before)
            for after in (1, 2, 4):
                place = root / f"from{before}to{after}"
                shutil.copytree(first, place)
                codes = [end.code for end in start(place, after, STEPS)]
                right = codes == [0] * after and rows_read(place) == every
                report(
                    f"{before} hosts, and {after} that go on: every row once, losses",
                    right and same_losses(place, root / "one"),
                )
        place = root / "stopped"
        ends = start(place, 2, STEPS, (1, "is told to stop"))
        codes = [end.code for end in ends] + [start(place, 1, STEPS)[0].code]
        steps = [path.name for path in sorted((place / "checkpoints").glob("0*"))]
        report(
            f"SIGTERM to host 1 of 2: both save and exit with {codes[:2]}; one goes on "
            f"to {steps[-1]}",
            codes == [130, 130, 0] and same_losses(place, root / "one"),
        )
        for count, lost, what in (
            (2, 1, "dies"),
            (4, 2, "dies"),
            (2, 0, "dies"),
            (2, 1, "freezes"),
            (4, 3, "is stuck"),
            (2, 0, "is stuck"),
            (2, 1, "ends early"),
        ):
            place = root / f"{what}{count}{lost}"
            ends = start(place, count, STEPS, (lost, what))
            others = [end for host, end in enumerate(ends) if host != lost]
            latest = max(end.seconds for end in others)
            names = [named(end, lost) for end in others]
            report(
                f"host {lost} of {count} {what}: the others end after {latest:.1f} s "
                f"of {TIMEOUT:g}, codes {[end.code for end in others]}, and name it: "
                f"{names}",
                all(names) and latest <= TIMEOUT,
            )
            if not all(names):
                print("\n".join(end.said[-1500:] for end in others))
    return int(not all(fine))


if __name__ == "__main__":
    sys.exit(main())
