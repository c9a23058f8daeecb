"""Every promise has a test or a reason, and the page says what is so."""

import pytest

from attn_jax import nn
from tests.contract.ceilings import CEILINGS
from tests.contract.lines import NUMBERS, missing, read
from tests.contract.page import PAGE, page, results

AGAIN = "run `make contract`"


def test_every_promise_stands_once():
    assert len(NUMBERS) == 93
    assert list(read("lines")) == list(NUMBERS)
    assert list(read("laws")) == list(range(1, 9))


@pytest.mark.parametrize("name", ["lines", "laws"])
def test_tests_that_are_named_exist(name):
    for number, entry in read(name).items():
        tests = entry.get("tests", [])
        assert missing(tests) == [], number
        assert len(set(tests)) == len(tests), number
        assert bool(tests) != bool(entry.get("absent")), number


def test_a_test_that_is_gone_is_missed():
    assert missing(["tests/contract/test_page.py::test_nothing"]) != []
    assert missing(["tests/contract/nowhere.py::test_nothing[1]"]) != []


def test_the_page_is_made_from_what_lies_beside_it():
    assert PAGE.read_text(encoding="utf-8") == page(results()), AGAIN


def test_every_row_of_the_table_is_held_to_every_law():
    rows = [n + e for n in nn.MECHANISMS for e in ("", "+exclusive")]
    assert results()["mechanisms"] == rows, AGAIN
    for law, counts in results()["laws"].items():
        for name in nn.MECHANISMS:
            assert counts[name] > 0, f"law {law}, {name}: {AGAIN}"


def test_recorded_errors_stay_below_their_ceilings():
    for dtype, ceiling in CEILINGS.items():
        errors = results()["errors"][dtype]
        for name in results()["mechanisms"]:
            assert errors[name] <= ceiling, f"{name} in {dtype}"
