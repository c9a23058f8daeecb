"""results.json: everything that the table and the figure are made from."""

from typing import Any

from experiments.common import provenance
from experiments.common.workdir import Workdir
from experiments.linear_copy.config import MODELS, CopyConfig
from experiments.linear_copy.training import LOSS, SYMBOLS

OF_A_RUN = (
    "seed",
    "steps",
    "stages",
    LOSS,
    SYMBOLS,
    "generated_copies_right",
    "curve",
    "training_seconds",
    "tokens_per_second",
    "compile_seconds",
)


def assemble(config: CopyConfig, workdir: Workdir) -> dict[str, Any]:
    """The results of every run of so many steps that is finished in the directory."""
    runs = [run for run in workdir.all_finished() if run["steps"] == config.steps]
    runs.sort(key=lambda run: run["seed"])
    names = sorted({run["model"] for run in runs}, key=_order)
    return {
        "experiment": "linear_copy",
        "preset": config.preset,
        **provenance.joined(runs),
        "config": {
            **config.shared(),
            "steps": config.steps,
            "seeds": sorted({run["seed"] for run in runs}),
        },
        "seconds": {
            "training": round(sum(run["training_seconds"] or 0 for run in runs), 1)
        },
        "rows": [
            _row(name, [run for run in runs if run["model"] == name]) for name in names
        ],
    }


def _order(model: str) -> tuple[int, str]:
    """Models as the paper has them, then others by name."""
    place = MODELS.index(model) if model in MODELS else len(MODELS)
    return place, model


def _row(model: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": model,
        "parameters": runs[0]["parameters"],
        "runs": [{name: run[name] for name in OF_A_RUN} for run in runs],
    }
