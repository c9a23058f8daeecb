"""What the documents say is true: snippets run, the mechanism table is the table."""

import re
from pathlib import Path

import pytest

from attn_jax.nn import MECHANISMS

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def snippets(path):
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.S | re.M)


@pytest.mark.parametrize(
    "path", [p for p in DOCUMENTS if snippets(p)], ids=lambda p: p.name
)
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


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", path.read_text())
    missing = [link for link in links if not (path.parent / link).exists()]
    assert not missing
