"""What the library wants to reach, and whether it did."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from benchmarks.problem import DIRECTIONS
from benchmarks.results import Results, find, memory_growth, seconds, time_growth

WAYS = {"forward": "forward", "both": "forward + backward"}
# Times faster than the peer in each direction, by length; "torch" is a limit the other
# way round: at most so many times slower.
SOFTMAX = {
    8192: {"forward": (8, 4, 1.3), "both": (10, None, 1.4)},
    2048: {"forward": (1.5, 2.5, 1.3), "both": (1.5, 2.5, 1.3)},
    512: {"forward": (1.5, 2.5, 1.3), "both": (1.5, 2.5, 1.3)},
}
PEERS = ("jax.nn", "tokamax xla_chunked", "torch")
LINEAR = {"forward": 20, "both": 12}
MEGABYTES = {
    "softmax": {"forward": 64, "both": 100},
    "linear": {"forward": 32, "both": 64},
}

NEEDED = frozenset(
    (name, direction, n)
    for n, ways in SOFTMAX.items()
    for direction, limits in ways.items()
    for name, limit in zip(PEERS, limits, strict=True)
    if limit is not None
) | frozenset(
    (name, direction, n)
    for name in ("softmax", "linear", "linear scan")
    for direction in DIRECTIONS
    for n in (SOFTMAX if name == "softmax" else (8192,))
)


class Target(NamedTuple):
    """A line of the table; held is None where nothing was measured."""

    what: str
    target: str
    measured: str
    held: bool | None


def targets(results: Results) -> list[Target]:
    """Every target, in the order of the page."""
    return [*_softmax(results), *_linear(results), *_others(results)]


def _softmax(results: Results) -> Iterator[Target]:
    rows = results.get("sweep", ())
    for n, ways in SOFTMAX.items():
        for way, limits in ways.items():
            ours = find(rows, name="softmax", direction=way, n=n)
            for peer, limit in zip(PEERS, limits, strict=True):
                what = f"softmax {WAYS[way]}, N = {n:,}, beside {peer}"
                theirs = find(rows, name=peer, direction=way, n=n)
                if limit is not None and peer == "torch":
                    yield _at_most(what, ours, theirs, limit)
                elif limit is not None:
                    yield _faster(what, ours, theirs, limit)
    yield from _temporary(results, "softmax")


def _linear(results: Results) -> Iterator[Target]:
    for way, limit in LINEAR.items():
        ours, scan = (
            find(results.get("sweep", ()), name=name, direction=way, n=8192)
            for name in ("linear", "linear scan")
        )
        what = f"linear {WAYS[way]}, N = 8,192, beside the token-level scan"
        yield _faster(what, ours, scan, limit)
    yield from _temporary(results, "linear")
    for name in ("linear", "softmax"):
        for way in DIRECTIONS:
            if name == "linear":
                slope = time_growth(results, name, way)
                yield _growth(f"{name} {WAYS[way]}: growth of time", slope)
            slope = memory_growth(results, name, way)
            yield _growth(f"{name} {WAYS[way]}: growth of memory", slope)
    large = results.get("large", {})
    used = large.get("bytes") if large.get("n") == 65536 else None
    shown = f"{used / 1e9:.2f} GB" if used else None
    what = "linear forward + backward, N = 65,536: memory of the process"
    yield _judged(what, "under 2.5 GB", shown, used is not None and used < 2.5e9)


def _others(results: Results) -> Iterator[Target]:
    for way in DIRECTIONS:
        once, each = (
            find(results.get("per_batch", ()), name=name, direction=way, n=1024)
            for name in ("factorized_random", "per batch")
        )
        what = f"factorized_random {WAYS[way]}, batch 8, N = 1,024, beside per batch"
        yield _faster(what, once, each, 4)
    yield _short(results.get("short", ()))
    exclusive, plain = (
        seconds(find(results.get("sweep", ()), name=name, direction="both", n=2048))
        for name in ("softmax+exclusive", "softmax")
    )
    more = exclusive / plain - 1 if exclusive and plain else None
    shown = None if more is None else f"{more:+.1%}"
    what = "exclude_self on top of softmax forward + backward, N = 2,048"
    yield _judged(what, "at most 3 %", shown, more is not None and more <= 0.03)
    early, late = (
        find(results.get("decoding", ()), name="linear", position=position)
        for position in (100, 8000)
    )
    what = "linear decoding, position 8,000 beside 100"
    yield _at_most(what, late, early, 1.1)
    # The model of a quick run is a toy.
    full = results.get("preset") == "full"
    yield from _training(results.get("training", {}) if full else {})


def _training(training: Results) -> Iterator[Target]:
    samples = training.get("samples", {})
    for peer in ("torch eager", "torch compiled"):
        ours = {"samples": samples.get("attn_jax")}
        what = f"training step, tokens/s beside {peer}"
        yield _faster(what, ours, {"samples": samples.get(peer)}, 1)


def _faster(what: str, ours: Any, theirs: Any, limit: float) -> Target:
    """At least so many times faster."""
    ratio, shown = _ratio(theirs, ours)
    target = f"at least {limit:g}x faster" if limit != 1 else "as many or more"
    return _judged(what, target, shown, ratio >= limit)


def _at_most(what: str, ours: Any, theirs: Any, limit: float) -> Target:
    """At most so many times the time."""
    ratio, shown = _ratio(ours, theirs)
    return _judged(what, f"at most {limit:g}x the time", shown, ratio <= limit)


def _ratio(above: Any, below: Any) -> tuple[float, str | None]:
    """The ratio of medians, with that of minima; NaN where one is missing."""
    a, b = seconds(above), seconds(below)
    if a is None or b is None:
        return float("nan"), None
    least = seconds(above, min) / seconds(below, min)
    return a / b, f"{a / b:.2f}x (minima {least:.2f}x)"


def _temporary(results: Results, name: str) -> Iterator[Target]:
    for way, limit in MEGABYTES[name].items():
        row = find(results.get("sweep", ()), name=name, direction=way, n=8192)
        used = None if row is None else row.get("temporary_bytes")
        shown = None if used is None else f"{used / 1e6:.1f} MB"
        what = f"{name} {WAYS[way]}, N = 8,192: temporary memory"
        held = used is not None and used <= limit * 1e6
        yield _judged(what, f"at most {limit} MB", shown, held)


def _growth(what: str, slope: float | None) -> Target:
    shown = None if slope is None else f"{slope:.3f}"
    return _judged(what, "exponent at most 1.05", shown, (slope or 0) <= 1.05)


def _short(rows: Sequence[Any]) -> Target:
    """The length at which "auto" loses most to the best implementation."""
    worst, where = 0.0, ""
    for auto in (row for row in rows if row["name"] == "softmax" and row["n"] > 63):
        n, way = auto["n"], auto["direction"]
        best = min(
            median(row["samples"])
            for row in rows
            if row["n"] == n and row["direction"] == way and row["samples"]
        )
        ratio = median(auto["samples"]) / best
        if ratio > worst:
            worst, where = ratio, f" (N = {n}, {WAYS[way]})"
    what = 'softmax "auto", N = 64 to 512, beside the best implementation'
    shown = f"{worst:.2f}x{where}" if worst else None
    return _judged(what, "at most 1.1x the time", shown, worst <= 1.1)


def _judged(what: str, target: str, shown: str | None, held: bool) -> Target:
    if shown is None:
        return Target(what, target, "not measured", None)
    return Target(what, target, shown, held)
