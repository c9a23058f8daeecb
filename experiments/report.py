"""docs/results.md, from the results.json files that docs/results holds.

python -m experiments.report
"""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "docs" / "results"
REPORT = ROOT / "docs" / "results.md"

INTRODUCTION = """\
# Results

Written by `python -m experiments.report` from `docs/results/<experiment>/*.json`. Each
file is the results.json of one run, with its config, versions and numbers.
"""


def report(sources: Path = SOURCES) -> str:
    """The page: a section for each file."""
    files = sorted(sources.glob("*/*.json"))
    sections = [
        _section(json.loads(path.read_text(encoding="utf-8"))) for path in files
    ]
    return "\n".join([INTRODUCTION, *sections])


def _section(results: Mapping[str, Any]) -> str:
    name, preset = results["experiment"], results["preset"]
    table = importlib.import_module(f"experiments.{name}.table")
    claims = importlib.import_module(f"experiments.{name}.claims").claims(results)
    figures = [
        f"![{figure}](figures/{name}-{preset}-{figure}.png)"
        for figure in importlib.import_module(f"experiments.{name}.plot").FIGURES
    ]
    parts = [
        f"## {name}, {preset}",
        _scale(results),
        table.markdown(results),
        table.notes(results).replace("\n", "  \n"),
        "\n".join(figures),
        _claims_table(claims) if claims else "",
    ]
    return "\n".join(f"{part.rstrip()}\n" for part in parts if part)


def _scale(results: Mapping[str, Any]) -> str:
    """How large the run was, where and with what."""
    config, corpus, device = results["config"], results["corpus"], results["device"]
    versions, seconds = results["versions"], results["seconds"]
    tokens = config["steps"] * config["batch_size"] * config["length"]
    seeds = len(config["seeds"])
    return (
        f"`{results['command']}` at commit {results['commit'] or 'unknown'}, "
        f"{device['kind']} ({device['cores']} cores), jax {versions['jax']}. "
        f"{config['num_layers']} layers of width {config['d_model']}; "
        f"{config['steps']:,} steps of {config['batch_size']} x {config['length']} "
        f"bytes, {tokens / 1e6:.1f} MB in all; {seeds} seed{'s' * (seeds > 1)}. Text: "
        f"{corpus['name']}, {corpus['training_bytes'] / 1e6:.1f} MB. Training took "
        f"{seconds['training']:.0f} s, compiling {seconds['compiling']:.0f} s.\n"
    )


def _claims_table(claims: list[Any]) -> str:
    lines = [
        "Losses are bits per byte on validation text. Much smaller models, trained "
        "for minutes: what holds here may not hold at a paper's scale, nor the other "
        "way round.",
        "",
        "| claim | paper | its number | here | held |",
        "|:--|:--|:--|:--|:--|",
        *(f"| {' | '.join(claim)} |" for claim in claims),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    REPORT.write_text(report(), encoding="utf-8")
    print(REPORT.relative_to(ROOT))
