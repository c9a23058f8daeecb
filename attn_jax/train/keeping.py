"""Which steps of a run are kept: the latest ones, and the best ones beside them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attn_jax.train._checks import fail

Score = Callable[[Mapping[str, Any]], float]
_SCORE = "score"


class Latest:
    """What Orbax asks which steps to keep: the latest, and the latest multiples."""

    def __init__(self, keep: int, every: int) -> None:
        self._keep, self._every = keep, every

    def should_preserve(
        self, checkpoints: Sequence[Any], *, context: Any
    ) -> Sequence[bool]:
        steps = [checkpoint.step for checkpoint in checkpoints]
        regular = sorted(step for step in steps if step % self._every == 0)
        kept = {max(steps, default=0), *regular[-self._keep :]}
        return [step in kept for step in steps]


def kept_steps(keep: int, every: int, best: int) -> dict[str, Any]:
    """Options of Orbax: the latest, and with them the best."""
    import orbax.checkpoint as ocp

    latest = Latest(keep, every)
    if not best:
        return {"preservation_policy": latest}
    managers = ocp.checkpoint_managers
    low = managers.BestN(
        get_metric_fn=filed_score,
        reverse=True,
        n=best,
        keep_checkpoints_without_metrics=False,
    )
    return {
        "preservation_policy": managers.AnyPreservationPolicy([latest, low]),
        "best_fn": filed_score,
        "best_mode": "min",
    }


def scored(metrics: Mapping[str, Any], score: Score) -> dict[str, float]:
    """The score of an evaluation as it is filed with a step; NaN is worse than all."""
    value = float(score(metrics))
    return {_SCORE: math.inf if math.isnan(value) else value}


def filed_score(filed: Mapping[str, float]) -> float:
    """The number that `scored` filed."""
    return filed[_SCORE]


def check_best(best: int, score: Score | None) -> None:
    """Raise for a number of best steps without what makes them better, or the reverse.

    Raises:
      ValueError: one of the two without the other.
    """
    if bool(best) != (score is not None):
        fail(
            "best" if best else "score",
            f"{best} without score" if best else "a function without best",
            "both or neither",
            'pass best=3 and score=lambda metrics: metrics["validation_loss"], say',
        )
