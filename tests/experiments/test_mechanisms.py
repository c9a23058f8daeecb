"""Mechanisms by name: of the table, fixed ones, and mixtures."""

import pytest

from attn_jax.nn import (
    MECHANISMS,
    DenseSynthesizer,
    MixtureSynthesizer,
    RandomSynthesizer,
    Softmax,
)
from experiments.common.mechanisms import mechanism_named
from experiments.synthesizer.config import ROWS
from experiments.synthesizer.paper import TABLE
from experiments.synthesizer.rows import parse_rows


def test_names_of_the_table_are_its_own():
    for name, kind in MECHANISMS.items():
        assert mechanism_named(name) == kind()


def test_fixed_ones_differ_in_how_they_are_drawn():
    assert mechanism_named("fixed_random") == RandomSynthesizer(trainable=False)
    wide = RandomSynthesizer(trainable=False, init_std=1.0)
    assert mechanism_named("fixed_random_wide") == wide


def test_a_plus_is_a_mixture_in_the_order_of_the_names():
    members = (DenseSynthesizer(), Softmax(), RandomSynthesizer(trainable=False))
    mixed = mechanism_named("dense+softmax+fixed_random")
    assert mixed == MixtureSynthesizer(members=members)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fixed_randm", "did you mean 'fixed_random'"),
        ("random+sofmax", "got 'sofmax'; did you mean 'softmax'"),
        ("random+", "got ''"),
        ("linear+random", "no logits to mix"),
    ],
)
def test_a_part_that_is_none_is_named(name, message):
    with pytest.raises(ValueError, match=message):
        mechanism_named(name)


def test_the_paper_has_numbers_for_all_rows_of_the_default():
    assert tuple(TABLE) == ROWS
    rows = parse_rows([*ROWS, "random@16"])
    assert [row.heads(4) for row in rows] == [4] * len(ROWS) + [16]
