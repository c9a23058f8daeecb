"""Curves over the length: what is measured, and what is made of it."""

import jax
import pytest

from benchmarks import clock
from benchmarks.problem import Size
from experiments.linear_scaling import (
    claims,
    comparison,
    fits,
    main,
    paper,
    plot,
    table,
)
from experiments.linear_scaling.cases import make_case
from experiments.linear_scaling.config import PRESETS, ROWS, ScalingConfig
from experiments.linear_scaling.measuring import SHORT, measure, turn_of
from tests.experiments.commands import results_of
from tests.ops.oracles import assert_close

MODELS = ("softmax-dense", "linear")
LENGTHS = (16, 32, 64)
TINY = (
    *("smoke", "--mechanisms", *MODELS, "--head-dim", "4", "--tokens", "64"),
    *("--shortest", "16", "--longest", "64", "--fit-from", "16"),
)


@pytest.fixture(scope="module")
def whole(scale, tmp_path_factory):
    """The directory of a run, and what it printed."""
    workdir = tmp_path_factory.mktemp("scaling")
    outcome = scale(*TINY, "--workdir", workdir)
    assert outcome.code == 0, outcome.err
    return workdir, outcome


def test_every_length_and_mechanism_is_measured_in_every_round(whole):
    rows = results_of(whole[0])["rows"]
    assert [(row["n"], row["model"]) for row in rows] == [
        (n, model) for n in LENGTHS for model in MODELS
    ]
    for row in rows:
        assert row["batch"] * row["n"] == 64
        assert len(row["samples"]) == 2
        assert min(row["samples"]) > 0
        assert row["compile_seconds"] > 0
        # The cotangent, q, k and v, then the output and their gradients.
        arrays = 8 * 64 * 2 * 4 * 4
        assert row["bytes"] == row["temporary_bytes"] + arrays
        assert row["result_bytes"] == arrays // 2


def test_results_say_where_the_numbers_are_from(whole):
    results = results_of(whole[0])
    assert results["command"].startswith("python -m experiments.linear_scaling smoke")
    for name in ("commit", "versions", "device", "seconds"):
        assert name in results
    assert results["config"]["rounds"] == 2
    assert results["config"]["seeds"] == [0]
    assert table.scale(results).startswith(f"`{results['command']}`")


def test_tables_and_figure_are_made_from_results_alone(whole, tmp_path):
    workdir, outcome = whole
    results = results_of(workdir)
    assert table.markdown(results) in outcome.out
    for note in table.notes(results):
        assert note in outcome.out
    (path,) = plot.draw(results, tmp_path)
    assert path.name == f"{plot.FIGURES[0]}.png"
    assert path.read_bytes() == (workdir / "figures" / path.name).read_bytes()
    assert 5_000 < path.stat().st_size < 300_000


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [
        ("max_bytes", 20_000, "over max_bytes = 2e-05 GB"),
        ("max_seconds", 1e-9, "over max_seconds = 1e-09"),
    ],
)
def test_a_curve_stops_where_a_limit_is_and_says_so(limit, value, reason):
    config = ScalingConfig(
        mechanisms=("softmax-dense",),
        shortest=8,
        longest=32,
        fit_from=8,
        tokens=32,
        head_dim=4,
        rounds=1,
        **{limit: value},
    )
    said = []
    rows = measure(config, said.append)
    assert [bool(row.get("samples")) for row in rows] == [True, False, False]
    assert reason in rows[1]["left_out"]
    results = {"config": config.shared(), "rows": rows}
    assert f"softmax-dense, N = 16: left out: {rows[1]['left_out']}" in said
    assert any("softmax-dense stops: N = 16 " in n for n in table.notes(results))
    # What it would need is known from compiling, and marked as such.
    _, (cells,) = table.lengths_table(results, comparison.MEMORY)
    assert [cell.endswith("*") for cell in cells[1:]] == [False, True, True, True]
    _, (cells,) = table.lengths_table(results, comparison.TIME)
    assert cells[2:4] == ("-", "-")


