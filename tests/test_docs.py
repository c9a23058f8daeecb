"""What the documents say is true: snippets run, the mechanism table is the table."""

import json
import re
from pathlib import Path

import pytest

from attn_jax.nn import MECHANISMS
from experiments.compare.table import markdown

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def snippets(path):
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.S | re.M)


# What docs/training.md says runs, and more of it is checked, in tests/train.
RUN_HERE = [p for p in DOCUMENTS if snippets(p) and p.name != "training.md"]


@pytest.mark.parametrize("path", RUN_HERE, ids=lambda p: p.name)
def test_snippets_run(path, tmp_path, monkeypatch):
    """In one namespace a document, in order, as a reader would paste them."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for snippet in snippets(path):
        exec(compile(snippet, str(path), "exec"), names)
    assert names


def test_readme_lists_every_mechanism():
    """One row a mechanism, with what its config class states."""
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.M)
    assert dict(rows) == {
        name: " | ".join(
            (
                f"`{kind.equation}`",
                kind.cost,
                f"`{kind.function}`",
                f"`{kind.__name__}`",
                kind.paper,
            )
        )
        for name, kind in MECHANISMS.items()
    }


def test_readme_names_the_exceptions_to_the_laws():
    text = (ROOT / "README.md").read_text()
    for name, kind in MECHANISMS.items():
        exception = bool(kind.cannot_decode) or not kind.causal_to_the_bit
        assert (f"`{name}` is an exception to " in text) == exception, name


def test_readme_shows_the_last_run_of_the_demo():
    results = json.loads((ROOT / "docs/results/compare/demo.json").read_text())
    assert markdown(results).strip() in (ROOT / "README.md").read_text()


def test_the_newcomers_minutes_are_those_of_the_walk():
    """docs/quick_start.md shows what tools/newcomer.py measured."""
    results = json.loads((ROOT / "docs/results/quick_start.json").read_text())
    page = (ROOT / "docs/quick_start.md").read_text()
    shown = re.findall(r"^\| (.+) \| (\d+):(\d\d) \|$", page, re.M)
    total = sum(results["seconds"].values())
    measured = results["seconds"] | {"all of it": total}
    assert {name: 60 * int(m) + int(s) for name, m, s in shown} == {
        name: round(seconds) for name, seconds in measured.items()
    }
    assert total < 15 * 60


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", path.read_text())
    missing = [link for link in links if not (path.parent / link).exists()]
    assert not missing
