"""A comparison from end to end: whole, interrupted, and begun again."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from attn_jax.train import read_metrics
from experiments.compare import main as compare_main
from experiments.compare import plot, table
from experiments.compare.text import Text
from tests.experiments.commands import results_of, stop_at

MODELS = ("mixture", "random+exclusive")
STEPS = 6


def options(book: Path, workdir: Path, steps: int = STEPS) -> list[str | Path]:
    return [
        "smoke",
        *("--mechanisms", ",".join(MODELS), "--data", book, "--workdir", workdir),
        *("--steps", str(steps), "--checkpoint-every", "2", "--log-every", "2"),
        *("--eval-every", "4", "--length", "16", "--validation-bytes", "600"),
    ]


@pytest.fixture(scope="module")
def whole(compare, book, tmp_path_factory):
    """The directory of a run without interruption, and what it printed."""
    workdir = tmp_path_factory.mktemp("whole")
    outcome = compare(*options(book, workdir))
    assert outcome.code == 0, outcome.err
    return workdir, outcome


@pytest.fixture(scope="module")
def interrupted(compare, book, tmp_path_factory):
    """The same run, interrupted in the second model and continued."""
    workdir = tmp_path_factory.mktemp("interrupted")
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, Text, "training_batch", (1 + STEPS) + (1 + 3))
        first = compare(*options(book, workdir))
    second = compare(*options(book, workdir))
    return workdir, first, second


def losses(workdir: Path) -> list[tuple]:
    return [
        (line["name"], line["step"], line["loss"]) for line in read_metrics(workdir)
    ]


def test_every_line_of_metrics_says_model_step_loss_rate_and_speed(whole):
    lines = read_metrics(whole[0])
    assert [(line["model"], line["step"]) for line in lines] == [
        (model, step) for model in MODELS for step in (2, 4, 6)
    ]
    for line in lines:
        assert line["seed"] == 0
        assert 0 < line["loss"] < 10
        assert line["learning_rate"] > 0
        assert line["tokens_per_second"] > 0


def test_lines_of_a_mixture_say_its_alphas_where_it_was_evaluated(whole):
    alphas = {
        (line["model"], line["step"]): [
            line[name] for name in line if name.startswith("alpha/stack/")
        ]
        for line in read_metrics(whole[0])
    }
    for (model, step), values in alphas.items():
        if model == "mixture" and step in (4, 6):
            assert sum(values) == pytest.approx(1)
            assert 0 < min(values) < 0.5 < max(values)
        else:
            assert values == []


def test_a_run_leaves_config_results_figures_checkpoints_and_events(whole):
    workdir = whole[0]
    assert json.loads((workdir / "config.json").read_text())["learning_rate"] > 0
    for figure in plot.FIGURES:
        assert 5_000 < (workdir / "figures" / f"{figure}.png").stat().st_size < 300_000
    for model in MODELS:
        steps = sorted(p.name for p in (workdir / "checkpoints" / model).glob("0*"))
        assert steps[-1] == f"{STEPS:08}"
        assert list((workdir / "tensorboard" / model).glob("*tfevents*"))


def test_results_say_where_the_numbers_are_from(whole):
    results = results_of(whole[0])
    for name in ("commit", "versions", "device", "command", "seconds", "corpus"):
        assert name in results
    assert results["config"]["seeds"] == [0]
    assert results["command"].startswith("python -m experiments.compare smoke")
    words = results["command"].split()
    assert not any(os.path.isabs(word) for word in [*words, results["corpus"]["name"]])
    for row in results["rows"]:
        assert row["forward_flops_per_token"] > 0
        assert row["memory_bytes"] > 0
        assert row["runs"][0]["sample"]
        assert [step for step, _ in row["runs"][0]["curve"]] == [4, 6]


def test_the_table_that_is_printed_is_made_from_results_alone(whole):
    workdir, outcome = whole
    results = results_of(workdir)
    assert table.markdown(results) in outcome.out
    assert table.samples(results) in outcome.out
    assert [cells[0] for cells in table.table(results)] == list(MODELS)
    assert "costs 8.0" in outcome.out


def test_the_figures_are_drawn_from_results_alone(whole, tmp_path):
    workdir = whole[0]
    for path in plot.draw(results_of(workdir), tmp_path):
        assert path.read_bytes() == (workdir / "figures" / path.name).read_bytes()


def test_an_interrupted_run_says_how_to_go_on(interrupted):
    _, first, _ = interrupted
    assert first.code == 130
    assert "SIGINT after step 3 of 6" in first.err
    assert "run the same command again" in first.err
    assert "python -m experiments.compare smoke" in first.err
    assert "Traceback" not in first.err


def test_a_continued_run_equals_one_without_interruption_to_the_bit(whole, interrupted):
    workdir, _, second = interrupted
    assert second.code == 0, second.err
    assert losses(workdir) == losses(whole[0])
    ours, theirs = (results_of(path)["rows"] for path in (workdir, whole[0]))
    for here, there in zip(ours, theirs, strict=True):
        for name in ("validation_bits_per_byte", "curve", "sample"):
            assert here["runs"][0][name] == there["runs"][0][name]


def test_what_is_finished_is_not_trained_again(whole, compare, book, monkeypatch):
    workdir, _ = whole

    def refuse(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(compare_main, "build", refuse)
    before = (workdir / "results.json").read_bytes()
    again = compare(*options(book, workdir), "--log-every", "3")
    assert again.code == 0
    assert table.markdown(results_of(workdir)) in again.out
    assert (workdir / "results.json").read_bytes() == before


def test_fewer_models_of_a_finished_run_are_a_table_of_their_own(
    interrupted, compare, book, monkeypatch
):
    workdir = interrupted[0]
    monkeypatch.setattr(compare_main, "build", None)
    fewer = compare(*options(book, workdir), "--mechanisms", "random+exclusive")
    assert fewer.code == 0, fewer.err
    assert [row["model"] for row in results_of(workdir)["rows"]] == ["random+exclusive"]


def test_the_steps_of_an_interrupted_run_are_enough_where_no_more_are_asked_for(
    compare, book, tmp_path, monkeypatch
):
    softmax = ["--mechanisms", "softmax"]
    with monkeypatch.context() as patch:
        stop_at(patch, Text, "training_batch", 1 + 3)
        assert compare(*options(book, tmp_path), *softmax).code == 130
    outcome = compare(*options(book, tmp_path, steps=3), *softmax)
    assert outcome.code == 0, outcome.err
    ((run,),) = [row["runs"] for row in results_of(tmp_path)["rows"]]
    assert [step for step, _ in run["curve"]] == [3]


def test_another_config_is_refused(whole, compare, book):
    workdir = whole[0]
    refused = compare(*options(book, workdir), "--learning-rate", "0.5")
    assert refused.code == 2
    assert "learning_rate: 0.005 there, 0.5 now" in refused.err
    assert "--workdir" in refused.err


def test_another_text_is_refused_and_a_copy_of_it_is_not(
    whole, compare, book, tmp_path, monkeypatch
):
    workdir = whole[0]
    copy, other = tmp_path / "book.txt", tmp_path / "other.txt"
    copy.write_bytes(book.read_bytes())
    other.write_bytes(book.read_bytes() + b"!")
    monkeypatch.setattr(compare_main, "build", None)
    assert compare(*options(copy, workdir)).code == 0
    refused = compare(*options(other, workdir))
    assert refused.code == 2
    assert "corpus_fingerprint" in refused.err


def test_fewer_steps_than_are_done_are_refused(whole, compare, book):
    refused = compare(*options(book, whole[0], steps=STEPS - 1))
    assert refused.code == 2
    assert "--steps: got 5" in refused.err
    assert "at least 6" in refused.err


def test_a_run_goes_on_on_a_mesh(whole, compare, book, tmp_path):
    """From the checkpoint of one device; the table of what lies where comes first."""
    shutil.copytree(whole[0], tmp_path / "run")
    words = options(book, tmp_path / "run", STEPS + 1)
    words[words.index(",".join(MODELS))] = MODELS[1]
    outcome = compare(*words, "--mesh", "data=2,fsdp=2")
    assert outcome.code == 0, outcome.err
    table = outcome.out.index("bytes on each of the devices of data=2, fsdp=2")
    assert table < outcome.out.index("bits per byte")
    results = results_of(tmp_path / "run")
    assert "--mesh data=2,fsdp=2" in results["command"]
    mine = [line for line in losses(tmp_path / "run") if line[0] == MODELS[1]]
    assert [step for _, step, _ in mine] == [2, 4, 6, 7]
    outcome = compare(*words, "--mesh", "rows=2")
    assert (outcome.code, outcome.out) == (2, "")
    assert "mesh: got 'rows=2'" in outcome.err


def test_two_hosts_get_the_numbers_of_one(whole, book, tmp_path):
    """Real processes: each makes its rows, and the first one writes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    words = options(book, tmp_path / "run")
    words[words.index(",".join(MODELS))] = MODELS[1]
    words += ["--hosts", "2", "--coordinator", coordinator, "--host-timeout", "120"]
    program = [sys.executable, "-m", "experiments.compare", *map(str, words)]
    children = [
        subprocess.Popen(
            [*program, "--host", host],
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for host in ("0", "1")
    ]
    said = [child.communicate()[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert "bits per byte" in said[0]
    assert "bits per byte" not in said[1]
    found = losses(tmp_path / "run")
    wanted = [line for line in losses(whole[0]) if line[0] == MODELS[1]]
    assert [line[:2] for line in found] == [line[:2] for line in wanted]
    for (*_, got), (*_, loss) in zip(found, wanted, strict=True):
        assert got == pytest.approx(loss, rel=1e-5)
