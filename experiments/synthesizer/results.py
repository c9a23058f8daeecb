"""results.json: everything that the table, the claims and the figures are made from."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.common import provenance
from experiments.synthesizer.config import Training

# The same for all seeds of a row, or of no use in a table.
DROPPED = ("row", "parameters", "sample", "d_ff", "memory_bytes", *provenance.ORIGIN)


def assemble(
    config: Training,
    corpus: Mapping[str, Any],
    done: Mapping[str, Sequence[dict[str, Any]]],
) -> dict[str, Any]:
    """The results of the runs that are done, row by row.

    Args:
      config: of the command that joins them; what may differ is not in it.
      corpus: what was learnt.
      done: the numbers of each row's seeds.
    """
    runs = [run for row in done.values() for run in row]
    return {
        "experiment": "synthesizer",
        "study": config.kind,
        "preset": config.preset,
        **provenance.joined(runs),
        "config": {**config.shared(), "seeds": sorted({run["seed"] for run in runs})},
        "corpus": dict(corpus),
        "seconds": {
            name: round(sum(run[f"{name}_seconds"] or 0 for run in runs), 1)
            for name in ("training", "compile")
        },
        "rows": [_row(name, row) for name, row in done.items()],
    }


def _row(name: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rates = [run["tokens_per_second"] for run in runs if run["tokens_per_second"]]
    return {
        "row": name,
        "parameters": runs[0]["parameters"],
        "tokens_per_second": sum(rates) / len(rates) if rates else None,
        "runs": [
            {key: value for key, value in run.items() if key not in DROPPED}
            for run in runs
        ],
    }
