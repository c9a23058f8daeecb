"""The other studies, each with a row or two and a few steps; their data sets."""

import io
import json
import tarfile
import types
from dataclasses import replace

import numpy as np
import pytest
import tensorflow_datasets as tfds

from attn_jax.data import load_tfds_labelled, load_tfds_pairs, load_tfds_texts
from attn_jax.train import read_metrics
from benchmarks.problem import Size
from experiments import results as results_page
from experiments.common.errors import UserError
from experiments.synthesizer import prepare
from experiments.synthesizer.claims import claims
from experiments.synthesizer.config import LanguageStudy, TranslationStudy
from experiments.synthesizer.language import Language
from experiments.synthesizer.presets import PRESETS, TASKS
from experiments.synthesizer.rows import parse_rows
from experiments.synthesizer.speed import layer
from experiments.synthesizer.table import table
from experiments.synthesizer.translation import Translation
from experiments.translation import corpus
from tests.experiments.commands import results_of

WORDS = {"train": 12, "valid": 4, "test": 6}


def section(results, tmp_path):
    """The section of docs/results.md that these results become."""
    place = tmp_path / "docs" / "synthesizer"
    place.mkdir(parents=True)
    (place / "some.json").write_text(json.dumps(results))
    return results_page.page(place.parent)


def test_translation(synthesize, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "SYNTHETIC_PAIRS", WORDS)
    arguments = [
        *("translation", "--synthetic", "3", "--vocab-size", "259"),
        *("--max-length", "6", "--max-tokens", "24", "--extra-length", "1"),
        *("--d-model", "8", "--d-ff", "8", "--num-layers", "1", "--num-heads", "2"),
        *("--steps", "2", "--checkpoint-every", "1", "--average", "2"),
        *("--eval-every", "2", "--log-every", "1", "--eval-sentences", "2"),
        *("--test-sentences", "3", "--rows", "random+softmax", "--seeds", "1"),
    ]
    outcome = synthesize(*arguments, "--workdir", tmp_path)
    assert outcome.code == 0, outcome.err
    results = results_of(tmp_path)
    (row,) = results["rows"]
    (run,) = row["runs"]
    assert run["averaged_steps"] == [1, 2]
    assert run["validation_perplexity"] == pytest.approx(np.exp(run["validation_loss"]))
    assert results["corpus"]["test_pairs"] == 3
    for stack in ("encoder", "decoder"):
        (layer,) = run["weights"][stack]
        assert sum(layer["shares"]) == pytest.approx(1, abs=1e-4)
        assert 0 < layer["mean"] <= 1
    assert (tmp_path / "figures" / "attention_weights.png").stat().st_size > 5_000
    text = section(results, tmp_path)
    assert "28.47" in text
    assert "random+softmax  " in text.split("```")[1]
    assert "synthesizer-translation-attention_weights.png" in text


def folder(tmp_path, source, target):
    """Sentence pairs, the same ones to train, to validate and to test on."""
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.en").write_text("".join(f"{line}\n" for line in source))
        (tmp_path / f"{split}.de").write_text("".join(f"{line}\n" for line in target))
    return tmp_path


@pytest.mark.parametrize(("cut", "kept"), [(False, 2), (True, 3)])
def test_long_sources_are_left_out_or_cut(tmp_path, cut, kept):
    source, target = ["abc", "ab", "abcdefgh", "a"], ["xy", "x", "y", "abcdefgh"]
    study = TranslationStudy(
        data=folder(tmp_path, source, target),
        vocab_size=259,
        max_length=6,
        max_tokens=48,
        cut_sources=cut,
    )
    task = Translation(study)
    assert (task.data.train.num_pairs, len(task.test)) == (kept, kept)
    (batch,) = task.data.train.in_order()
    assert batch.source_real.sum(axis=1).max() == (6 if cut else 4)


def test_sentences(synthesize, tmp_path):
    path = tmp_path / "reviews.tsv"
    words = {"good": "fine", "bad": "dull"}
    lines = [
        f"{label}\tfilm {i} is {words[label]}\n" for i in range(30) for label in words
    ]
    path.write_text("".join(lines))
    arguments = [
        *("snippets", "--data", path, "--workdir", tmp_path / "run"),
        *("--vocab-size", "262", "--length", "12", "--steps", "2", "--log-every", "1"),
        *("--checkpoint-every", "1", "--eval-every", "2", "--batch-size", "4"),
        *("--d-model", "8", "--d-ff", "8", "--num-layers", "1", "--num-heads", "2"),
        *("--rows", "factorized_random+softmax", "--seeds", "1"),
    ]
    outcome = synthesize(*arguments)
    assert outcome.code == 0, outcome.err
    results = results_of(tmp_path / "run")
    assert results["corpus"]["classes"] == ["bad", "good"]
    ((name, accuracy, *_),) = table(results)
    assert name == "factorized_random+softmax"
    assert 0 <= float(accuracy) <= 1
    assert "guessing the commonest of 2 classes" in outcome.out
    assert "examples/s" in section(results, tmp_path)
    last = read_metrics(tmp_path / "run" / f"{name}-seed0")[-1]
    alphas = [last[f"alpha/stack/{member}"] for member in name.split("+")]
    assert sum(alphas) == pytest.approx(1)


def test_speed(synthesize, tmp_path):
    arguments = ["--rows", "softmax", "random", "--lengths", "4", "8", "--tokens", "16"]
    sizes = ["--d-model", "8", "--num-heads", "2", "--rounds", "1"]
    outcome = synthesize("speed", "--workdir", tmp_path, *arguments, *sizes)
    assert outcome.code == 0, outcome.err
    results = results_of(tmp_path)
    softmax, random = results["rows"]
    assert softmax["parameters"] == 4 * 8 * 8
    assert random["parameters"] == 2 * 8 * 8 + 2 * 8 * 8
    points = [(point["n"], point["direction"]) for point in random["points"]]
    assert points == [(4, "forward"), (4, "both"), (8, "forward"), (8, "both")]
    assert all(sample > 0 for point in random["points"] for sample in point["samples"])
    (claim,) = claims(results)
    assert claim.held.endswith("of 2 lengths)")
    assert claim.ours.endswith("(4, 8 tokens)")
    assert "time_and_memory" in section(results, tmp_path)


