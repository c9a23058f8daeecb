"""docs/results.md and the sentences in it."""

import json

from experiments import results as results_page
from experiments.common.figures import redraw
from experiments.compare.claims import claims
from experiments.compare.table import notes


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
    demo = results_page.SOURCES / "compare" / "demo.json"
    results = json.loads(demo.read_text("utf-8"))
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
