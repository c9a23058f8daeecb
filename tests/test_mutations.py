"""A sample of planted faults is noticed; `make mutations` plants them all."""

import pytest

from tests.contract.lines import missing
from tests.mutations import MUTATIONS, ROOT, SAMPLE, plant


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_every_fault_can_be_planted(mutation):
    assert mutation.apply(ROOT) != (ROOT / mutation.path).read_text(encoding="utf-8")
    assert mutation.tests
    assert missing(mutation.tests) == []


def test_planted_faults_are_noticed():
    assert len(SAMPLE) == 2
    assert [(each.name, wrong) for each, wrong in plant(SAMPLE) if wrong] == []
