"""Rows with and without exclusion from end to end: whole, stopped, measured."""

import pytest

from attn_jax.train import read_metrics
from experiments import results as results_page
from experiments.common import provenance
from experiments.common.workdir import Workdir
from experiments.exclusive import lowering, overhead, plot, table
from experiments.exclusive.config import OverheadStudy
from experiments.exclusive.pairs import pairs
from experiments.exclusive.training import Language
from tests.experiments.commands import (
    by_arguments,
    finished,
    numbers_of,
    refused,
    results_of,
    stopped_study,
    study,
)

ROWS = ("sa", "xsa@gate=sigmoid@layers=last1")
NUMBERS = ("validation_bits_per_byte", "curve", "gates", "similarity")


def options(book, workdir, rows=ROWS):
    small = ("--length", "16", "--batch-size", "4", "--eval-every", "2")
    return study(book, workdir, rows, 2, *small)


@pytest.fixture(scope="module")
def whole(exclude, book, tmp_path_factory):
    """The directory of a study without interruption, and what it printed."""
    workdir = tmp_path_factory.mktemp("whole")
    return workdir, finished(exclude, options(book, workdir))


def test_results_have_both_rows_and_what_lies_between_them(whole):
    results = results_of(whole[0])
    plain, exclusive = results["rows"]
    assert [row["row"] for row in (plain, exclusive)] == list(ROWS)
    (pair,) = pairs(results).values()
    runs = zip(plain["runs"], exclusive["runs"], strict=True)
    gains = [
        a["validation_bits_per_byte"] - b["validation_bits_per_byte"] for a, b in runs
    ]
    assert pair.difference.mean == pytest.approx(sum(gains) / 2)
    assert 0 < max(map(abs, gains)) < 1
    assert results["commit"] == provenance.commit()
    # Of the last of two layers alone, a number a head, which training has moved.
    for run in exclusive["runs"]:
        (gate,) = run["gates"]
        assert len(gate) == 4
        assert 0.0 < max(abs(strength - 0.5) for strength in gate) < 0.1
    for run in plain["runs"]:
        assert run["gates"] is None
        for name, layers in run["similarity"].items():
            assert len(layers) == 2, name
        assert 1 / 16 < min(run["similarity"]["diagonal_weight"]) < 0.5
    assert exclusive["parameters"] - plain["parameters"] == 4


def test_table_figures_and_page_are_made_from_results_alone(whole):
    workdir, outcome = whole
    results = results_of(workdir)
    assert table.markdown(results) in outcome.out
    assert "gate sigmoid, layers last1" in outcome.out
    assert results["figures"] == ["differences", "loss_curves", "similarity"]
    assert list(plot.figures(results)) == results["figures"]
    for row in results["rows"]:
        for run in row["runs"]:
            run["curve"] = run["curve"][-1:]
    assert "loss_curves" not in plot.figures(results)
    for name in results["figures"]:
        assert (workdir / "figures" / f"{name}.png").stat().st_size > 5_000
    section = results_page._section(results)
    assert section.startswith("## exclusive, smoke-seeds2")
    assert f"exclusive-smoke-seeds2-{results['figures'][0]}.png" in section


def test_a_study_that_was_stopped_goes_on_where_it_was(whole, exclude, book, tmp_path):
    stopped_study(exclude, options(book, tmp_path, ROWS[1:]))
    finished(exclude, options(book, tmp_path, ROWS[1:]))
    want = numbers_of(whole[0], NUMBERS)
    assert numbers_of(tmp_path, NUMBERS) == {
        key: want[key] for key in want if key[0] == ROWS[1]
    }
    lines = read_metrics(tmp_path / f"{ROWS[1]}-seed1")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]


def test_what_is_finished_is_not_trained_again_nor_under_another_config(
    whole, exclude, book, monkeypatch
):
    monkeypatch.setattr(Language, "build", None)
    before = numbers_of(whole[0], NUMBERS)
    finished(exclude, options(book, whole[0]))
    assert numbers_of(whole[0], NUMBERS) == before
    outcome = exclude(*options(book, whole[0]), "--learning-rate", "0.1")
    assert outcome.code == 2
    assert "learning_rate: 0.008 there, 0.1 now" in outcome.err
    assert Workdir(whole[0] / f"{ROWS[0]}-seed0", ()).finished("run") is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "xa"], "sa or xsa"),
        (["--rows", "sa@gate=tanh"], "@gate behind xsa alone"),
        (["--rows", "xsa@sinks=1@size=0.2m"], "write xsa@size=0.2m@sinks=1"),
        (["--rows", "xsa@depth=3"], "@ with one of size, rate, length, sinks"),
        (["--rows", "xsa@layers=last3"], "at most 2 layers"),
        (["--rows", "xsa@layers=0,5"], "exclusive_layers: got (0, 5)"),
        (["--rows", "xsa@length=4096"], "at most the 64 tokens of a batch"),
        (["--rows", "sa", "sa"], "sa twice"),
        (["--size", "3b"], "0.1m, 0.2m, 0.4m, 0.7b"),
        (["--similarity", "-1"], "--similarity: got -1"),
    ],
    ids=by_arguments,
)
def test_mistakes_are_said_at_once(exclude, book, tmp_path, arguments, message):
    assert message in refused(exclude, book, tmp_path, arguments)


def test_overhead_is_measured_of_a_block_and_of_a_step(exclude, tmp_path):
    arguments = [
        *("overhead", "--workdir", tmp_path, "--lengths", "8", "--tokens", "8"),
        *("--widths", "8", "--head-dim", "4", "--rounds", "1"),
        *("--step-layers", "1", "--step-batch", "1", "--step-length", "4"),
    ]
    outcome = finished(exclude, arguments)
    results = results_of(tmp_path)
    found = [(p["name"], p["direction"], p["n"], p["width"]) for p in results["points"]]
    ways = ("forward", 8), ("both", 8), ("step", 4)
    assert found == [(kind, way, n, 8) for way, n in ways for kind in ("sa", "xsa")]
    assert all(min(point["samples"]) > 0 for point in results["points"])
    assert table.markdown(results) in outcome.out
    assert (tmp_path / "figures" / "overhead.png").stat().st_size > 5_000
    assert exclude("overhead", "--widths", "6", "--head-dim", "4").code == 2


def test_lengths_are_measured_at_one_width_and_widths_at_one_length():
    config = OverheadStudy(lengths=(512, 2048), widths=(64, 128, 256), tokens=4096)
    sizes = [(size.n, size.batch, size.d_model) for size in overhead.sizes(config)]
    assert sizes == [(512, 8, 64), (2048, 2, 64), (2048, 2, 128), (2048, 2, 256)]


def test_a_step_is_lowered_for_devices_that_are_not_there():
    """The state in pieces, and nothing of the size of the whole batch on a device."""
    config = lowering.LoweringConfig(
        preset="xsa-1m",
        hosts=2,
        devices=2,
        batch_size=64,
        accumulation=1,
        length=64,
        num_layers=1,
        vocab_size=64,
    )
    found = lowering.lower(config)
    size = 64 * 128 + 4 * 128 * 192 + 8 * 128**2 + 4 * 128
    assert found["parameters"] == size
    bytes_ = found["bytes_per_device"]
    # Parameters and two moments, a quarter each; norms and the batch on top.
    assert 3 * size <= bytes_["state and batch"] <= 3 * size + 20_000
    # A quarter of some ten arrays of the feed-forward layer; with all rows on every
    # device it would be more than twice as much.
    hidden = 64 * 64 * 512 * 4
    assert bytes_["temporary"] < 3 * hidden
