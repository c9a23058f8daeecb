"""Feature maps on both tasks, from end to end, and what the numbers say."""

import functools

import pytest

from attn_jax.nn import Linear
from experiments.compare.training import BITS
from experiments.feature_maps import main as maps_main
from experiments.feature_maps import table
from experiments.feature_maps.claims import claims
from experiments.feature_maps.config import MAPS, FeatureMapsConfig
from experiments.feature_maps.rows import FUNCTIONS, make_rows
from experiments.linear_copy.training import LOSS, SYMBOLS
from tests.experiments.commands import results_of
from tests.experiments.conftest import run

ROWS = ["relu", "relu+norm"]


def options(workdir, book, *more):
    return [
        *("smoke", "--workdir", workdir, "--data", book, "--maps", "relu"),
        *("--copy-steps", "4", "--text-steps", "2", *more),
    ]


@pytest.fixture(scope="module")
def feature_maps():
    return functools.partial(run, maps_main.main)


@pytest.fixture(scope="module")
def whole(feature_maps, book, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("whole")
    outcome = feature_maps(*options(workdir, book))
    assert outcome.code == 0, outcome.err
    return workdir, outcome


def test_every_row_has_numbers_of_every_task(whole):
    workdir, outcome = whole
    results = results_of(workdir)
    assert {task: list(rows) for task, rows in results["tasks"].items()} == {
        "copy": ROWS,
        "text": ROWS,
    }
    copy, text = (results["tasks"][task]["relu"][0] for task in ("copy", "text"))
    assert (copy["steps"], text["steps"]) == (4, 2)
    assert 0 <= copy[SYMBOLS] <= 1 < text[BITS] < 9
    assert results["tasks"]["copy"]["relu+norm"][0][LOSS] != copy[LOSS]
    assert table.markdown(results) in outcome.out


def test_one_task_of_a_finished_run_is_a_table_of_its_own(
    whole, feature_maps, book, monkeypatch
):
    for module in (maps_main.copy_training, maps_main.text_training):
        monkeypatch.setattr(module, "build", None)
    workdir, _ = whole
    before = results_of(workdir)
    outcome = feature_maps(*options(workdir, book, "--tasks", "text"))
    assert outcome.code == 0, outcome.err
    results = results_of(workdir)
    assert list(results["tasks"]) == ["text"]
    assert results["tasks"]["text"] == before["tasks"]["text"]
    assert results["command"] == before["command"], "that of the training"
    assert "bits per byte" in table.markdown(results)
    assert "symbols" not in table.markdown(results) + "".join(table.notes(results))


def test_rows_differ_in_map_and_division_alone():
    config = FeatureMapsConfig()
    rows = {row.name: row for row in make_rows(config)}
    assert list(rows) == [name + norm for name in MAPS for norm in ("", "+norm")]
    for name, row in rows.items():
        plain = name.removesuffix("+norm")
        want = Linear(feature_map=FUNCTIONS[plain], normalize=name == plain)
        for decoder in (
            row.copy_decoder(config.copy_config()),
            row.text_row(config.text_config()).decoder,
        ):
            assert decoder.mechanism == want
    # A scale a layer is all that a norm adds.
    sizes = [rows[name].text_row(config.text_config()) for name in ("exp", "exp+norm")]
    layers, width = sizes[0].decoder.num_layers, 16
    assert sizes[1].parameters - sizes[0].parameters == layers * width


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--maps", "rleu"], ["maps: got 'rleu'", "did you mean 'relu'"]),
        (["--maps"], ["maps: got none"]),
        (["--tasks", "copies"], ["tasks: got 'copies'", "did you mean 'copy'"]),
        (["--tasks", "copy", "copy"], ["twice"]),
        (["--copy-steps", "0"], ["--copy-steps: got 0"]),
        (["--data", "nowhere.txt"], ["'nowhere.txt'"]),
    ],
)
def test_a_mistake_ends_with_code_2(feature_maps, tmp_path, arguments, said):
    outcome = feature_maps("smoke", *arguments, "--workdir", tmp_path / "run")
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    for words in said:
        assert words in outcome.err
    assert not (tmp_path / "run").exists()


def test_other_steps_are_another_run(whole, feature_maps, book):
    """Text falls along a cosine to its last step."""
    refused = feature_maps(*options(whole[0], book, "--text-steps", "3"))
    assert refused.code == 2
    assert "text_steps: 2 there, 3 now" in refused.err


def held(**copy):
    """Verdicts on the copy task, from the losses of each row's seeds."""
    rows = {
        name.replace("_", "+"): [{LOSS: loss} for loss in losses]
        for name, losses in copy.items()
    }
    return [claim.held for claim in claims({"tasks": {"copy": rows}})]


def test_claims_are_judged_by_every_seed():
    assert held(elu=[0.1]) == []
    assert held(elu=[0.1], relu=[0.2]) == ["yes (one seed)"]
    both = held(elu=[0.1, 0.2], relu=[0.2, 0.1], elu_norm=[0.2, 0.3])
    assert both == ["undecided (1 of 2 seeds)", "no (0 of 2 seeds)"]