def test_a_fixed_matrix_is_timed_without_its_gradient():
    problem = layer(*parse_rows(["fixed_random"]), Size(4, 1, heads=2, width=4))
    _, gradients = problem.program("both")(*problem.arguments)
    assert [g.shape for g in gradients if not g.any()] == [(2, 4, 4)]
    assert len(gradients) == 4


def test_what_cannot_write_a_translation_is_refused(synthesize, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "SYNTHETIC_PAIRS", WORDS)
    arguments = ["--synthetic", "3", "--vocab-size", "259", "--rows", "lsh"]
    outcome = synthesize("translation", *arguments, "--workdir", tmp_path / "run")
    assert outcome.code == 2
    assert "--rows: got lsh; expected ones that decode" in outcome.err


def test_checkpoints_may_lie_apart_as_they_like_unless_they_are_averaged():
    assert "checkpoint_every" in TranslationStudy().shared()
    assert "checkpoint_every" not in LanguageStudy().shared()


def test_pieces_cost_the_bytes_they_stand_for(book):
    study = LanguageStudy(
        data=(str(book),), vocab_size=300, length=8, validation_bytes=500
    )
    text = Language(study).text
    assert text.vocab_size == 300
    assert text.decode(text.train[:40]) in book.read_text()
    validation = text.decode(text.validation).encode()
    assert text.bytes_per_token == len(validation) / len(text.validation) > 1.2
    assert text.training_batch(0, 0).tokens.max() < 300
    with pytest.raises(UserError, match=r"^--vocab-size: got 9; expected an integer"):
        Language(replace(study, vocab_size=9))


@pytest.mark.parametrize("preset", TASKS)
def test_the_tasks_have_these_features_and_classes(preset, monkeypatch):
    name, features = TASKS[preset]
    # All that the code of SuperGLUE wants of TensorFlow, which isn't installed.
    integers = types.SimpleNamespace(int32=np.int32)
    monkeypatch.setattr("tensorflow_datasets.text.super_glue.tf", integers)
    with tfds.testing.mock_data(num_examples=2):
        data = load_tfds_labelled(name, "train", features)
    assert data.num_parts == len(features)
    others = {"glue-mnli": 3, "superglue-cb": 3, "ag-news": 4}
    assert len(data.classes) == others.get(preset, 2)
    assert all(isinstance(text, str) for texts in data.texts for text in texts)


def test_the_other_sets_have_these_features():
    lm1b, summaries = PRESETS["lm1b"], PRESETS["cnn-dailymail"]
    with tfds.testing.mock_data(num_examples=2):
        texts = load_tfds_texts(lm1b.tfds, "train")
        sides = (summaries.source, summaries.target)
        pairs = load_tfds_pairs(summaries.tfds, "train", *sides)
    assert 0 < len(texts) <= 2
    assert 0 < len(pairs) <= 2


def archive(tmp_path, content):
    """Sources of a package with a file of ratings in an archive of its own."""

    def packed(name, content):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        return buffer.getvalue()

    inner = packed(f"some/{prepare.FILE}", content)
    path = tmp_path / "sources.tar.gz"
    path.write_bytes(packed(f"package/{prepare.INNER}", inner))
    return path


def test_the_sign_of_a_rating_is_the_class(tmp_path):
    ratings = "1\t2.5\tFine  film\r\n2\t-0.1\tÖde\r\n3\t0\tneither\r\n".encode()
    out = tmp_path / "snippets.tsv"
    arguments = ["--sdist", str(archive(tmp_path, ratings)), "--out", str(out)]
    assert prepare.main(arguments) == 0
    assert out.read_text() == "positive\tFine film\nnegative\tÖde\n"


def test_snippets_of_one_class_may_be_joined(tmp_path):
    ratings = "".join(f"{i}\t{(-1) ** i}\ttext{i}\n" for i in range(15)).encode()
    out = tmp_path / "snippets.tsv"
    arguments = ["--sdist", str(archive(tmp_path, ratings)), "--out", str(out)]
    assert prepare.main([*arguments, "--join", "3"]) == 0
    lines = [line.split("\t") for line in out.read_text().splitlines()]
    assert sorted(label for label, _ in lines) == ["negative"] * 2 + ["positive"] * 2
    words = [(label, word) for label, text in lines for word in text.split()]
    assert len(set(words)) == 12
    even = {f"text{i}" for i in range(0, 15, 2)}
    assert all((label == "positive") == (word in even) for label, word in words)
    assert prepare.main([*arguments, "--join", "0"]) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"1\t2.5\n", "line 1"), (b"1\tgood\tx\n", "line 1"), (b"\xff", "utf-8")],
    ids=["columns", "rating", "bytes"],
)
def test_ratings_that_cannot_be_read_are_named(tmp_path, capsys, content, message):
    arguments = ["--sdist", str(archive(tmp_path, content)), "--out", "nowhere"]
    assert prepare.main(arguments) == 2
    assert message in capsys.readouterr().err


def test_sources_of_another_package_are_refused(tmp_path, capsys):
    path = tmp_path / "other.tar.gz"
    with tarfile.open(path, "w:gz"):
        pass
    assert prepare.main(["--sdist", str(path), "--out", "nowhere"]) == 2
    assert "pip download" in capsys.readouterr().err
