"""A translation from end to end: whole, interrupted in an epoch, and begun again."""

import logging
import shutil
import types

import jax
import numpy as np
import pytest

from attn_jax.data import PairBatches
from attn_jax.train import read_metrics
from experiments.common.workdir import Workdir
from experiments.translation import main, plot, table, training
from experiments.translation.corpus import reversals
from tests.experiments.commands import results_of, stop_at

STEPS = 6
TIMES = ("tokens_per_second",)


def options(workdir, steps=STEPS):
    return [
        *("smoke", "--workdir", workdir, "--steps", str(steps), "--synthetic", "3"),
        *("--max-length", "6", "--max-tokens", "24", "--log-every", "1"),
        *("--eval-every", "4", "--checkpoint-every", "2", "--eval-sentences", "4"),
        *("--extra-length", "1", "--d-model", "8", "--d-ff", "16"),
    ]


@pytest.fixture(scope="module", autouse=True)
def few_words():
    """A corpus of a few words: an epoch has few batches, the test few sentences."""
    from experiments.translation import corpus

    with pytest.MonkeyPatch.context() as patch:
        sizes = {"train": 10, "valid": 4, "test": 5}
        patch.setattr(corpus, "SYNTHETIC_PAIRS", sizes)
        yield


@pytest.fixture(scope="module", autouse=True)
def one_second_a_batch():
    """Training takes 1 s a batch, and everything else no time at all."""
    original, now = PairBatches.batch, [0.0]

    def batch(self, step, **options):
        now[0] += 1
        return original(self, step, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PairBatches, "batch", batch)
        clock = types.SimpleNamespace(perf_counter=lambda: now[0])
        patch.setattr(training, "time", clock)
        yield


@pytest.fixture(scope="module")
def whole(translate, few_words, one_second_a_batch, tmp_path_factory):
    """The directory of a run without interruption, what it printed and compiled."""
    workdir = tmp_path_factory.mktemp("whole")
    compiled: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: compiled.append(record.getMessage())
    logger = logging.getLogger("jax")
    logger.addHandler(handler)
    try:
        with jax.log_compiles():
            outcome = translate(*options(workdir))
    finally:
        logger.removeHandler(handler)
    assert outcome.code == 0, outcome.err
    return workdir, outcome, compiled


def test_results(whole):
    workdir, outcome, _ = whole
    results = results_of(workdir)
    assert results["test"]["sentences"] == 5
    assert results["averaged_steps"] == [4, 6]
    assert [point["step"] for point in results["curve"]] == [4, 6]
    assert [point["training_seconds"] for point in results["curve"]] == [4.0, 6.0]
    assert results["seconds"]["training"] == 6.0
    assert results["title"] == "smoke"
    assert "version:" in results["test"]["bleu_signature"]
    assert results["baselines"]["copy"]["bleu"] < 100
    assert results["epochs"] > 1, "an interruption has to fall inside an epoch"
    lines = (workdir / "test.reversed.translated").read_text().splitlines()
    assert len(lines) == 5
    assert "BLEU" in outcome.out
    assert "6 pieces: 0 of 5 test sources, which were cut, and 0 of 4 v" in outcome.out
    assert table.markdown(results).count("\n") > 10


def test_the_step_is_compiled_once_a_shape(whole):
    """For a batch of zeros, whose executable the batches of the training find."""
    _, _, compiled = whole
    steps = [line for line in compiled if "Compiling jit(train_step)" in line]
    assert len(steps) == 1, steps


def test_attention_maps_are_of_the_translation(whole):
    """Rows of weights sum to 1, no query sees a later key, every panel has labels."""
    workdir, _, _ = whole
    attention = results_of(workdir)["attention"]
    kinds = [panel["name"].partition(",")[0] for panel in attention["maps"]]
    assert kinds == ["encoder"] * 2 + ["decoder"] * 2 + ["cross"] * 2
    for panel in attention["maps"]:
        weights = np.array(panel["weights"])
        sides = len(attention[panel["queries"]]), len(attention[panel["keys"]])
        assert weights.shape == sides
        np.testing.assert_allclose(weights.sum(1), 1, atol=0.01)
        if panel["name"].startswith("decoder"):
            assert not np.triu(weights, 1).any()
    assert attention["source"][-1] == "</s>"
    assert attention["target"][0] == "<s>"


def test_figures(whole, tmp_path):
    workdir, _, _ = whole
    names = sorted(path.name for path in (workdir / "figures").glob("*.png"))
    assert names == ["attention.png", "loss_curve.png"]
    assert len(plot.draw(results_of(workdir), tmp_path)) == 2


def test_an_interruption_inside_an_epoch_changes_nothing(
    whole, translate, monkeypatch, tmp_path
):
    with monkeypatch.context() as patch:
        stop_at(patch, PairBatches, "batch", 3)
        first = translate(*options(tmp_path))
    assert first.code == 130
    assert "run the same command again" in first.err

    calls = stop_at(monkeypatch, PairBatches, "batch", 2)
    fewer = translate(*options(tmp_path, steps=3))
    assert fewer.code == 0, fewer.err
    assert results_of(tmp_path)["averaged_steps"] == [2, 3]
    curve = results_of(tmp_path)["curve"]
    assert [(line["step"], line["training_seconds"]) for line in curve] == [(3, 3.0)]
    assert not calls
    again = translate(*options(tmp_path))
    assert again.code == 130
    steps = [step for _, step in calls]
    assert steps == [3, 4], "step 5 is saved beside 2 and 4, which are regular"
    second = translate(*options(tmp_path))
    assert second.code == 0, second.err
    steps = [step for _, step in calls]
    assert steps == [3, 4, 5], "the step that was left, and no other"

    workdir, _, _ = whole
    ours, theirs = (
        [
            {name: value for name, value in line.items() if name not in TIMES}
            for line in read_metrics(path, name="translation")
        ]
        for path in (tmp_path, workdir)
    )
    assert ours == theirs
    ours, theirs = results_of(tmp_path), results_of(workdir)
    assert ours["seconds"]["training"] == 6.0
    assert ours["averaged_steps"] == [4, 6]
    assert (ours["config"]["checkpoint_every"], ours["config"]["average"]) == (2, 2)
    for name in ("test", "samples", "attention", "averaged_steps"):
        assert ours[name] == theirs[name]
    ours, theirs = (path / "test.reversed.translated" for path in (tmp_path, workdir))
    assert ours.read_text() == theirs.read_text()


