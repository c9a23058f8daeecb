"""The collectives of a compiled step: how often, and how many bytes.

XLA's text has a computation for each body of a loop, with its rounds where
XLA knows it; what stands in a body counts as often.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2}
BYTES |= {"f16": 2, "s16": 2, "u16": 2, "s8": 1, "u8": 1, "pred": 1}
KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
)
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_COLLECTIVE = re.compile(rf"= (.*?) ({'|'.join(KINDS)})(?:-start)?\(")
_CALLED = re.compile(
    r"(?:calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{(.*?)\}")
_BODY = re.compile(r"\bwhile\(.*\bbody=%?([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")


class Collective(NamedTuple):
    """Alike collectives of a step.

    group: devices that take part in one.
    count: how many a step.
    result_bytes: of one result, on one device.
    """

    kind: str
    group: int
    count: int
    result_bytes: int

    def wire_bytes(self) -> float:
        """What one device sends in all of them, by algorithms that go around a ring."""
        n = self.group
        one = {
            "all-gather": (n - 1) / n,
            "all-reduce": 2 * (n - 1) / n,
            "reduce-scatter": n - 1,
            "all-to-all": (n - 1) / n,
            "collective-permute": 1,
        }[self.kind]
        return self.count * self.result_bytes * one


def collectives(text: str) -> list[Collective]:
    """Those of a compiled program, from `compiled.as_text()`."""
    computations, entry = _computations(text)
    found: dict[tuple[str, int, int], int] = {}
    for kind, group, size, times in _walk(computations, entry, 1):
        key = kind, group, size
        found[key] = found.get(key, 0) + times
    return [
        Collective(kind, group, count, size)
        for (kind, group, size), count in sorted(found.items())
        if group > 1
    ]


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """The lines of each computation, and which is the program's."""
    computations: dict[str, list[str]] = {}
    entry, lines = "", []
    for line in text.splitlines():
        begins = None if line.startswith(" ") else _COMPUTATION.match(line)
        if begins:
            lines = computations.setdefault(begins[1], [])
            entry = begins[1] if line.startswith("ENTRY") else entry
        elif line.startswith(" "):
            lines.append(line)
    return computations, entry


def _walk(
    computations: dict[str, list[str]], name: str, times: int
) -> Iterator[tuple[str, int, int, int]]:
    for line in computations.get(name, ()):
        collective = _COLLECTIVE.search(line)
        if collective:
            yield collective[2], _group(line), _size(collective[1]), times
            continue
        body = _BODY.search(line)
        if body:
            trips = _TRIPS.search(line)
            yield from _walk(
                computations, body[1], times * int(trips[1] if trips else 1)
            )
            continue
        called = _CALLED.findall(line)
        for branches in _BRANCHES.findall(line):
            called += re.findall(r"[\w.\-]+", branches)
        for each in called:
            yield from _walk(computations, each, times)


def _group(line: str) -> int:
    """How many devices take part, in one of the ways in which XLA writes groups.

    {{0,1},{2,3}}; [groups,devices]<=[...]; mesh['a'=2,'b'=4] {'b'}, where 'b':(1)2 is a
    part of an axis and an order of devices may stand between.
    """
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
    if listed:
        return len(listed[1].split(","))
    counted = re.search(r"replica_groups=\[\d+,(\d+)\]", line)
    if counted:
        return int(counted[1])
    named = re.search(r"replica_groups=mesh\[(.*?)\].*? \{('.*?)\}", line)
    if named:
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", named[1]))
        parts = re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", named[2])
        return math.prod(int(part or sizes[axis]) for axis, part in parts)
    if "source_target_pairs" in line:
        return 2
    raise ValueError(
        f"groups of devices that are written in another way: {line.strip()}"
    )


def _size(result: str) -> int:
    return sum(
        BYTES.get(dtype, 4) * math.prod(int(n) for n in shape.split(",") if n)
        for dtype, shape in _ARRAY.findall(result)
    )
