"""docs/results.md and the sentences in it."""

from experiments import report
from experiments.compare.claims import claims


def row(model: str, *bits: float) -> dict:
    return {
        "model": model,
        "runs": [{"validation_bits_per_byte": value} for value in bits],
    }


def held(*rows: dict) -> list[str]:
    return [claim.held for claim in claims({"rows": rows})]


def test_the_page_is_made_from_the_files_beside_it():
    assert report.REPORT.read_text(encoding="utf-8") == report.report()


def test_a_claim_needs_both_models():
    assert held(row("softmax", 2.5)) == []


def test_a_claim_holds_or_not_by_the_lower_loss():
    assert held(row("softmax", 2.5), row("linear", 2.6)) == ["yes (one seed)"]
    assert held(row("softmax", 2.5), row("linear", 2.4)) == ["no (one seed)"]


def test_a_claim_is_looked_at_seed_by_seed():
    softmax = row("softmax", 2.3, 2.7)
    assert held(softmax, row("linear", 2.4, 2.8)) == ["yes (2 of 2 seeds)"]
    assert held(softmax, row("linear", 2.6, 2.6)) == ["undecided (1 of 2 seeds)"]
