"""One run: measure, write results.json, draw."""

import json
from collections.abc import Sequence
from statistics import median

from benchmarks import mechanisms, peers
from benchmarks.command_line import parse
from benchmarks.sweep import Sweep


def main(arguments: Sequence[str]) -> int:
    config = parse(arguments)
    here = peers.found(print)
    cases = [*mechanisms.CASES, *peers.cases(here)]
    if config.only:
        cases = [c for c in cases if any(word in c.name for word in config.only)]
    sweep = Sweep(config, frozenset(), print)
    sweep.run(cases)
    for row in sweep.rows:
        if "samples" in row:
            ms = 1e3 * median(row["samples"])
            print(
                row["n"],
                row["direction"],
                row["name"],
                f"{ms:.2f} ms",
                row.get("temporary_bytes", 0),
                f"{row.get('compile_seconds', 0):.1f}",
            )
    config.out.mkdir(parents=True, exist_ok=True)
    (config.out / "results.json").write_text(json.dumps(sweep.rows))
    return 0
