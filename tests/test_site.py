"""The documentation as a site: every public name has an entry, no link is broken."""

import html
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import attn_jax
from tests.browser import opened

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("docs_pages").reference()


def public(module: ModuleType) -> dict[str, object]:
    """What a reader may import: `__all__`, or what a module without one defines."""
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
        if inspect.isfunction(value) or inspect.isclass(value)
    ]
    found: dict[str, object] = {}
    for name in names:
        value = getattr(module, name)
        if inspect.ismodule(value):
            found |= public(value)
        else:
            found[f"{module.__name__}.{name}"] = value
    return found


def entries(text: str) -> list[str]:
    return re.findall(r"^::: (\S+)$", text, re.M)


def test_every_public_name_has_an_entry_and_says_what_it_is(pages):
    names = public(attn_jax)
    listed = [name for text in pages.values() for name in entries(text)]

    def short(name: str) -> str:
        """A function in a file of its name, nn.dropout.dropout, is nn.dropout."""
        return re.sub(r"(\.\w+)\1$", r"\1", name)

    assert sorted(map(short, listed)) == sorted(map(short, names))
    assert len(names) > 200
    silent = [
        name
        for name, value in names.items()
        if inspect.isroutine(value) or inspect.isclass(value)
        if not (value.__doc__ or "").strip()
    ]
    assert silent == []


def test_every_page_is_in_the_navigation(pages):
    config = (ROOT / "mkdocs.yml").read_text()
    listed = re.findall(r"([\w/]+\.md)$", config[config.index("\nnav:") :], re.M)
    own = {path.name for path in (ROOT / "docs").glob("*.md")}
    added = {"index.md", "contributing.md", "changelog.md"}
    assert sorted(listed) == sorted(own | added | set(pages))
    packages = {name for _, name, _ in pkgutil.iter_modules(attn_jax.__path__)}
    assert set(pages) == {f"reference/{name}.md" for name in packages | {"attn_jax"}}


def test_the_site_builds_and_loads_nothing_from_elsewhere(pages, tmp_path):
    """--strict: no page without a place, no link or anchor that leads nowhere.

    Opened as a file, it is searched in a browser all the same.
    """
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(
        [*command, "--site-dir", tmp_path],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for uri, text in pages.items():
        page = (tmp_path / uri).with_suffix(".html").read_text()
        assert [name for name in entries(text) if f'id="{name}"' not in page] == []
    front = (tmp_path / "index.html").read_text()
    assert 'href="linear.html"' in front
    assert 'href="repository/notebooks/tour.ipynb"' in front
    assert (tmp_path / "repository/notebooks/tour.ipynb").is_file()
    ops = re.sub("<[^>]+>", "", (tmp_path / "reference/ops.html").read_text())
    assert 'q: Float[Array, "*b t h d"]' in html.unescape(ops)
    outside = re.compile(r"<(?:script|link|img)\b[^>]*(?:src|href)=\"(\w+:[^\"]*)")
    for page in tmp_path.rglob("*.html"):
        assert outside.findall(page.read_text()) == [], page
    with opened((tmp_path / "index.html").as_uri()) as (page, complaints, requests):
        page.locator(".md-search__input").fill("exclude_self")
        page.locator(".md-search-result__item").first.wait_for()
        entry = page.locator(".md-search-result__link").nth(1)
        assert entry.inner_text().startswith("exclude_self")
        assert "reference/ops.html#" in str(entry.get_attribute("href"))
        assert (complaints, requests) == ([], [])
