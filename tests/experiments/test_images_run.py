"""Images from end to end: whole, interrupted, and begun again."""

import os
import shutil

import jax
import pytest

from attn_jax.train import read_metrics
from experiments.linear_images import main as images_main
from experiments.linear_images import plot, rows, table, writing
from experiments.linear_images.training import Program
from tests.experiments.commands import results_of, stop_at

STEPS = 6


def options(pictures, workdir, steps=STEPS):
    return [
        *("smoke", "--data", pictures, "--workdir", workdir, "--steps", str(steps)),
        *("--side", "4", "--levels", "256", "--d-model", "8", "--d-ff", "16"),
        *("--log-every", "2", "--eval-every", "4", "--checkpoint-every", "2"),
        *("--generate", "2", "--completions", "3", "--test-images", "5"),
    ]


@pytest.fixture(scope="module", autouse=True)
def two_lengths():
    """Each length of a prefix is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "PREFIXES", 2)
        yield


@pytest.fixture(scope="module")
def whole(draw, pictures, two_lengths, tmp_path_factory):
    """The directory of a run without interruption, and what it printed."""
    workdir = tmp_path_factory.mktemp("whole")
    outcome = draw(*options(pictures, workdir))
    assert outcome.code == 0, outcome.err
    return workdir, outcome


def test_results(whole):
    workdir, outcome = whole
    results = results_of(workdir)
    assert [row["model"] for row in results["rows"]] == ["softmax", "linear"]
    assert results["reference"]["uniform_bits_per_dim"] == 8
    assert results["images"]["counted_images"] == 5
    assert len(results["originals"]) == len(results["occluded"]) == 3
    for row in results["rows"]:
        training = row["training"]
        assert [step for step, _ in training["curve"]] == [4, 6]
        assert 0 < training["held_out_bits_per_dim"] < 12
        # All five held-out images are those of the curve too.
        assert training["held_out_bits_per_dim"] == training["curve"][-1][1]
        assert training["tokens_per_second"] > 0
        assert len(row["completions"]) == 3
    found = [
        (row["model"], timed["way"], timed["images"], len(timed["pixels"]))
        for row in results["rows"]
        for timed in row["writing"]
    ]
    assert found == [
        ("softmax", "recompute", 2, 2),
        ("softmax", "recompute", 1, 1),
        ("softmax", "cache", 2, 2),
        ("softmax", "cache", 1, 1),
        ("linear", "state", 2, 2),
        ("linear", "state", 1, 1),
    ]
    for row in results["rows"]:
        for timed in row["writing"]:
            assert timed["median_seconds"] > 0
            assert timed["compile_seconds"] > 0
    assert table.markdown(results).split("\n\n")[0] in outcome.out
    assert "of 4 images, drawn with replacement from 20 (pict" in table.scale(results)
    for name in ("commit", "versions", "device", "command"):
        assert name in results
    assert not any(os.path.isabs(word) for word in results["command"].split())


def test_a_completion_keeps_what_is_given(whole):
    results = results_of(whole[0])
    shape = results["images"]["shape"]
    for row in results["rows"]:
        for text, original in zip(
            row["completions"], results["originals"], strict=True
        ):
            image, true = rows.unpacked(text, shape), rows.unpacked(original, shape)
            assert (image[:2] == true[:2]).all()


def test_the_figures_are_drawn_from_results_alone(whole, tmp_path):
    workdir, _ = whole
    drawn = plot.draw(results_of(workdir), tmp_path)
    assert [path.stem for path in drawn] == ["loss_curves", "samples", "completions"]
    for path in drawn:
        assert 1_000 < path.stat().st_size < 300_000
        assert path.read_bytes() == (workdir / "figures" / path.name).read_bytes()


def test_a_curve_says_on_how_many_images_it_is(whole):
    results = results_of(whole[0])
    results["images"] |= {"held_out_images": 900, "counted_images": 1000}
    (axes,) = plot.FIGURES["loss_curves"](results).axes
    assert axes.get_ylabel() == "bits/dim, 8 held-out images"
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[-1] == "table of neighbouring pixels, on 1,000 images"
    assert sorted(labels[:-1]) == ["linear", "softmax"]


def test_interruptions_change_nothing(whole, draw, pictures, tmp_path, monkeypatch):
    """In a training, and again while the second model writes."""
    with monkeypatch.context() as patch:
        stop_at(patch, Program, "batch", (1 + STEPS) + (1 + 4))
        first = draw(*options(pictures, tmp_path))
    assert first.code == 130
    assert "SIGINT after step 4 of 6" in first.err
    assert "python -m experiments.linear_images smoke" in first.err
    with monkeypatch.context() as patch:
        calls = stop_at(patch, rows, "write", 1)
        second = draw(*options(pictures, tmp_path))
    assert second.code == 130
    assert "Interrupted outside of a training" in second.err
    assert len(calls) == 1, "what softmax wrote is there"
    third = draw(*options(pictures, tmp_path))
    assert third.code == 0, third.err
    ours, theirs = results_of(tmp_path), results_of(whole[0])
    for mine, other in zip(ours["rows"], theirs["rows"], strict=True):
        assert mine["completions"] == other["completions"]
        for name in ("curve", "held_out_bits_per_dim"):
            assert mine["training"][name] == other["training"][name]
        for one, two in zip(mine["writing"], other["writing"], strict=True):
            assert one["pixels"] == two["pixels"]
    for model in ("softmax", "linear"):
        lines = [
            [(line["step"], line["loss"]) for line in read_metrics(path, name=model)]
            for path in (tmp_path, whole[0])
        ]
        assert lines[0] == lines[1]


def test_what_is_finished_is_not_done_again(whole, draw, pictures, monkeypatch):
    workdir, _ = whole
    monkeypatch.setattr(Program, "train", None)
    monkeypatch.setattr(rows, "write", None)
    before = (workdir / "results.json").read_bytes()
    again = draw(*options(pictures, workdir), "--log-every", "3")
    assert again.code == 0, again.err
    assert (workdir / "results.json").read_bytes() == before, "the command as well"


def test_what_is_asked_for_anew_is_measured_without_training(
    whole, draw, pictures, tmp_path, monkeypatch
):
    workdir = shutil.copytree(whole[0], tmp_path / "copy")
    calls = stop_at(monkeypatch, rows, "write", 0)
    linear = ["--mechanisms", "linear", "--repeats", "2"]
    outcome = draw(*options(pictures, workdir), *linear)
    assert outcome.code == 0, outcome.err
    assert len(calls) == 2
    results = results_of(workdir)
    trained, measured = results["command"].split("; ")
    assert trained == results_of(whole[0])["command"]
    assert measured.endswith("--mechanisms linear --repeats 2")
    (row,) = results["rows"]
    assert [len(timed["seconds"]) for timed in row["writing"]] == [2, 2]
    assert row["training"] == results_of(whole[0])["rows"][1]["training"]


def test_another_config_is_refused(whole, draw, pictures):
    """Other steps, too: the rate falls along a cosine to the last one."""
    workdir, _ = whole
    refused = draw(*options(pictures, workdir), "--d-ff", "32")
    assert refused.code == 2
    assert "d_ff: 16 there, 32 now" in refused.err
    refused = draw(*options(pictures, workdir, steps=STEPS + 2))
    assert refused.code == 2
    assert "steps: 6 there, 8 now" in refused.err
    assert "--steps" not in refused.err


def test_nan_while_writing_ends_with_code_1(
    whole, draw, pictures, tmp_path, monkeypatch
):
    workdir = shutil.copytree(whole[0], tmp_path / "copy")

    def broken(row):
        params = row.program.init().params
        return jax.tree.map(lambda leaf: leaf * float("nan"), params)

    monkeypatch.setattr(rows.Row, "params", property(broken))
    linear = ["--mechanisms", "linear", "--repeats", "2"]
    outcome = draw(*options(pictures, workdir), *linear)
    assert outcome.code == 1
    assert "state: the model gave NaN or infinity" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["smok"], ["preset: got 'smok'", "did you mean 'smoke'"]),
        (["--mechanisms", "linaer"], ["'linaer'", "did you mean 'linear'"]),
        (["--mechanisms"], ["mechanisms: got none"]),
        (["--mechanisms", "lsh-0"], ["mechanisms: got 'lsh-0'", "or lsh-N with"]),
        (["--mechanisms", "linear", "linear"], ["['linear'] twice"]),
        (
            ["--optimizer", "sgd"],
            ["--optimizer: got 'sgd'; expected one of adamw, radam"],
        ),
        (["--head", "softmax"], ["--head: got 'softmax'; expected one of logistics,"]),
        (["--levels", "257"], ["--levels: got 257; expected at most 256"]),
        (["--levels", "1"], ["--levels: got 1"]),
        (["--levels", "17"], ["pixel of 177; expected 0 to 16, by --levels 17"]),
        (["--side", "8"], ["of 4 x 4 x 1; expected 8 x 8 x 1", "pass --side 4"]),
        (["--channels", "3"], ["expected 4 x 4 x 3", "--channels 1"]),
        (["--tfds", "mnist"], ["--data: got a folder and --tfds; expected one"]),
        (["--data", "nowhere"], ["'nowhere', without train-images", "apt-get"]),
        (["--steps", "0"], ["--steps: got 0"]),
        (["--mixtures", "0"], ["--mixtures: got 0"]),
        (["--generate", "0"], ["--generate: got 0"]),
        (["--seed", "-1"], ["--seed: got -1", "0 to 4294967295"]),
        (["--learning-rate", "nan"], ["--learning-rate: got nan"]),
        (["--warmup-fraction", "1"], ["--warmup-fraction: got 1"]),
        (["--final-fraction", "2"], ["--final-fraction: got 2"]),
        (["--weight-decay", "-1"], ["--weight-decay: got -1"]),
        (["--dropout-rate", "1"], ["--dropout-rate: got 1"]),
        (["--num-heads", "3"], ["num_heads: got 3"]),
        (["--positions", "alibi"], ["alibi: linear attention has no logits"]),
        (["--activation", "swish"], ["activation: got 'swish'"]),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_computed(
    draw, pictures, tmp_path, monkeypatch, arguments, said
):
    monkeypatch.setattr(images_main, "run", None)
    preset = [] if arguments[0] == "smok" else ["smoke"]
    given = [*preset, *arguments] if preset else arguments
    asked = ["--side", "4", "--levels", "256", "--data", pictures]
    for name, value in zip(asked[::2], asked[1::2], strict=True):
        if name not in given:
            given = [*given, name, value]
    outcome = draw(*given, "--workdir", tmp_path / "new")
    assert outcome.code == 2
    for words in said:
        assert words in outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "new").exists()


def test_named_images_take_the_place_of_a_presets(draw, pictures, tmp_path):
    """mnist-paper has a set of tensorflow-datasets, fashion-mnist a folder."""
    outcome = draw("mnist-paper", "--data", pictures, "--workdir", tmp_path / "new")
    assert "of 4 x 4 x 1; expected 28 x 28 x 1" in outcome.err
    outcome = draw(
        *("fashion-mnist", "--tfds", "mnist", "--tfds-dir", tmp_path),
        *("--workdir", tmp_path / "new"),
    )
    assert "tfds.builder('mnist'" in outcome.err
    assert outcome.code == 2


def test_another_head_has_a_directory_of_its_own():
    from experiments.linear_images.command_line import parse

    assert parse(["digits"]).directory().name == "digits"
    other = parse(["digits", "--head", "logistics"])
    assert other.directory().name == other.title == "digits-logistics"