@pytest.mark.parametrize(("seconds", "more"), [(SHORT / 2, 1), (SHORT, 0)])
def test_a_short_call_is_made_once_before_it_counts(seconds, more, monkeypatch):
    made = []
    monkeypatch.setattr(clock, "timed", lambda call: call() or 3.0)
    turn = turn_of(lambda: made.append("call"), seconds)
    assert turn(2) == 3.0
    assert len(made) == 2 + more


@pytest.mark.parametrize("name", ROWS)
def test_every_curve_is_attention_with_a_gradient_for_each_input(name):
    config = ScalingConfig(head_dim=4, bucket_size=8)
    problem = make_case(name, config).build(Size(32, 3, heads=2, width=4))
    out, gradients = jax.eval_shape(problem.program("both"), *problem.structs)
    assert out.shape == problem.output == (3, 32, 2, 4)
    assert len(gradients) == (2 if name.startswith("lsh") else 3)
    assert {g.shape for g in gradients} == {problem.output}


def test_softmax_is_the_same_attention_in_both_forms():
    config = ScalingConfig(head_dim=4)
    dense, blockwise = (
        make_case(name, config).build(Size(96, 1, heads=2, width=4))
        for name in ("softmax-dense", "softmax-blockwise")
    )
    x = dense.arguments[1:]
    assert_close(jax.jit(blockwise.function)(*x), jax.jit(dense.function)(*x), 1e-5)


def results_with(rows, fit_from=1, **config):
    config = {"fit_from": fit_from, "bucket_size": 64, **config}
    return {"config": config, "rows": rows}


