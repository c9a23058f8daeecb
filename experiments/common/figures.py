"""The figures of a run, drawn again from its results.json."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.common.errors import UserError, fail
from experiments.common.interrupts import complain
from experiments.common.workdir import read_json

Draw = Callable[[dict[str, Any], Path], list[Path]]


def redraw(experiment: str, draw: Draw, arguments: Sequence[str] | None = None) -> int:
    """`python -m experiments.<experiment>.plot RESULTS`: figures beside the results.

    Returns:
      The exit code: 2 where there are no such results.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        results, folder = _read(experiment, arguments)
    except (UserError, ValueError, OSError) as error:
        return complain(error, 2)
    for path in draw(results, folder):
        print(path)
    return 0


def _read(experiment: str, arguments: Sequence[str]) -> tuple[dict[str, Any], Path]:
    """The results, and where their figures go."""
    expected = f"the results.json of a run of {experiment}"
    remedy = f"pass runs/{experiment}/.../results.json"
    if len(arguments) != 1:
        fail("results", f"{len(arguments)} paths", expected, remedy)
    source = Path(arguments[0])
    results = read_json(source)
    if results is None:
        fail("results", f"{source}, which is not there", expected, remedy)
    if results.get("experiment") != experiment:
        fail("results", f"{source}, which is none", expected, remedy)
    return results, source.parent / "figures"
