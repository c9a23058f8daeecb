"""The copy task from end to end: whole, interrupted, in parts; what its numbers say."""

import functools
import json
import os
import signal

import numpy as np
import pytest

from attn_jax import nn
from attn_jax.train import read_metrics
from experiments.linear_copy import main as copy_main
from experiments.linear_copy import plot, table, training
from experiments.linear_copy.claims import claims
from experiments.linear_copy.config import PRESETS
from experiments.linear_copy.models import decoder_config, mechanism
from tests.experiments.commands import results_of
from tests.experiments.conftest import run

MODELS = ("softmax", "linear")
STEPS = 6


def options(workdir, *models, steps=STEPS):
    return [
        *("smoke", "--workdir", workdir, "--models", *(models or MODELS)),
        *("--steps", str(steps), "--checkpoint-every", "2", "--log-every", "2"),
        *("--eval-every", "4", "--batch-size", "2", "--length", "8", "--d-ff", "8"),
        *("--d-model", "16", "--num-layers", "1", "--generated-rows", "3"),
    ]


@pytest.fixture(scope="module")
def copy_task():
    return functools.partial(run, copy_main.main)


@pytest.fixture(scope="module")
def whole(copy_task, tmp_path_factory):
    """The directory of a run without interruption, and what it printed."""
    workdir = tmp_path_factory.mktemp("whole")
    outcome = copy_task(*options(workdir))
    assert outcome.code == 0, outcome.err
    return workdir, outcome


@pytest.fixture(scope="module")
def interrupted(copy_task, tmp_path_factory):
    """The same, one command a model, the second interrupted and continued."""
    workdir = tmp_path_factory.mktemp("interrupted")
    first = copy_task(*options(workdir, "linear"))
    assert first.code == 0, first.err
    original, calls = training.batch_at, []

    def stopping(config, step, seed):
        if seed != training.VALIDATION:
            calls.append(step)
        if len(calls) == 1 + 3:  # the first batch is for compiling
            os.kill(os.getpid(), signal.SIGINT)
        return original(config, step, seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "batch_at", stopping)
        stopped = copy_task(*options(workdir, "softmax"))
    return workdir, stopped, copy_task(*options(workdir, "softmax"))


def losses(workdir):
    return sorted((x["name"], x["step"], x["loss"]) for x in read_metrics(workdir))


def test_results_hold_a_curve_and_copies_of_each_run(whole):
    results = results_of(whole[0])
    assert [row["model"] for row in results["rows"]] == list(MODELS)
    assert results["config"]["seeds"] == [0]
    assert results["command"].startswith("python -m experiments.linear_copy smoke")
    for row in results["rows"]:
        (run,) = row["runs"]
        assert [step for step, _, _ in run["curve"]] == [4, 6]
        assert run["curve"][-1][1:] == [run[training.LOSS], run[training.SYMBOLS]]
        assert 0 <= run["generated_copies_right"] <= 1
        assert run["training_seconds"] > 0


def test_table_and_figure_are_made_from_results_alone(whole, tmp_path):
    workdir, outcome = whole
    results = results_of(workdir)
    assert table.markdown(results) in outcome.out
    (drawn,) = plot.draw(results, tmp_path)
    there = (workdir / "figures" / drawn.name).read_bytes()
    assert drawn.read_bytes() == there
    assert 5_000 < len(there) < 300_000


def test_an_interrupted_run_says_how_to_go_on(interrupted):
    stopped = interrupted[1]
    assert stopped.code == 130
    assert "SIGINT after step 3 of 6" in stopped.err
    assert "python -m experiments.linear_copy smoke" in stopped.err
    assert "Traceback" not in stopped.err


