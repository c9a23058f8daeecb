"""Notebooks run, at a smaller size, and each says what its script says."""

import ast
import importlib.util
from pathlib import Path

import pytest

from tests.interop import small

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "notebooks").glob("*.py"))
# What the cell with the tag "parameters" sets, made small.
SMALL = {
    "compose": {"t": 3, "gradients": False, "depth": 1, "steps": 1, "seeds": 1},
    "eigen": {"examples": 40, "n": 16},
    "encoder": {"length": 8, "count": 64, "rank": 2},
    "exclusive": {"t": 8, "levels": (0.0, 1.0)},
    "leaks": {"t": 4, "suspects": (2, 4)},
    "linear": {"t": 8, "lengths": (8,), "repeats": 1},
    "sharded": {"steps": 1, "d_model": 16},
    "synthesizer": {"t": 8},
    "tour": {"t": 12, "layers": ("random",)},
    "transformer": {"steps": 1, "widths": (4,)},
}


def tool():
    """tools/notebooks.py, which is no package."""
    path = ROOT / "tools" / "notebooks.py"
    spec = importlib.util.spec_from_file_location("tools_notebooks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_a_notebook_is_its_script_without_outputs(path):
    """`make notebooks` writes it anew."""
    written = path.with_suffix(".ipynb").read_text()
    assert written == tool().notebook(path.read_text())


def run(source, names, path):
    """Run a cell; the value of its last line is what a notebook would show."""
    *before, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        return exec(compile(source, path, "exec"), names)
    exec(compile(ast.Module(before, []), path, "exec"), names)
    return eval(compile(ast.Expression(last.value), path, "eval"), names)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    """Cell by cell; it shows a figure at least."""
    monkeypatch.chdir(tmp_path)
    names, shown, settings = {"__name__": "__main__"}, 0, SMALL[path.stem]
    if path.stem == "encoder":
        settings = {**settings, "folder": str(small.make(tmp_path))}
    for cell in tool().cells(path.read_text()):
        if cell["cell_type"] != "code":
            continue
        value = run("".join(cell["source"]), names, str(path))
        if cell["metadata"].get("tags") == ["parameters"]:
            assert settings.keys() <= names.keys()
            names.update(settings)
        if hasattr(value, "_repr_png_"):
            shown += 1
    assert shown


def test_a_cell_that_fails_fails_the_test():
    with pytest.raises(ZeroDivisionError):
        run("x = 0\n1 / x", {}, "a cell")
    assert run("x = 2\nx + 1", {}, "a cell") == 3