def test_results_keep_the_command_of_the_training(whole, tmp_path):
    kept = Workdir(whole[0], ()).finished("translation")
    assert kept["command"] == results_of(whole[0])["command"]
    trained = training.Trained(None, [], [], None, 0.0)
    plan = types.SimpleNamespace(
        config=types.SimpleNamespace(steps=STEPS),
        origin={"command": "another one"},
        workdir=Workdir(whole[0], ()),
    )
    assert main._kept(plan, trained) == kept


def test_a_damaged_checkpoint_ends_with_code_1(whole, translate, tmp_path):
    workdir = shutil.copytree(whole[0], tmp_path / "copy")
    step = workdir / "checkpoints" / "translation" / "00000006"
    shutil.rmtree(step)
    step.mkdir()
    outcome = translate(*options(workdir))
    assert outcome.code == 1
    assert f"remove {step} to go on from step 4" in outcome.err


def test_another_seed_is_another_run(whole, translate):
    workdir, _, _ = whole
    outcome = translate(*options(workdir), "--seed", "1")
    assert outcome.code == 2
    assert "seed: 0 there, 1 now" in outcome.err
    assert "(--steps, --data, --tfds-dir, --average," in outcome.err
    assert "extra" not in outcome.err, "it sizes the model"
    outcome = translate(*options(workdir), "--extra-length", "2")
    assert outcome.code == 2
    assert "extra_length: 1 there, 2 now" in outcome.err


def test_another_vocabulary_is_refused(translate, whole, tmp_path):
    """The file that a run left is what it goes on with, or nothing."""
    from attn_jax.data import train_vocabulary

    workdir, _, _ = whole
    path = workdir / "vocabulary.json"
    kept = path.read_text()
    try:
        train_vocabulary(["hello hello"], 261).save(path)
        outcome = translate(*options(workdir))
    finally:
        path.write_text(kept)
    assert outcome.code == 2
    assert "vocabulary: got one with fingerprint" in outcome.err
    assert str(workdir / "config.json") in outcome.err


def test_a_vocabulary_that_was_copied_has_to_be_of_the_size(translate, tmp_path):
    from attn_jax.data import train_vocabulary

    train_vocabulary(["hello hello"], 261).save(tmp_path / "vocabulary.json")
    outcome = translate(*options(tmp_path))
    assert outcome.code == 2
    assert "--vocab-size: got 259, while" in outcome.err
    assert "has 261 pieces; expected 261" in outcome.err


def test_held_out_words_are_not_in_training():
    corpus = reversals(9)
    held_out = {w for part in (corpus.valid, corpus.test) for w in part.source}
    assert not {w for w in corpus.train.source if len(w) > 2} & held_out
    test = corpus.test
    assert {len(word) for word in test.source} <= set(range(1, 10))
    assert all(a[::-1] == b for a, b in zip(test.source, test.target, strict=True))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["smok"], ["preset: got 'smok'", "did you mean 'smoke'"]),
        (["--mechanism", "sofmax"], ["sofmax", "softmax"]),
        (["--cross-mechanism", "dense"], ["cross_mechanism", "Linear()"]),
        (["--mechanism", "lsh"], ["--mechanism", "lsh", "--encoder-mechanism lsh"]),
        (["--beam-size", "0"], ["--beam-size: got 0", "at least 1"]),
        (["--alpha", "inf"], ["--alpha: got inf", "finite"]),
        (["--alpha", "80"], ["--alpha: got 80.0", "-75.4 to 75.4", "max_length = 10"]),
        (["--vocab-size", "9999"], ["--vocab-size: got 9999", "at most"]),
        (["--dropout-rate", "1"], ["--dropout-rate: got 1"]),
        (["--vocab-size", "100"], ["--vocab-size: got 100", "259"]),
        (
            ["--data", "somewhere", "--synthetic", "3"],
            ["--data and --synthetic", "one of them"],
        ),
        (["--data", "nowhere"], ["without train.en, train.de, valid.en"]),
        (
            ["--synthetic", "0"],
            ["--data: got nothing", "translation.prepare"],
        ),
        (
            ["--synthetic", "0", "--data", "nowhere"],
            ["without train.letters"],
        ),
        (["--seed", "-1"], ["--seed: got -1", "0 to 4294967295"]),
        (["--seed", "4294967296"], ["--seed: got 4294967296"]),
        (["--map-sentence", "5"], ["--map-sentence: got 5", "below 5"]),
        (["--learning-rate", "0"], ["--learning-rate: got 0"]),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_computed(
    translate, tmp_path, monkeypatch, arguments, said
):
    def refuse(*_):
        raise AssertionError("computed")

    monkeypatch.setattr("experiments.translation.training.fit", refuse)
    monkeypatch.setattr(jax, "jit", refuse)
    outcome = translate(*arguments, "--workdir", tmp_path / "new")
    assert outcome.code == 2
    for words in said:
        assert words in outcome.err
    assert not (tmp_path / "new" / "metrics.jsonl").exists()
