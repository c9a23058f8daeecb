"""docs/results.md, from the results.json files that docs/results holds.

    python -m experiments.results                     write the page again
    python -m experiments.results runs/compare/demo   take a run into it first
    python -m experiments.results --figures           draw all figures again

A run with several seeds stands beside one with a single seed, and so does one that
names itself otherwise than by its preset.
"""

import importlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from experiments.common import listing
from experiments.common.errors import check_name, fail
from experiments.common.programs import exit_code, parser_of
from experiments.common.workdir import differences, read_json, write_json, write_text
from experiments.report.runs import readable

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "docs" / "results"
FIGURES = ROOT / "docs" / "figures"
PAGE = ROOT / "docs" / "results.md"

INTRODUCTION = """\
# Results

Written by `python -m experiments.results` from `docs/results/<experiment>/*.json`. Each
file is the results.json of one run, with its config, versions and numbers.
"""


def page(sources: Path | None = None) -> str:
    """The page: a section for each file; None is those of docs."""
    return "\n".join([INTRODUCTION, *map(_section, _documented(sources or SOURCES))])


def _documented(sources: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(sources.glob("*/*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))


def take(run: Path, *, title: str | None = None, replace: bool = False) -> None:
    """Put the results of a run into docs, and its figures; all of it or nothing.

    title: in place of the run's own, or of its preset.
    replace: whether a run of another config may lose its place.
    """
    source = run if run.is_file() else run / "results.json"
    with readable(source), tempfile.TemporaryDirectory() as folder:
        results = _finished(source)
        if title is not None:
            results["title"] = title
        name = f"{results['experiment']}/{_title(results)}.json"
        copy = SOURCES / name
        if copy.parent.parent != SOURCES or copy.name.startswith("."):
            fail("title", repr(_title(results)), "the name of a file", "pass --title")
        there = None if replace else read_json(copy)
        other = differences(there["config"], results["config"]) if there else []
        if other:
            got = f"{source}, while {name} is of another config ({'; '.join(other)})"
            remedy = "pass --title NAME to put it beside that, or --replace"
            fail("RUN", got, "the same run made again", remedy)
        _section(results)
        figures = _drawn(results, Path(folder))
        write_json(copy, results)
        _put(figures)


def draw(results: Mapping[str, Any]) -> None:
    """Draw a run's figures in docs."""
    with tempfile.TemporaryDirectory() as folder:
        _put(_drawn(results, Path(folder)))


def _finished(source: Path) -> dict[str, Any]:
    results = read_json(source)
    if results is None:
        expected = "a finished run, with its results.json"
        fail("RUN", str(source.parent), expected, "pass runs/EXPERIMENT/PRESET")
    name = str(results.get("experiment"))
    check_name("RUN", name, listing.names(), remedy="pass one of these")
    return results


def _drawn(results: Mapping[str, Any], folder: Path) -> dict[Path, Path]:
    """Figures in 256 colours, a third as large then, and where they belong."""
    found = {}
    for path in _module(results, "plot").draw(results, folder):
        with Image.open(path) as image:
            few = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
        found[path] = _figure(results, path.stem)
    return found


def _put(figures: Mapping[Path, Path]) -> None:
    for drawn, place in figures.items():
        shutil.copyfile(drawn, place)


def _title(results: Mapping[str, Any]) -> str:
    """The run's own title or its preset, and how many seeds where there are several."""
    seeds = len(results["config"]["seeds"])
    return results.get("title", results["preset"]) + (
        f"-seeds{seeds}" if seeds > 1 else ""
    )


def _figure(results: Mapping[str, Any], name: str) -> Path:
    return FIGURES / f"{results['experiment']}-{_title(results)}-{name}.png"


def _module(results: Mapping[str, Any], name: str) -> Any:
    """A module of the experiment."""
    return importlib.import_module(f"experiments.{results['experiment']}.{name}")


def _section(results: Mapping[str, Any]) -> str:
    table = _module(results, "table")
    papers = _module(results, "claims")
    claims = papers.claims(results)
    figures = [
        f"![{name}](figures/{_figure(results, name).name})"
        for name in results.get("figures") or _module(results, "plot").FIGURES
    ]
    parts = [
        f"## {results['experiment']}, {_title(results)}",
        table.scale(results),
        table.markdown(results),
        "\n".join(f"- {note}" for note in table.notes(results)),
        "\n".join(figures),
        _claims_table(papers.CAUTION, claims) if claims else "",
    ]
    return "\n".join(f"{part.rstrip()}\n" for part in parts if part)


def _claims_table(caution: str, claims: list[Any]) -> str:
    lines = [
        caution,
        "",
        "| claim | paper | its number | here | held |",
        "|:--|:--|:--|:--|:--|",
        *(f"| {' | '.join(claim)} |" for claim in claims),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page and return the exit code; 2 is a run that can't be taken."""
    parser = parser_of("python -m experiments.results", __doc__)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="a finished run")
    parser.add_argument("--title", metavar="NAME", help="of a run, in place of its own")
    parser.add_argument(
        "--replace", action="store_true", help="take the place of another config"
    )
    parser.add_argument("--figures", action="store_true", help="draw all of them again")
    chosen = parser.parse_args(arguments)

    def write() -> None:
        if chosen.title and len(chosen.runs) != 1:
            fail("--title", f"{len(chosen.runs)} runs", "a single one", "name it alone")
        for run in chosen.runs:
            take(Path(run), title=chosen.title, replace=chosen.replace)
        for results in _documented(SOURCES) if chosen.figures else ():
            draw(results)
        write_text(PAGE, page())
        print(PAGE.relative_to(ROOT))

    return exit_code(write, PAGE)


if __name__ == "__main__":
    sys.exit(main())
