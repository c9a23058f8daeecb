"""What is wrong on the command line is said before anything is computed."""

import pytest

from attn_jax.train import CheckpointReadError
from experiments.compare import main as compare_main


@pytest.fixture(autouse=True)
def nothing_is_computed(monkeypatch):
    def refuse(*_):
        raise AssertionError("computed")

    monkeypatch.setattr(compare_main, "build", refuse)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dem"], ["preset: got 'dem'", "did you mean 'demo'", "smoke"]),
        (["--mechanisms", "sofmax"], ["'sofmax'", "did you mean 'softmax'"]),
        (["--mechanisms", "linear+exclusiv"], ["did you mean linear+exclusive?"]),
        (["--mechanisms", "linear+"], ["'linear+'", "linear+exclusive"]),
        (["--mechanisms"], ["mechanisms: got none"]),
        (["--mechanisms", "linear", "linear"], ["twice", "--seeds"]),
        (["--steps", "0"], ["--steps: got 0", "at least 1"]),
        (["--seeds", "0"], ["--seeds: got 0", "at least 1"]),
        (["--checkpoint-every", "0"], ["--checkpoint-every: got 0"]),
        (["--batch-size", "-1"], ["--batch-size: got -1"]),
        (["--learning-rate", "nan"], ["--learning-rate: got nan", "above 0"]),
        (["--warmup-fraction", "1"], ["--warmup-fraction: got 1"]),
        (["--d-model", "30"], ["num_heads: got 4 for d_model = 30"]),
        (["--d-ff", "2", "--mechanisms", "random"], ["random", "--d-ff"]),
        (["--data"], ["data: got no path"]),
        (["--data", ""], ["data: got no path"]),
        (["--data", "nowhere.txt"], ["'nowhere.txt'", "a path that exists"]),
        (["--data", "*.nothing"], ["'*.nothing'", "a glob that matches"]),
        (["--steps", "many"], ["--steps", "many"]),
        (["--stepz", "9"], ["--stepz"]),
    ],
)
def test_a_mistake_ends_with_code_2_and_a_short_message(
    compare, tmp_path, arguments, said
):
    outcome = compare(*arguments, "--workdir", tmp_path / "run")
    message = outcome.err
    assert outcome.code == 2
    assert "Traceback" not in message
    for words in said:
        assert words in message
    assert not (tmp_path / "run").exists()


def test_a_text_shorter_than_one_batch(compare, tmp_path):
    (tmp_path / "short.txt").write_text("too short")
    outcome = compare("--data", tmp_path / "short.txt", "--workdir", tmp_path / "run")
    assert outcome.code == 2
    assert "at least one batch" in outcome.err


def test_an_empty_text(compare, tmp_path):
    (tmp_path / "empty.txt").touch()
    outcome = compare("--data", tmp_path / "empty.txt", "--workdir", tmp_path / "run")
    assert outcome.code == 2
    assert "not empty" in outcome.err


def test_a_damaged_checkpoint_ends_with_code_1(compare, tmp_path, monkeypatch):
    def run(plan):
        raise CheckpointReadError("step 20 can't be read")

    monkeypatch.setattr(compare_main, "run", run)
    outcome = compare("smoke", "--workdir", tmp_path / "run")
    assert (outcome.code, outcome.err) == (1, "error: step 20 can't be read\n")


def test_a_work_directory_that_is_a_file(compare, tmp_path, book):
    outcome = compare("--data", book, "--workdir", book)
    assert outcome.code == 2
    assert "workdir" in outcome.err


def test_a_work_directory_of_something_else(compare, tmp_path, book):
    (tmp_path / "checkpoints").mkdir()
    outcome = compare("--data", book, "--workdir", tmp_path)
    assert outcome.code == 2
    assert "no config.json" in outcome.err


@pytest.mark.parametrize("broken", ["{", "", "[1]"])
@pytest.mark.parametrize("name", ["config.json", "finished/softmax.json"])
def test_a_broken_file_in_the_work_directory_is_named(tmp_path, capsys, name, broken):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(broken)
    assert compare_main.main(["smoke", "--workdir", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert path.name in said
    assert "pass another --workdir" in said
