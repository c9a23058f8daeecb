"""What the documentation's site holds beside docs/, as a hook of MkDocs.

README.md is the front page, CONTRIBUTING.md and CHANGELOG.md are pages. The reference
has a page a package with an entry a public name, read from `__all__` without importing
anything. A file of the repository that a page links to is copied into the site, so that
every link that works beside the files works there too; one that leads nowhere is left
as it is, and the strict build refuses it.
"""

from __future__ import annotations

import ast
import os
import re
from itertools import groupby
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
# In the order of the arrows of imports; the page of the package itself comes first.
PACKAGES = (
    "ops",
    "nn",
    "models",
    "analysis",
    "decoding",
    "data",
    "train",
    "interop",
    "testing",
)
LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")

# Two brackets in a row, or code, where they mean nothing.
BRACKETS = re.compile(r"```.*?```|`[^`\n]*`|\]\[", re.DOTALL)


def place(path: Path) -> str:
    """Where the site has a file of the repository."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    inside = path.relative_to(ROOT).as_posix()
    return PAGES.get(inside, f"repository/{inside}")


def targets(markdown: str, source: Path) -> dict[str, Path]:
    """Links of a page to files of the repository that are there."""
    found = {}
    for link in LINK.findall(markdown):
        path = Path(os.path.normpath(source.parent / link))
        if path.is_file() and path.is_relative_to(ROOT):
            found[link] = path
    return found


def relink(markdown: str, source: Path, uri: str) -> str:
    """A page with its links led to where the site has what they mean."""
    known = targets(markdown, source)

    def lead(match: re.Match[str]) -> str:
        link = match.group(1)
        if link not in known:
            return link
        return os.path.relpath(place(known[link]), os.path.dirname(uri) or ".")

    return LINK.sub(lead, markdown)


def public_names(module: Any) -> list[str]:
    """What `__all__` says, or else the functions and classes defined here."""
    if "_LAZY" in module.members:
        lazy = ast.literal_eval(str(module.members["_LAZY"].value))
        own = (name for name in module.exports or () if isinstance(name, str))
        return sorted({*lazy, *own})
    if module.exports is not None:
        return sorted(str(name) for name in module.exports)
    return sorted(
        name
        for name, member in module.members.items()
        if not name.startswith("_")
        and not member.is_alias
        and (member.is_function or member.is_class)
    )


def find(module: Any, name: str) -> Any:
    """A public name; what is imported goes before a file of the same name."""
    member = module.members[name]
    if member.is_module and module.imports.get(name) == f"{member.path}.{name}":
        return member.members[name]
    return member


def entries(module: Any, names: list[str]) -> str:
    """One entry a name, under what the module that defines it says of itself."""

    def home(name: str) -> Any:
        member = find(module, name)
        return (member.final_target if member.is_alias else member).parent

    parts = []
    ordered = sorted(names, key=lambda name: (home(name).path, name))
    for definer, group in groupby(ordered, key=home):
        if definer is not module:
            parts.append(f"## {summary(definer)}")
        parts += [f"::: {find(module, name).path}" for name in group]
    return "\n\n".join(parts)


def summary(module: Any) -> str:
    """The first sentence of a module's docstring, as a heading."""
    return module.docstring.value.split("\n\n")[0].replace("\n", " ").rstrip(".")


def package_page(package: Any) -> str:
    """The reference of a package; a public module in it is a part of the page."""
    text = [f"# {package.path}", package.docstring.value]
    plain, modules = [], []
    for name in public_names(package):
        member = find(package, name)
        (modules if member.is_module else plain).append(name)
    text.append(entries(package, plain))
    for name in modules:
        module = package.members[name]
        text += [f"## {module.path}", module.docstring.value]
        text.append(entries(module, public_names(module)).replace("## ", "### "))
    return "\n\n".join(part for part in text if part) + "\n"


def front_page(package: Any) -> str:
    """The reference's own front page: what `attn_jax` holds besides its packages."""
    names = [name for name in public_names(package) if name not in PACKAGES]
    rows = [
        f"- [attn_jax.{name}]({name}.md): {summary(package.members[name])}."
        for name in PACKAGES
    ]
    own = "\n\n".join(f"::: attn_jax.{name}" for name in names)
    return (
        f"# attn_jax\n\n{package.docstring.value}\n\n"
        + "\n".join(rows)
        + f"\n\n{own}\n"
    )


def reference() -> dict[str, str]:
    """Every page of the reference, by its place in the site."""
    package = griffe.load("attn_jax", search_paths=[ROOT], resolve_aliases=True)
    pages = {"reference/attn_jax.md": front_page(package)}
    for name in PACKAGES:
        pages[f"reference/{name}.md"] = package_page(package.members[name])
    return pages


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages and files that don't lie in docs/."""
    for source, uri in PAGES.items():
        content = (ROOT / source).read_text()
        files.append(
            File.generated(config, uri, content=relink(content, ROOT / source, uri))
        )
    for uri, content in reference().items():
        files.append(File.generated(config, uri, content=content))
    sources = [*map(ROOT.joinpath, PAGES), *DOCS.glob("**/*.md")]
    linked = {
        path
        for source in sources
        for path in targets(source.read_text(), source).values()
    }
    for path in sorted(linked):
        uri = place(path)
        if uri.startswith("repository/"):
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leads the links of a page of docs/ to where the site has what they mean."""
    source = DOCS / page.file.src_uri
    if not source.is_file():
        return markdown
    # A pattern of file names such as c[a-r][0-9] is no reference to a link.
    plain = BRACKETS.sub(lambda m: r"]\[" if m.group() == "][" else m.group(), markdown)
    return relink(plain, source, page.file.src_uri)
