"""results.json: everything that the table and the figures are made from."""

from typing import Any

from experiments.common import provenance
from experiments.eigen_training.config import TrainingConfig
from experiments.eigen_training.training import Task


def assemble(
    rows: list[list[dict[str, Any]]], config: TrainingConfig, task: Task
) -> dict[str, Any]:
    """The results of models that are all trained."""
    return {
        "experiment": "eigen_training",
        "preset": config.preset,
        **provenance.joined(run for runs in rows for run in runs),
        "config": {
            **config.shared(),
            "data_fingerprint": task.summary["fingerprint"],
            "steps": config.steps,
            "seeds": list(range(config.seeds)),
        },
        "data": {**task.summary, "length": task.length},
        "measure": task.measure,
        "rows": [
            {
                "model": runs[0]["model"],
                "runs": [provenance.without_origin(run) for run in runs],
            }
            for runs in rows
        ],
    }
