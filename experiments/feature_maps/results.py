"""results.json: everything that the table is made from."""

from collections.abc import Mapping
from typing import Any

from experiments.common import provenance
from experiments.compare.text import Text
from experiments.compare.training import BITS
from experiments.feature_maps.config import FeatureMapsConfig
from experiments.linear_copy.training import LOSS, SYMBOLS

OF_A_RUN = {
    "copy": (LOSS, SYMBOLS, "generated_copies_right"),
    "text": (BITS,),
}
ALWAYS = ("seed", "steps", "curve", "compile_seconds", "parameters")


def assemble(
    config: FeatureMapsConfig,
    text: Text,
    runs: Mapping[str, Mapping[str, list[dict[str, Any]]]],
) -> dict[str, Any]:
    """The results of runs by task and row, one a seed."""
    every = [run for rows in runs.values() for found in rows.values() for run in found]
    return {
        "experiment": "feature_maps",
        "preset": config.preset,
        **provenance.joined(every),
        "config": {**config.shared(), "seeds": list(range(config.seeds))},
        "corpus": {
            "name": provenance.relative(text.corpus.name),
            "fingerprint": text.corpus.fingerprint,
        },
        "seconds": {
            "training": round(sum(run["training_seconds"] or 0 for run in every), 1)
        },
        "tasks": {
            task: {
                name: [_kept(task, run) for run in found]
                for name, found in rows.items()
            }
            for task, rows in runs.items()
        },
    }


def _kept(task: str, run: Mapping[str, Any]) -> dict[str, Any]:
    return {name: run[name] for name in (*ALWAYS, *OF_A_RUN[task])}