def test_parts_and_interruptions_leave_no_trace(whole, interrupted):
    """Both models are in the results, to the bit those of one command."""
    workdir, _, last = interrupted
    assert last.code == 0, last.err
    assert losses(workdir) == losses(whole[0])
    here, there = results_of(workdir), results_of(whole[0])
    assert [row["model"] for row in here["rows"]] == list(MODELS)
    commands = here["command"].split("; ")
    assert ["--models linear " in command for command in commands] == [True, False]
    for mine, other in zip(here["rows"], there["rows"], strict=True):
        for name in ("curve", "generated_copies_right", training.LOSS):
            assert mine["runs"][0][name] == other["runs"][0][name], name


def test_what_is_finished_is_not_trained_again(whole, copy_task, monkeypatch):
    monkeypatch.setattr(copy_main, "build", None)
    before = (whole[0] / "results.json").read_bytes()
    assert copy_task(*options(whole[0]), "--log-every", "3").code == 0
    assert (whole[0] / "results.json").read_bytes() == before, "the command as well"


def test_runs_of_another_length_are_no_part_of_the_results(
    interrupted, copy_task, monkeypatch
):
    workdir = interrupted[0]
    other = json.loads((workdir / "finished" / "linear.json").read_text())
    other |= {"model": "lsh-4", "steps": STEPS + 1}
    (workdir / "finished" / "lsh-4.json").write_text(json.dumps(other))
    monkeypatch.setattr(copy_main, "build", None)
    assert copy_task(*options(workdir)).code == 0
    assert [row["model"] for row in results_of(workdir)["rows"]] == list(MODELS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cpi"], ["preset: got 'cpi'", "did you mean 'cpu'"]),
        (["--models", "linaer"], ["models: got 'linaer'", "did you mean 'linear'"]),
        (["--models", "lsh-0"], ["models: got 'lsh-0'", "lsh-N with N rounds"]),
        (["--models", "lsh-100"], ["models: got 'lsh-100'", "1 to 99"]),
        (["--models"], ["models: got none"]),
        (["--models", "linear", "linear"], ["twice", "--seeds"]),
        (["--steps", "0"], ["--steps: got 0", "at least 1"]),
        (["--length", "4"], ["--length: got 4", "at least 5"]),
        (["--learning-rate", "inf"], ["--learning-rate: got inf"]),
        (["--weight-decay", "-1"], ["--weight-decay: got -1"]),
        (["--positions", "nowhere"], ["positions: got 'nowhere'"]),
        (["--models", "linear", "--positions", "alibi"], ["alibi: linear attention"]),
        (["--models", "linear", "--d-model", "30"], ["num_heads: got 4"]),
    ],
)
def test_a_mistake_ends_with_code_2_and_a_short_message(
    copy_task, tmp_path, monkeypatch, arguments, said
):
    monkeypatch.setattr(copy_main, "build", None)
    if "--models" not in arguments:
        arguments = [*arguments, "--models", "softmax"]
    outcome = copy_task(*arguments, "--workdir", tmp_path / "run")
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    for words in said:
        assert words in outcome.err
    assert not (tmp_path / "run").exists()


def test_another_config_and_fewer_steps_are_refused(whole, copy_task):
    refused = copy_task(*options(whole[0]), "--learning-rate", "0.5")
    assert refused.code == 2
    assert "learning_rate: 0.001 there, 0.5 now" in refused.err
    refused = copy_task(*options(whole[0], steps=STEPS - 1))
    assert refused.code == 2
    assert "--steps: got 5" in refused.err


def test_the_paper_preset_is_that_of_the_paper():
    config = PRESETS["paper"]
    made = decoder_config(mechanism("linear", config), config)
    assert (made.max_length, made.vocab_size) == (128, 11)
    assert (made.num_layers, made.num_heads, config.batch_size) == (4, 8, 64)
    assert (config.learning_rate, config.decay_after) == (1e-3, 3000)
    assert (made.positions, made.norm_placement) == ("concatenated", "post")


def test_hashes_are_those_of_the_name_and_write_no_copies():
    config = PRESETS["cpu"]
    assert mechanism("lsh-3", config) == nn.LSH(num_rounds=3, bucket_size=8)
    (without,) = [
        cells
        for cells in table.table({"rows": [hashed("lsh-1")]})
        if dict(zip(table.COLUMNS, cells, strict=True))["whole copies written"] == "-"
    ]
    assert without[0] == "lsh-1"
    notes = table.notes({"rows": [hashed("lsh-1")], "config": config.shared()})
    assert "chunks of 8" in notes[-1]


