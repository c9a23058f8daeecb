"""Run the laws, measure the errors, and write docs/contract.md.

python -m tests.contract          everything, and docs/results/contract.json
python -m tests.contract --page   the page alone, from the last results
"""

import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path, PurePath
from typing import Any
from xml.etree import ElementTree

import flax
import jax
import numpy as np

from attn_jax import nn
from tests.contract import ceilings
from tests.contract.lines import ROOT, read
from tests.contract.page import PAGE, RESULTS, page, results


def passed(tests: list[str]) -> list[str]:
    """The ids of tests that passed, in a process of their own; all have to."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        options = ["-q", "-n", "2", "--dist", "worksteal", f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        if code := subprocess.run(command, cwd=ROOT, check=False).returncode:
            raise SystemExit(f"a law is broken: pytest ended with {code}")
        cases = ElementTree.parse(report).iter("testcase")
        return [
            f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            for case in cases
            if case.find("skipped") is None
        ]


def subjects(test: str) -> list[str]:
    """Whom a passed test speaks of: a row of the table, or an operation."""
    path, _, parameters = test.partition("[")
    path = path.partition("::")[0]
    if path.startswith("tests/ops/"):
        return ["ops/" + PurePath(path).stem.removeprefix("test_")]
    words = parameters.removesuffix("]").split("-")
    exclusive = "+exclusive" * ("exclusive" in words)
    # The last one, since a mask may be called like a mechanism: [dense-softmax].
    return [word + exclusive for word in words if word in nn.MECHANISMS][-1:]


def count() -> dict[str, dict[str, int]]:
    """{law: {subject: tests that passed}}, from a run of the tests of every law."""
    laws = read("laws")
    found = passed(sorted({test for law in laws.values() for test in law["tests"]}))
    counts: dict[str, Any] = {}
    for number, entry in laws.items():
        counts[str(number)] = collections.Counter(
            subject
            for test in found
            if test.partition("[")[0] in entry["tests"]
            for subject in subjects(test)
        )
    return counts


def run() -> dict[str, Any]:
    counts = count()
    found = {name for law in counts.values() for name in law}
    rows = [n + e for n in nn.MECHANISMS for e in ("", "+exclusive")]
    return {
        "versions": {
            "jax": jax.__version__,
            "flax": flax.__version__,
            "numpy": np.__version__,
        },
        "device": jax.devices()[0].device_kind,
        "mechanisms": rows,
        "operations": sorted(found - set(rows)),
        "laws": {law: dict(sorted(each.items())) for law, each in counts.items()},
        "errors": ceilings.measure(),
    }


def main(arguments: list[str]) -> None:
    if arguments not in ([], ["--page"]):
        raise SystemExit(__doc__)
    if not arguments:
        text = json.dumps(run(), indent=1) + "\n"
        RESULTS.write_text(text, encoding="utf-8")
    PAGE.write_text(page(results()), encoding="utf-8")
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
