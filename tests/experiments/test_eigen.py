"""Scores analysed and encoders trained on few of them, end to end, and tiny."""

import functools
import json

import jax
import numpy as np
import pytest
from flax import nnx

from experiments import results as results_page
from experiments.eigen import plot
from experiments.eigen.command_line import parse as parse_analysis
from experiments.eigen.main import main as eigen_main
from experiments.eigen.subjects import find_models
from experiments.eigen_training import claims as training_claims
from experiments.eigen_training import maps
from experiments.eigen_training import plot as training_plot
from experiments.eigen_training.classification import Classification
from experiments.eigen_training.command_line import parse
from experiments.eigen_training.main import main as training_main
from tests.experiments.commands import results_of
from tests.experiments.conftest import run
from tests.interop import small

analyse = functools.partial(run, eigen_main)
train = functools.partial(run, training_main)
SMALL = ("--length", "8", "--sequences", "20", "--held-out", "6", "--batch-size", "6")
FEW = ("--ranks", "2", "4", "--known", "2", "4", "--matrix-rank", "3", "--repeats", "1")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A folder with an encoder of the BERT family."""
    return small.make(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def snippets(tmp_path_factory):
    """Texts of a few words, whose last one is the class."""
    path = tmp_path_factory.mktemp("snippets") / "texts.tsv"
    rng = np.random.default_rng(0)
    lines = []
    for i in range(60):
        words = rng.choice(["the", "film", "was", "it", "is", "a"], size=2 + i % 4)
        last = ("bad", "good")[i % 2]
        lines.append(f"{last}\t{' '.join([*words, last])}\n")
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def masked(book, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("masked")
    words = ("--data", book, "--workdir", workdir, "--models", "full")
    outcome = train("smoke", *words)
    assert outcome.code == 0, outcome.err
    return workdir


def test_masked_pieces_are_learnt(masked):
    results = results_of(masked)
    ((one,),) = [row["runs"] for row in results["rows"]]
    assert 0 < one["test"]["held_out_loss"] < 7
    assert 0 <= one["test"]["masked_accuracy"] <= 1
    assert "| full " in results_page._section(results)


@pytest.fixture(scope="module")
def analysed(masked, book, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("analysed")
    model = f"own={masked / 'encoders' / 'full'}"
    options = ("--models", model, "--data", book, "--workdir", workdir)
    outcome = analyse("smoke", *options, *SMALL, *FEW)
    assert outcome.code == 0, outcome.err
    return workdir, outcome, options


def test_an_encoder_of_ours_is_analysed_beside_a_random_one(analysed):
    workdir, outcome, _ = analysed
    results = results_of(workdir)
    assert [row["model"] for row in results["rows"]] == ["own", "random"]
    assert results["random_overlap"] == 4 / 8
    for row in results["rows"]:
        for shares in (*row["spectra"], *row["centred_spectra"]):
            assert sum(shares) == pytest.approx(1.0)
            assert shares == sorted(shares, reverse=True)
        assert len(row["spectra"]) == 2
        names = {"greedy", "cholesky", "strided", "random", "columns", "matrix"}
        assert set(row["curves"]) == names
        for curves in row["curves"].values():
            curve = np.array(curves)
            assert curve.shape == (2, 2, 3)
            assert (curve[:, 1, 0] <= curve[:, 0, 0] + 1e-9).all()
            # What components leave, nothing falls below.
            assert (curve[..., 2] <= curve[..., 1] + 1e-9).all()
        diagonal = np.diagonal(row["layers"]["overlap"])
        np.testing.assert_allclose(diagonal, 1.0)
    assert len(results["between"]) == 2
    # As if there were another one that was trained.
    renamed = json.loads(json.dumps(results).replace('"random"', '"b"'))
    renamed["rows"].append(results["rows"][1])
    section = results_page._section(renamed)
    for words in (
        "| own, greedy ",
        "| random spaces ",
        "| RQ1: scores vary in few dimensions (b) |",
        "| RQ2: models share components (own for b) |",
        "random spaces 0.50",
        "layers of a random encoder",
        "GB of memory",
    ):
        assert words in section
    assert "Numbers and figures" in outcome.out
    drawn = {path.stem for path in (workdir / "figures").glob("*.png")}
    assert drawn == set(plot.FIGURES)


def test_what_is_analysed_is_kept(analysed):
    """The same command again computes nothing, and says the same."""
    workdir, _, options = analysed
    before = results_of(workdir)
    outcome = analyse("smoke", *options, *SMALL, *FEW)
    assert outcome.code == 0, outcome.err
    assert "analysing" not in outcome.out
    assert results_of(workdir) == before


def test_another_encoder_of_the_same_name_is_no_longer_the_same(analysed, encoder):
    _, _, (_, _, *others) = analysed
    outcome = analyse("smoke", "--models", f"own={encoder}", *others, *SMALL, *FEW)
    assert outcome.code == 2
    assert "--models: got another own than" in outcome.err


def test_without_models_a_random_one_reads_bytes():
    config = parse_analysis(["smoke", *SMALL])
    (model,) = find_models(config, "0123456789" * 20)
    subject = model.load()
    assert subject.name == "random"
    assert subject.sequences.shape == (20, 8)
    assert subject.sequences[0].tolist() == [256, *b"012345", 257]
    assert subject.held_out.shape == (6, 8)


def test_words_lose_their_tags(tmp_path):
    from experiments.common.text import read_text

    path = tmp_path / "ca01"
    path.write_text("The/at film/nn was/bedz 3/4/cd good/jj ./.\n" * 30)
    text, _ = read_text([str(path)], tagged=True)
    assert text.startswith("The film was 3/4 good . The")
    assert "/nn" in read_text([str(path)], tagged=False)[0]


def options(encoder, snippets, workdir, *more):
    return (
        *("sentences", "--pretrained", encoder, "--data", snippets),
        *("--length", "8", "--batch-size", "8", "--statistics", "40"),
        *("--learning-rate", "0.01", "--held-out", "6", "--workdir", workdir),
        *("--checkpoint-every", "4", "--eval-every", "4", "--log-every", "2"),
        *("--seeds", "2", "--models", "shared-3", *more),
    )


@pytest.fixture(scope="module")
def tuned(encoder, snippets, tmp_path_factory):
    """A directory in which maps were found before, what was printed, task and maps."""
    workdir = tmp_path_factory.mktemp("tuned")
    words = options(encoder, snippets, workdir, "--steps", "6")
    task = Classification(parse(list(map(str, words))))
    starts = maps.find(task, ["shared-3", "fixed-8"], workdir / "maps")
    outcome = train(*words)
    assert outcome.code == 0, outcome.err
    return workdir, outcome, task, starts


def test_an_encoder_is_fine_tuned_with_few_scores(tuned):
    workdir, outcome, *_ = tuned
    results = results_of(workdir)
    (row,) = results["rows"]
    assert [one["seed"] for one in row["runs"]] == [0, 1]
    for one in row["runs"]:
        assert [point[0] for point in one["curve"]] == [4, 6]
        assert 0 <= one["test"]["accuracy"] <= 1
    assert sum(results["data"]["texts"].values()) == 60
    drawn = {path.stem for path in (workdir / "figures").glob("*.png")}
    assert drawn == set(training_plot.FIGURES)
    assert "| shared-3 |" in results_page._section(results)
    assert "Numbers and figures" in outcome.out


def test_finished_models_stay(tuned, encoder, snippets):
    workdir, *_ = tuned
    before = results_of(workdir)
    outcome = train(*options(encoder, snippets, workdir, "--steps", "6"))
    assert outcome.code == 0, outcome.err
    assert "compiling" not in outcome.out
    assert results_of(workdir) == before


def test_models_begin_with_what_the_scores_say(tuned):
    """Before any step, k = n scores a query are the pretrained encoder."""
    *_, task, starts = tuned
    assert starts[3].selected.shape == (8, 3)
    np.testing.assert_array_equal(starts[3].selected, starts[8].selected[:, :3])

    def loss(name, start):
        model = task.encoder(maps.mechanism(name, 8, start), nnx.Rngs(0))
        if start is not None:
            maps.begin(model, name, start)
        graph, state = nnx.split(model)

        def whole(state, batch):
            return task.losses(nnx.merge(graph, state), batch, (None, None))[0]

        return float(jax.jit(whole)(state, next(task.held_out("test"))))

    full = loss("full", None)
    assert loss("fixed-8", starts[8]) == pytest.approx(full, rel=1e-4)


def test_verdicts():
    def row(name, *values):
        runs = [{"test": {"held_out_loss": 1.0, "accuracy": value}} for value in values]
        return {"model": name, "runs": runs}

    rows = [
        row("full", 0.8, 0.82),
        row("fixed-32", 0.7, 0.7),
        row("learnt-32", 0.79, 0.8),
        row("shared-32", 0.8, 0.78),
    ]
    kept, beats, better = training_claims.claims(
        {"rows": rows, "config": {"length": 128}}
    )
    assert "learnt-32, 98.1 %" in kept.ours
    assert kept.held == "yes"
    assert beats.held == "yes (2 of 2 seeds)"
    assert better.held == "undecided (1 of 2 seeds)"


# What is said of a command line, in which {encoder} is a folder.
TRAINING = {
    "smoke --models fixd-8": (
        "--models: got 'fixd-8'; expected one of full, or fixed-K"
    ),
    "smoke --models fixed-17": (
        "--models: got 'fixed-17'; expected at most --length 16 scores a query"
    ),
    "sentences --data x": (
        "--pretrained: got nothing; expected a folder with config.json"
    ),
    "sentences --pretrained x": (
        "--data: got neither --data nor --tfds; expected one of the two"
    ),
    "sentences --pretrained x --data y z": (
        "--data: got 2 paths; expected one file of labelled texts"
    ),
    "smoke --ridge -1": "--ridge: got -1.0; expected a number of at least 0",
}
ANALYSIS = {
    "smoke --models minilm": "--models: got minilm; expected NAME=FOLDER",
    "smoke --models minilm=/nowhere/at/all": (
        "directory: got /nowhere/at/all, which has no tokenizer.json"
    ),
    "smoke --ranks 17": "--ranks: got (17,); expected numbers from 1 to --length 16",
    "smoke --sequences 8": "--sequences: got 8; expected more than 8",
    "smoke --models small={encoder} --sequences 100000": (
        "tokens of small; expected at least"
    ),
    "smoke --tagged": "--tagged: got ",
}
MISTAKES = [
    *((train, words, said) for words, said in TRAINING.items()),
    *((analyse, words, said) for words, said in ANALYSIS.items()),
]


@pytest.mark.parametrize(
    ("program", "words", "said"), MISTAKES, ids=[*TRAINING, *ANALYSIS]
)
def test_mistakes_end_before_anything_is_computed(
    program, words, said, encoder, book, tmp_path
):
    given = [word.format(encoder=encoder) for word in words.split()]
    if "--data" not in given and "sentences" not in given:
        given += ["--data", str(book)]
    outcome = program(*given, "--workdir", tmp_path / "runs")
    assert outcome.code == 2
    assert said in outcome.err
    assert not (tmp_path / "runs").exists()