def hashed(model):
    """A row of a model that can't be decoded."""
    (run,) = row(model, (0, 0.5, 0.75))["runs"]
    run |= {"generated_copies_right": None, "training_seconds": None, "curve": []}
    return {"model": model, "parameters": 7, "runs": [run]}


@pytest.mark.parametrize("wrong", [0, 2])
def test_copies_are_right_when_every_symbol_is(monkeypatch, wrong):
    """What is written after a copy doesn't count."""
    config = PRESETS["smoke"]

    def greedy(model, prompt, *, max_length, valid):
        n = valid.sum(axis=1) - 1
        place = np.arange(max_length)
        assert n.min() < n.max() == max_length
        assert (prompt[np.arange(len(n)), n] == 0).all()
        assert (prompt[:, :-1][place < n[:, None]] > 0).all()
        written = np.where(place < n[:, None], prompt[:, :max_length], 7)
        written[np.arange(wrong), n[:wrong] - 1] += 1
        return written

    monkeypatch.setattr(training, "greedy", greedy)
    rows = config.generated_rows
    assert training.generate(None, config) == (rows - wrong) / rows


def row(model, *runs):
    return {
        "model": model,
        "runs": [
            {"seed": seed, training.LOSS: loss, training.SYMBOLS: symbols}
            for seed, loss, symbols in runs
        ],
    }


def held(*rows):
    return [claim.held for claim in claims({"rows": rows})]


def test_claims_are_judged_by_every_seed():
    good, bad = (0, 0.01, 0.995), (1, 0.4, 0.9)
    softmax = row("softmax", good)
    assert held(softmax) == []
    assert held(softmax, row("linear", good)) == ["yes (one seed at 99% or more)"]
    some = held(softmax, row("linear", good, bad))
    assert some == ["no (1 of 2 seeds at 99% or more)"]
    undecided = held(row("softmax", bad), row("linear", good))
    assert undecided == ["undecided (softmax does not copy)"]
    linear = row("linear", good, bad)
    assert held(linear, row("lsh-1", (0, 0.1, 0.9), (1, 0.5, 0.5))) == [
        "yes (2 of 2 seeds)"
    ]
    assert held(linear, row("lsh-1", (0, 0.1, 0.9), (1, 0.3, 0.9))) == [
        "undecided (1 of 2 seeds)"
    ]
    assert held(linear, row("lsh-1", (7, 0.1, 0.9))) == [
        "undecided (no seed in common)"
    ]
    assert held(linear, row("lsh-1", (1, 0.1, 0.9))) == ["no (one seed)"]
    # Both numbers are of the seed that both have.
    (claim,) = claims({"rows": [linear, row("lsh-1", (1, 0.1, 0.9))]})
    assert claim.ours == "linear 0.4000, lsh-1 0.1000"


def test_the_table_says_of_which_seeds_its_means_are():
    config = PRESETS["cpu"].shared()
    both = row("softmax", (0, 0.1, 1.0), (2, 0.1, 1.0))
    (same,) = seeds_in({"rows": [both, {**both, "model": "linear"}], "config": config})
    assert same.startswith("seeds 0, 2 in every row")
    rows = [both, row("linear", (2, 0.1, 1.0))]
    (differ,) = seeds_in({"rows": rows, "config": config})
    assert "do not compare: softmax 0, 2; linear 2;" in differ


def seeds_in(results):
    return [note for note in table.notes(results) if note.startswith("seeds")]


def test_updates_until_enough_symbols_are_right_are_those_of_the_curve():
    curve = [[50, 1.0, 0.5], [100, 0.1, 0.99], [150, 0.2, 0.98]]
    assert table.reached({"curve": curve}) == 100
    assert table.reached({"curve": curve[:1]}) is None
