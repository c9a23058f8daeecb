"""Names of rows, sinks in front of them, and what is said of the numbers."""

import numpy as np
import pytest
from flax import nnx
from scipy import stats

from attn_jax.data import Batch
from attn_jax.models import Decoder
from experiments.common.claim import paired_difference
from experiments.compare.text import Text, load_text
from experiments.exclusive import overhead, table
from experiments.exclusive.claims import claims
from experiments.exclusive.config import PRESETS, TrainingStudy
from experiments.exclusive.pairs import pairs
from experiments.exclusive.rows import decoder_of, parse_row, parse_rows
from experiments.exclusive.text import with_sinks


def test_a_difference_is_that_of_the_paired_t_test():
    a, b = np.random.default_rng(0).normal(size=(2, 7))
    found = paired_difference([*zip(a, b, strict=True)])
    want = stats.ttest_rel(b, a).confidence_interval(0.95)
    ends = found.mean - found.half, found.mean + found.half
    assert ends == pytest.approx((want.low, want.high))
    assert (found.side, found.count) == (0, 7)


def test_a_row_says_its_model():
    row = parse_row("xsa@size=0.2m@length=8@sinks=2@gate=tanh@layers=last2")
    assert row.partner == "sa@size=0.2m@length=8@sinks=2"
    assert row.whole == "xsa@size=0.2m@length=8@sinks=2"
    made = decoder_of(row, "0.1m", 10, 258)
    assert (made.num_layers, made.max_length, made.vocab_size) == (4, 10, 258)
    assert (made.exclusive, made.exclusive_gate) == (True, "tanh")
    assert [made.at(i).exclusive for i in range(4)] == [False, False, True, True]
    assert (made.embedding_norm, made.init_std, made.tie_embeddings) == (
        True,
        0.02,
        True,
    )
    first, listed = (parse_row(f"xsa@layers={word}") for word in ("first2", "0,3"))
    assert [*first.layers(4)] == [0, 1]
    assert [*listed.layers(4)] == [0, 3]
    plain = decoder_of(parse_row("sa"), "0.1m", 8, 256)
    assert not plain.exclusive
    assert plain.exclusive_layers is None


def test_rows_of_one_seed_begin_with_the_same_values():
    """A gate's own are 0 and draw nothing, so that the others are those without it."""
    plain, gated = (
        nnx.to_flat_state(
            nnx.state(
                Decoder(decoder_of(parse_row(name), "0.1m", 8, 9), rngs=nnx.Rngs(3))
            )
        )
        for name in ("sa", "xsa@gate=tanh@layers=last1")
    )
    more = dict(gated)
    for path, leaf in plain:
        np.testing.assert_array_equal(leaf[...], more.pop(path)[...])
    (gate,) = more.values()
    assert not gate[...].any()


def test_every_study_has_the_rows_that_its_rows_are_compared_with():
    for study in PRESETS.values():
        if isinstance(study, TrainingStudy):
            rows = parse_rows(study.rows)
            asked = {row.partner for row in rows if row.exclusive}
            asked |= {row.whole for row in rows if row.exclusive}
            assert asked <= {row.name for row in rows}, study.preset


def test_sinks_stand_in_front_of_rows_and_count_for_nothing(book):
    config = TrainingStudy(preset="x", data=(str(book),), length=8, batch_size=3)
    text = load_text(config)
    assert with_sinks(text, 0) is text
    sunk = with_sinks(text, 2)
    assert isinstance(sunk, Text)
    assert sunk.vocab_size == 258
    pairs = [(text.training_batch(5, 1), sunk.training_batch(5, 1))]
    pairs += zip(text.validation_batches(), sunk.validation_batches(), strict=True)
    for plain, more in pairs:
        assert isinstance(more, Batch)
        np.testing.assert_array_equal(more.tokens[:, 2:], plain.tokens)
        np.testing.assert_array_equal(more.targets[:, 2:], plain.targets)
        np.testing.assert_array_equal(more.weights[:, 2:], plain.weights)
        assert np.all(more.tokens[:, :2] == [256, 257])
        assert not more.weights[:, :2].any()
        assert more.tokens.dtype == plain.tokens.dtype


def row(name, *bits, similarity=None):
    """A row of results whose seeds came to so many bits."""
    runs = [
        {"seed": seed, "validation_bits_per_byte": each, "similarity": similarity}
        for seed, each in enumerate(bits)
    ]
    return {"row": name, "runs": runs, "tokens_per_second": 1000.0}


def results(*rows):
    return {"study": "training", "rows": list(rows)}


