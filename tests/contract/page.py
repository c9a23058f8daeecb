"""docs/contract.md, from the laws, the promises and the last measured run."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from tests.contract.ceilings import CEILINGS, DTYPES, KEYS, LAYER, SOFTMAX
from tests.contract.lines import ROOT, read

PAGE = ROOT / "docs" / "contract.md"
RESULTS = ROOT / "docs" / "results" / "contract.json"

INTRODUCTION = """\
# The contract

Written by `make contract`. The suite holds every mechanism to the same laws; this page
says which tests do so, what was counted and measured when they last ran, and where
each promise is tested.
"""


def page(results: Mapping[str, Any]) -> str:
    """The whole page."""
    versions = ", ".join(f"{name} {v}" for name, v in results["versions"].items())
    sections = [
        INTRODUCTION,
        "## Laws\n",
        _prose(
            f"Tests that passed ({versions}), counted from their ids. One that covers "
            "a mechanism with and without exclusion at once is counted in the first of "
            "the two rows."
        ),
        _laws(results["laws"], "mechanism", results["mechanisms"]),
        "The same for the operations under them, by the file of the test:\n",
        _laws(results["laws"], "operation", results["operations"]),
        "## Rounding\n",
        _prose(
            f"Relative error (Frobenius norm) of a layer over {KEYS:,} keys against "
            "NumPy in float64 on the same rounded numbers, projections included; `lsh` "
            "has one bucket, since rounding moves a token from one into another. "
            f"`{SOFTMAX}` stands between the projections of the softmax layer, "
            f"`{LAYER}` has its parameters. On {results['device']}."
        ),
        _errors(results["errors"]),
        "## Promises\n",
        "Faults that users of other libraries met, as promises, by their number.\n",
        _promises(),
        "## Promises without a test\n",
        _absent(),
    ]
    return "\n".join(sections)


def results() -> dict[str, Any]:
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def _prose(text: str) -> str:
    return textwrap.fill(text, 88, break_on_hyphens=False) + "\n"


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], align: str = ":--"
) -> str:
    lines = [head, [":--", *[align] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _laws(counts: Mapping[str, Any], what: str, subjects: Sequence[str]) -> str:
    laws = read("laws")
    rows = [
        [f"`{name}`", *(str(counts[str(n)].get(name, "")) for n in laws)]
        for name in subjects
    ]
    return _table([what, *(entry["law"] for entry in laws.values())], rows, "--:")


def _errors(errors: Mapping[str, Mapping[str, float | None]]) -> str:
    def shown(error: float | None) -> str:
        return "refused" if error is None else f"{error:.1e}"

    rows = [
        [f"`{name}`", *(shown(errors[dtype][name]) for dtype in DTYPES)]
        for name in errors[DTYPES[0]]
    ]
    limits = (f"{CEILINGS[x]:.0e}" if x in CEILINGS else "" for x in DTYPES)
    return _table(["", *DTYPES], [*rows, ["ceiling", *limits]], "--:")


def _promises() -> str:
    rows = []
    for number, entry in read("lines").items():
        if "tests" in entry:
            tests = ", ".join(_link(test) for test in entry["tests"])
            note = f"; {entry['note']}" if "note" in entry else ""
            rows.append([str(number), entry["promise"], tests + note])
    return _table(["", "promise", "tests"], rows)


def _link(test: str) -> str:
    """The test's name, leading to its file."""
    path, _, name = test.partition("::")
    return f"[{name}](../{path})"


def _absent() -> str:
    rows = [
        [str(number), entry["promise"], entry["absent"]]
        for number, entry in read("lines").items()
        if "absent" in entry
    ]
    return _table(["", "promise", "reason"], rows)
