"""What is made of results: growth, targets, the page."""

import pytest

from benchmarks import report, results, targets


def test_the_page_is_made_from_the_results_beside_it():
    found = results.read(report.SOURCE)
    assert report.PAGE.read_text(encoding="utf-8") == report.page(found)


def test_growth_is_the_exponent_of_a_power():
    points = [(n, 3.0 * n**1.5) for n in (2, 8, 64, 128)]
    assert results.growth(points) == pytest.approx(1.5)
    assert results.growth(points[:2]) is None


def test_growth_of_time_is_that_of_a_row_of_tokens():
    rows = [
        {"name": "a", "direction": "both", "n": n, "batch": 2**14 // n, "samples": [s]}
        for n, s in ((2**9, 99.0), (2**11, 1.0), (2**12, 2.0), (2**13, 4.0))
    ]
    # Twice the time for half the rows, twice as long: n squared.
    assert results.time_growth({"sweep": rows}, "a", "both") == pytest.approx(2.0)


def softmax(*rows):
    sweep = [
        {"name": name, "direction": "forward", "n": 8192, "samples": samples}
        for name, samples in rows
    ]
    return [t for t in targets.targets({"sweep": sweep}) if t.held is not None]


def test_a_target_is_judged_by_medians_and_shows_minima():
    ours, theirs = ("softmax", [1.0, 1.0, 9.0]), ("jax.nn", [6.0, 9.0, 9.0])
    (target,) = softmax(ours, theirs)
    assert target.measured == "9.00x (minima 6.00x)"
    assert target.held
    assert not softmax(ours, ("jax.nn", [6.0, 7.0, 9.0]))[0].held


def test_a_limit_is_a_limit_and_not_a_gain():
    ours = ("softmax", [1.4])
    assert not softmax(ours, ("torch", [1.0]))[0].held
    assert softmax(ours, ("torch", [1.2]))[0].held


def test_what_was_not_measured_neither_held_nor_missed():
    found = targets.targets({"sweep": []})
    assert {target.held for target in found} == {None}
    assert {target.measured for target in found} == {"not measured"}
