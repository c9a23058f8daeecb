"""What experiments there are, from what each says of itself.

The first line of a package's docstring is what it shows; the table in that of its
config.py, which begins with "preset" or "study", is what its presets are, on which
hardware and for how long. Nothing is imported: the list is there before what the
experiments need is.
"""

import ast
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
HEADER = re.compile(r"^ +(preset|study)  .*\bminutes\b.*", re.M)
CALLED = re.compile(r'^if __name__ == "__main__":', re.M)
CELL = re.compile(r"\S+(?: \S+)*")
# What makes a folder an experiment; others with a __main__.py are programs.
CONFIG = "config.py"
MAIN = "__main__.py"


class Preset(NamedTuple):
    """A row of an experiment's own table."""

    name: str
    what: str
    hardware: str
    minutes: str


class Experiment(NamedTuple):
    """What `python -m experiments.NAME` runs."""

    name: str
    shows: str
    default: str
    presets: list[Preset]


class Program(NamedTuple):
    """What can be called beside the experiments."""

    module: str
    does: str


def experiments(root: Path = ROOT) -> list[Experiment]:
    """Every folder that has presets."""
    return [_experiment(root / name) for name in names(root)]


def names(root: Path = ROOT) -> list[str]:
    """Of the experiments, without reading what they say of themselves."""
    return sorted(path.parent.name for path in root.glob(f"*/{CONFIG}"))


def programs(root: Path = ROOT) -> list[Program]:
    """What prepares data, writes pages or looks at something without a training."""
    found = []
    for path in sorted([*root.glob("*.py"), *root.glob("*/*.py")]):
        if _is_beside(path, root) and CALLED.search(path.read_text("utf-8")):
            parts = path.relative_to(root).with_suffix("").parts
            named = [part for part in parts if part != "__main__"]
            module = ".".join(("experiments", *named))
            found.append(Program(module, _docstring(path).partition("\n")[0]))
    return found


def find(name: str, root: Path = ROOT) -> Experiment | None:
    """An experiment by its name; None where there is none."""
    folder = root / name
    return _experiment(folder) if (folder / CONFIG).is_file() else None


def table(docstring: str) -> list[Preset]:
    """The rows of the table of presets in a docstring; none where there is no table.

    Columns begin where their headers do, and are two blanks apart. A line without a
    name goes on with the row before it. Columns between name, hardware and minutes say
    together what a preset is. Minutes may be "minutes a model" or "minutes on 1 core";
    a cell there without a number is hardware.
    """
    header = HEADER.search(docstring)
    if header is None:
        return []
    cells = [(cell.start(), cell.group()) for cell in CELL.finditer(header.group())]
    starts = [start for start, _ in cells]
    names = [name for _, name in cells]
    rows: list[list[str]] = []
    for line in docstring[header.end() :].splitlines()[1:]:
        if not line.strip():
            break
        ends = [*starts[1:], len(line)]
        row = [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        if row[0]:
            rows.append(row)
        else:
            rows[-1] = [
                f"{old} {new}".strip() for old, new in zip(rows[-1], row, strict=True)
            ]
    return [_preset(dict(zip(names, row, strict=True))) for row in rows]


def lines(presets: Sequence[Preset], default: str, width: int = 88) -> list[str]:
    """Presets as aligned lines, the default marked."""
    mark = "" if default == "default" else " (default)"
    named = [each.name + mark * (each.name == default) for each in presets]
    spent = [_duration(each.minutes) for each in presets]
    widths = [
        max(map(len, column), default=0)
        for column in (named, [each.hardware for each in presets], spent)
    ]
    room = max(width - sum(widths) - 8, 24)
    found = []
    for name, each, time in zip(named, presets, spent, strict=True):
        first, *rest = textwrap.wrap(each.what, room) or [""]
        found.append(
            f"  {name:{widths[0]}}  {first:{room}}  {each.hardware:{widths[1]}}  "
            f"{time}".rstrip()
        )
        found += [f"  {'':{widths[0]}}  {line}" for line in rest]
    return found


def page(chosen: Iterable[Experiment], beside: Iterable[Program]) -> str:
    """The list as text."""
    parts = []
    for each in chosen:
        heading = textwrap.fill(f"{each.name}: {each.shows}", 88)
        parts.append("\n".join([heading, *lines(each.presets, each.default)]))
    rows = list(beside)
    if rows:
        width = max(len(each.module) for each in rows)
        named = [
            textwrap.fill(
                f"  {each.module:{width}}  {each.does}",
                88,
                subsequent_indent=" " * (width + 4),
            )
            for each in rows
        ]
        parts.append("\n".join(["Beside them, each with --help:", *named]))
    return "\n\n".join(parts)


def _is_beside(path: Path, root: Path) -> bool:
    """Neither what lists them, nor an experiment, nor its figures drawn again."""
    if path.name == MAIN:
        return path.parent != root and not (path.parent / CONFIG).exists()
    return path.name != "plot.py"


def _experiment(folder: Path) -> Experiment:
    return Experiment(
        folder.name,
        _docstring(folder / "__init__.py").partition("\n")[0],
        _default(folder / "command_line.py"),
        table(_docstring(folder / "config.py")),
    )


def _preset(row: dict[str, str]) -> Preset:
    texts: list[str] = []
    hardware = minutes = ""
    for title, cell in row.items():
        words = title.removeprefix("minutes").strip()
        if title == "hardware":
            hardware = cell
        elif not title.startswith("minutes"):
            texts.append(cell)
        elif not re.search(r"\d", cell):
            hardware = cell or hardware
        elif words.startswith("on "):
            hardware, minutes = words.removeprefix("on "), cell
        else:
            minutes = f"{cell} {words}".strip()
    name, *what = texts
    return Preset(name, ", ".join(filter(None, what)), hardware, minutes)


def _duration(minutes: str) -> str:
    """With the unit: "6 to 7 minutes"; "5 a model" is "5 minutes a model"."""
    number, _, rest = minutes.partition(" a ")
    if not number:
        return ""
    unit = "minute" if number in ("1", "under 1") else "minutes"
    return f"{number} {unit}" + (f" a {rest}" if rest else "")


def _docstring(path: Path) -> str:
    if not path.is_file():
        return ""
    return ast.get_docstring(ast.parse(path.read_text("utf-8")), clean=False) or ""


def _default(path: Path) -> str:
    """The constant DEFAULT of a command line."""
    if not path.is_file():
        return ""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names = [each.id for each in node.targets if isinstance(each, ast.Name)]
            if "DEFAULT" in names:
                return str(node.value.value)
    return ""
