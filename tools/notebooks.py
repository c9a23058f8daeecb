"""Writes each notebook anew from its script, without outputs.

`python tools/notebooks.py` makes notebooks/NAME.ipynb of notebooks/NAME.py. A script is
in Jupytext's percent format, so that Jupyter with Jupytext, from the extra `notebooks`,
keeps the pair in step while one of them is edited; this drops what cells have put out.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
METADATA = {"jupytext": {"formats": "ipynb,py:percent"}, "kernelspec": KERNEL}
# A cell's first line: what kind it is, and its tags.
FIRST = re.compile(r"^# %%( \[markdown\])?(?: tags=(\[.*\]))?$", re.M)


def cells(script: str) -> list[dict[str, Any]]:
    """The cells of a percent script, as nbformat has them."""
    found = list(FIRST.finditer(script))
    ends = [mark.start() for mark in found[1:]] + [len(script)]
    return [
        _cell(i, script[mark.end() : end].strip("\n"), *mark.groups())
        for i, (mark, end) in enumerate(zip(found, ends, strict=True))
    ]


def _cell(i: int, text: str, markdown: str | None, tags: str | None) -> dict[str, Any]:
    metadata = {"tags": json.loads(tags)} if tags else {}
    if markdown:
        text = re.sub(r"^# ?", "", text, flags=re.M)
    cell = {"id": f"cell-{i}", "metadata": metadata}
    cell["source"] = text.splitlines(keepends=True)
    if markdown:
        return {"cell_type": "markdown", **cell}
    return {"cell_type": "code", "execution_count": None, "outputs": [], **cell}


def notebook(script: str) -> str:
    """The text of the .ipynb."""
    content = {
        "cells": cells(script),
        "metadata": METADATA,
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Writes the notebooks that differ, and names them."""
    for path in sorted(FOLDER.glob("*.py")):
        wanted, target = notebook(path.read_text("utf-8")), path.with_suffix(".ipynb")
        if not target.exists() or target.read_text("utf-8") != wanted:
            target.write_text(wanted, "utf-8")
            print(target)


if __name__ == "__main__":
    main()
