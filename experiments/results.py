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

from experiments.common.errors import UserError, fail
from experiments.common.interrupts import complain
from experiments.common.programs import parser_of
from experiments.common.workdir import read_json, write_text

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "docs" / "results"
FIGURES = ROOT / "docs" / "figures"
PAGE = ROOT / "docs" / "results.md"

INTRODUCTION = """\
# Results

Written by `python -m experiments.results` from `docs/results/<experiment>/*.json`. Each
file is the results.json of one run, with its config, versions and numbers.
"""


def page(sources: Path = SOURCES) -> str:
    """The page: a section for each file."""
    return "\n".join([INTRODUCTION, *map(_section, _documented(sources))])


def _documented(sources: Path = SOURCES) -> Iterator[dict[str, Any]]:
    for path in sorted(sources.glob("*/*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))


def take(workdir: Path) -> None:
    """Copy the results of a run to docs, and draw its figures there."""
    source = workdir / "results.json"
    results = read_json(source)
    if results is None:
        expected = "the directory of a finished run, with its results.json"
        fail("RUN", str(workdir), expected, "pass runs/EXPERIMENT/PRESET")
    copy = SOURCES / results["experiment"] / f"{_title(results)}.json"
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, copy)
    draw(results)


def draw(results: Mapping[str, Any]) -> None:
    """Draw a run's figures in docs, in 256 colours: files are a third as large."""
    with tempfile.TemporaryDirectory() as folder:
        for path in _module(results, "plot").draw(results, Path(folder)):
            with Image.open(path) as image:
                few = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
            few.save(_figure(results, path.stem), optimize=True)


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
    """Write the page and return the exit code; 2 is a run that isn't there."""
    parser = parser_of("python -m experiments.results", __doc__)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="directory of a run")
    parser.add_argument("--figures", action="store_true", help="draw all of them again")
    chosen = parser.parse_args(arguments)
    try:
        for run in chosen.runs:
            take(Path(run))
        for results in _documented() if chosen.figures else ():
            draw(results)
    except (UserError, ValueError, OSError) as error:
        return complain(error, 2)
    write_text(PAGE, page())
    print(PAGE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
