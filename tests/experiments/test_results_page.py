"""docs/results.md and the sentences in it."""

import copy
import json

import pytest

from experiments import results as results_page
from experiments.common.figures import redraw
from experiments.common.workdir import write_json
from experiments.compare.claims import claims
from experiments.compare.table import notes

DEMO = json.loads((results_page.SOURCES / "compare" / "demo.json").read_text("utf-8"))


def row(model: str, *bits: float) -> dict:
    return {
        "model": model,
        "runs": [{"validation_bits_per_byte": value} for value in bits],
    }


def held(*rows: dict) -> list[str]:
    return [claim.held for claim in claims({"rows": rows})]


def test_the_page_is_made_from_the_files_beside_it():
    assert results_page.PAGE.read_text(encoding="utf-8") == results_page.page()


def test_a_claim_needs_both_models():
    assert held(row("softmax", 2.5)) == []


def test_a_claim_holds_or_not_by_the_lower_loss():
    assert held(row("softmax", 2.5), row("linear", 2.6)) == ["yes (one seed)"]
    assert held(row("softmax", 2.5), row("linear", 2.4)) == ["no (one seed)"]


def test_a_claim_is_looked_at_seed_by_seed():
    softmax = row("softmax", 2.3, 2.7)
    assert held(softmax, row("linear", 2.4, 2.8)) == ["yes (2 of 2 seeds)"]
    assert held(softmax, row("linear", 2.6, 2.6)) == ["undecided (1 of 2 seeds)"]


def test_a_row_that_was_trained_in_stages_is_marked():
    results = copy.deepcopy(DEMO)
    assert not any("in stages" in note for note in notes(results))
    results["rows"][2]["runs"][0]["stages"] = [20, 40]
    marked = [note for note in notes(results) if "in stages" in note]
    assert len(marked) == 1
    assert marked[0].startswith(f"{results['rows'][2]['model']}: ")


def test_figures_are_drawn_again_from_results_of_their_own(tmp_path, capsys):
    source = tmp_path / "results.json"
    calls = [["nowhere.json"], [], [str(source)]]
    source.write_text('{"experiment": "compare"}')
    assert [redraw("linear_copy", list, call) for call in calls] == [2, 2, 2]
    said = capsys.readouterr().err
    for words in ("nowhere.json, which is not there", "got 0 paths", "which is none"):
        assert words in said
    assert redraw("compare", lambda results, folder: [folder], calls[2]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'figures'}\n"


def test_a_run_that_names_itself_stands_under_that_name():
    results = {"preset": "small", "config": {"seeds": [0]}}
    assert results_page._title(results) == "small"
    assert results_page._title(results | {"title": "small-linear"}) == "small-linear"
    seeds = {"config": {"seeds": [0, 1]}}
    assert results_page._title(results | seeds) == "small-seeds2"


@pytest.fixture
def docs(tmp_path, monkeypatch):
    """Docs of our own, with the demo, and a run of another config to be taken."""
    for name in ("SOURCES", "FIGURES"):
        monkeypatch.setattr(results_page, name, tmp_path / name)
        (tmp_path / name).mkdir()
    monkeypatch.setattr(results_page, "ROOT", tmp_path)
    monkeypatch.setattr(results_page, "PAGE", tmp_path / "page.md")
    run = tmp_path / "run"
    write_json(run / "results.json", DEMO)
    assert results_page.main([str(run)]) == 0
    changed = {**DEMO, "config": {**DEMO["config"], "steps": 40}}
    write_json(run / "results.json", changed)
    return tmp_path, run


def there(folder):
    files = (path for path in folder.rglob("*") if path.suffix in (".json", ".png"))
    return sorted(str(path.relative_to(folder)) for path in files)


def test_a_run_of_another_config_stands_beside_or_replaces(docs, capsys):
    folder, run = docs
    assert there(folder / "SOURCES") == ["compare/demo.json"]
    assert len(there(folder / "FIGURES")) == 2
    assert results_page.main([str(run)]) == 2
    said = capsys.readouterr().err
    assert "compare/demo.json is of another config (steps: 1800 there, 40 now)" in said
    assert results_page.main([str(run / "results.json"), "--title", "short"]) == 0
    assert there(folder / "SOURCES") == ["compare/demo.json", "compare/short.json"]
    page = (folder / "page.md").read_text("utf-8")
    assert "## compare, demo" in page
    assert "## compare, short" in page
    assert results_page.main([str(run), "--replace"]) == 0
    kept = json.loads((folder / "SOURCES" / "compare" / "demo.json").read_text("utf-8"))
    assert kept["config"]["steps"] == 40


def test_what_cannot_be_taken_leaves_nothing(docs, capsys):
    folder, run = docs
    before = there(folder / "SOURCES") + there(folder / "FIGURES")
    wrong = {
        "whose files don't fit (TypeError": {**DEMO, "preset": "bad", "rows": None},
        "RUN: got 'nothing'; expected one of compare": {
            **DEMO,
            "experiment": "nothing",
        },
        "title: got 'x/../../up'": {**DEMO, "title": "x/../../up"},
    }
    for words, results in wrong.items():
        write_json(run / "results.json", results)
        assert results_page.main([str(run)]) == 2
        assert words in capsys.readouterr().err
    assert there(folder / "SOURCES") + there(folder / "FIGURES") == before
    assert not (folder / "up.json").exists()