@pytest.mark.parametrize(
    ("gains", "held"),
    [
        ((0.10, 0.12, 0.11), "held (+0.1100 ± 0.0248)"),
        ((-0.10, -0.12, -0.11), "did not hold (-0.1100 ± 0.0248)"),
        ((0.1, -0.1, 0.02), "cannot be told at this scale (+0.0067 ± 0.2501)"),
    ],
    ids=["better", "worse", "either"],
)
def test_a_claim_holds_where_its_interval_lies_on_one_side_of_0(gains, held):
    base = (3.0, 4.0, 3.5)
    exclusive = [b - gain for b, gain in zip(base, gains, strict=True)]
    found = results(row("sa", *base), row("xsa", *exclusive))
    (claim,) = claims(found)
    assert claim.claim == "Exclusion lowers the loss"
    assert claim.held == held
    (line,) = table.table(found)
    assert f"({line[3]})" in claim.held
    assert line[4] == f"{sum(gain > 0 for gain in gains)} of 3"


def test_seeds_are_paired_and_the_others_left_out():
    """Differences of seeds 0 and 1 alone; the spread between seeds is in none."""
    one, other = row("sa", 3.0, 5.0, 9.0), row("xsa", 2.9, 4.8)
    (pair,) = pairs(results(one, other)).values()
    assert pair.difference.count == 2
    assert pair.difference.mean == pytest.approx(0.15)
    assert pairs(results(other)) == {}
    assert table.table(results(other))[0][:3] == ("xsa", "-", "3.8500 ± 0.9500 (n=2)")


def test_families_lengths_and_subsets_have_claims_of_their_own():
    found = results(
        row("sa", 3.0, 3.1),
        row("xsa", 2.9, 3.0),
        row("sa@length=64", 3.2, 3.3),
        row("xsa@length=64", 3.15, 3.25),
        row("sa@length=1024", 2.9, 3.0),
        row("xsa@length=1024", 2.7, 2.8),
        row("sa@sinks=4", 3.0, 3.1),
        row("xsa@sinks=4", 3.1, 3.2),
        row("xsa@gate=tanh", 3.0, 3.1),
        row("sa@size=0.2m", 2.8, 2.9),
        row("xsa@size=0.2m", 2.7, 2.9),
        row("xsa@size=0.2m@layers=0,1", 2.6, 2.8),
        row("sa@length=64@sinks=1", 3.3, 3.4),
        row("xsa@length=64@sinks=1", 3.4, 3.5),
    )
    said = {claim.claim: claim.held for claim in claims(found)}
    unknown = "cannot be told at this scale"
    assert said == {
        "Exclusion lowers the loss": "held (+0.1000 ± 0.0000)",
        "Exclusion helps at every size": f"{unknown} (1 of 2 held)",
        "Exclusion helps at every length": "held (3 of 3 held)",
        "Exclusion helps with learnt sinks too": "did not hold (1 of 2 held)",
        "The gain grows with the length": "held (+0.1500 ± 0.0000)",
        "All of it in every layer does better than gate tanh": "held (+0.1000 ± "
        "0.0000)",
        "All of it in every layer does better than size 0.2m, layers 0,1": "did not "
        "hold (-0.1000 ± 0.0000)",
    }
    sinks = next(c for c in claims(found) if "sinks" in c.claim)
    assert sinks.ours == "gains as they are +0.1000 ± 0.0000; sinks 4 -0.1000 ± 0.0000"


def test_similarity_has_a_claim_where_it_was_measured():
    measured = {
        "output_cosine": [0.2, 0.5],
        "centred_output_cosine": [0.1, 0.05],
    }
    rows = row("sa", 3.0, similarity=measured), row("xsa", 2.9)
    claim = claims(results(*rows))[-1]
    assert claim.held == "held"
    assert claim.ours == (
        "cosines by layer 0.20, 0.50; without the mean over tokens 0.10, 0.05"
    )
    falling = {**measured, "output_cosine": [0.5, 0.2]}
    assert (
        claims(results(row("sa", 3.0, similarity=falling)))[-1].held == "did not hold"
    )


def test_costs_are_shares_of_the_time_without():
    def point(name, *samples, direction="step"):
        common = {"n": 1024, "width": 256, "temporary_bytes": None}
        return {"name": name, "samples": samples, "direction": direction, **common}

    points = [point("sa", 0.2, 0.1, 0.3), point("xsa", 0.206, 0.11, 0.3)]
    measured = {"study": "overhead", "points": points}
    (cost,) = overhead.costs(measured)
    assert cost["median"] == pytest.approx(0.03)
    assert cost["least"] == pytest.approx(0.1)
    (claim,) = claims(measured)
    assert claim.held == "did not hold"
    assert "training step at 1,024 tokens: +3.0 %" in claim.ours
    points[1] = point("xsa", 0.2, 0.102, 0.3)
    assert claims(measured)[0].held == "held"