def power(model, exponent, *, lengths=(64, 128, 256, 512), rounds=(1.0,), memory=None):
    """Rows whose samples and bytes are powers of the length, exactly."""
    return [
        {
            "model": model,
            "n": n,
            "batch": 1024 // n,
            "samples": [c * (1024 // n) * n**exponent for c in rounds],
            "bytes": (1024 // n) * n ** (exponent if memory is None else memory),
        }
        for n in lengths
    ]


def test_an_exponent_is_that_of_one_sample():
    growth = fits.growth_of_time(results_with(power("linear", 1.5)), "linear")
    assert growth.exponent == pytest.approx(1.5)
    assert growth.least == pytest.approx(1.5)
    assert growth.off == pytest.approx(0, abs=1e-9)
    assert (growth.first, growth.last) == (64, 512)
    memory = fits.growth_of_memory(results_with(power("linear", 1, memory=2)), "linear")
    assert memory.exponent == pytest.approx(2)


def test_short_lengths_are_left_to_their_overhead():
    rows = power("linear", 1)
    rows[0]["samples"] = [2048.0]
    assert fits.growth_of_time(results_with(rows, 128), "linear").exponent == (
        pytest.approx(1)
    )
    assert fits.growth_of_time(results_with(rows, 1), "linear").exponent < 0.9
    assert fits.growth_of_time(results_with(rows, 256), "linear") is None


def test_rounds_give_the_range_of_an_exponent_and_medians_its_value():
    rows = power("linear", 1, rounds=(1.0, 1.0, 1.0))
    for row in rows:
        row["samples"][0] *= row["n"] ** 0.5
        row["samples"][2] /= row["n"] ** 0.25
    growth = fits.growth_of_time(results_with(rows), "linear")
    found = (growth.exponent, growth.least, growth.most)
    assert found == pytest.approx((1.0, 0.75, 1.5))
    # Of a claim, nothing can be told: 1 is in its range, and the others aren't.
    time = verdicts(results_with(rows))
    assert time["Linear attention takes time in proportion to N"] == "cannot be told"


def test_a_point_off_the_line_is_seen():
    rows = power("linear", 1)
    rows[1]["samples"] = [2 * rows[1]["samples"][0]]
    assert 0.3 < fits.growth_of_time(results_with(rows), "linear").off < 1


def of_the_paper(scale=1.0):
    """The paper's own numbers as if they were ours, linear times `scale`."""
    return results_with(
        [
            {
                "model": paper.NAMES[name],
                "n": n,
                "batch": 1,
                "samples": [milliseconds / 1e3 * (scale if name == "linear" else 1)],
                "bytes": paper.MEGABYTES[name][n] * 1e6,
            }
            for name, curve in paper.MILLISECONDS.items()
            for n, milliseconds in curve.items()
        ]
    )


def test_the_papers_numbers_stand_beside_themselves():
    lines = comparison.beside_the_paper(of_the_paper())
    assert len(lines) == 4 + 2 * 6
    for what, theirs, ours in lines:
        assert theirs == ours, what
    # A figure read off at its ends: LSH-1 has no third point to fit.
    assert not any(what == "exponent of time, lsh-1" for what, _, _ in lines)


def verdicts(results):
    """By claim, without the range of its exponent."""
    found = claims.claims(results)
    return {claim.claim.partition(" (")[0]: claim.held for claim in found}


def test_the_papers_numbers_bear_its_claims_out():
    found = verdicts(of_the_paper())
    lsh = "LSH takes time nearly in proportion to N"
    assert found.pop(lsh) == "undecided"
    assert set(found.values()) == {"yes"}
    assert len(found) == 6


def test_claims_fail_where_the_numbers_say_otherwise():
    slow = verdicts(of_the_paper(scale=5))
    assert slow["Linear attention takes less than softmax, at every length"] == "no"
    steep = verdicts(results_with(power("linear", 1.06) + power("softmax-dense", 1.7)))
    assert list(steep.values()).count("no") == 4
    flat = verdicts(results_with(power("linear", 0.5)))
    assert set(flat.values()) == {"no"}
    level = verdicts(results_with(power("linear", 1.04) + power("softmax-dense", 2.1)))
    assert set(level.values()) == {"yes"}


def test_a_ratio_of_calls_that_were_never_run_is_marked():
    rows = power("linear", 1) + power("softmax-dense", 2)
    rows[-1]["left_out"] = "needs more"
    del rows[-1]["samples"]
    *_, cheaper = claims.claims(results_with(rows))
    assert cheaper.ours == (
        "time 64.0 to 256.0 times, N = 64 to 256; "
        "memory 64.0 to 512.0* times, N = 64 to 512"
    )
    found = claims.claims(results_with(rows))
    assert [claim.ours.partition(",")[0] for claim in found[:4]] == [
        *("exponent 1.00", "exponent 1.00", "exponent 2.00", "exponent 2.00*")
    ]


def test_a_claim_needs_its_curve_and_three_lengths():
    assert verdicts(results_with(power("lsh-4", 1))) == {}
    short = verdicts(results_with(power("linear", 1, lengths=(64, 128))))
    assert set(short.values()) == {"undecided"}


def test_presets_ask_for_lengths_that_double():
    assert PRESETS["cpu"].lengths == [2**power for power in range(9, 17)]
    assert ScalingConfig(shortest=3, longest=20).lengths == [3, 6, 12]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mechanisms", "lsh-2"), "mechanisms: got 'lsh-2'; expected one of softmax"),
        (("--mechanisms", "linear", "linear"), "use --rounds to repeat"),
        (("--longest", "8"), "--longest: got 8; expected at least --shortest, 16"),
        (("--rounds", "0"), "--rounds: got 0"),
        (("--longest", "1" + 14 * "0"), "--longest: got 100000000000000, with inputs"),
        (("--max-bytes", "0"), "--max-bytes: got 0.0; expected a number above 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    scale, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.setattr(main, "measure", None)
    outcome = scale(*TINY, "--workdir", tmp_path, *arguments)
    assert outcome.code == 2
    assert message in outcome.err


def test_another_config_is_refused_where_results_are(whole, scale):
    outcome = scale(*TINY, "--workdir", whole[0], "--tokens", "128")
    assert outcome.code == 2
    assert "tokens: 64 there, 128 now" in outcome.err
    assert "expected the same config; pass" in outcome.err


def test_the_same_command_measures_again(whole, scale, monkeypatch):
    monkeypatch.setattr(main, "measure", lambda *_: results_of(whole[0])["rows"])
    assert scale(*TINY, "--workdir", whole[0]).code == 0


def test_an_interrupted_run_leaves_no_results(scale, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "measure", interrupted)
    outcome = scale(*TINY, "--workdir", tmp_path)
    assert outcome.code == 130
    assert "python -m experiments.linear_scaling smoke" in outcome.err
    assert not (tmp_path / "results.json").exists()
