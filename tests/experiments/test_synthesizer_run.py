"""The rows of a study from end to end: whole, killed, shared by two processes."""

import json

import jax
import pytest
from flax import nnx

from attn_jax.models import Decoder
from attn_jax.train import (
    Checkpointer,
    adamw,
    cosine_schedule,
    init_train_state,
    read_metrics,
)
from attn_jax.train.names import leaf_names
from experiments.common.workdir import Workdir
from experiments.synthesizer import plot, table
from experiments.synthesizer.claims import claims
from experiments.synthesizer.command_line import parse
from experiments.synthesizer.language import Language
from experiments.synthesizer.rows import parse_rows
from tests.experiments.commands import (
    STEPS,
    by_arguments,
    finished,
    numbers_of,
    refused,
    results_of,
    stopped_study,
    study,
)

ROWS = ("fixed_random", "random+dense")
NUMBERS = ("validation_perplexity", "curve")


def options(book, workdir, rows=ROWS, seeds=2):
    sizes = ("--length", "8", "--d-model", "8", "--num-heads", "2", "--d-ff", "8")
    return study(book, workdir, rows, seeds, *sizes)


@pytest.fixture(scope="module")
def whole(synthesize, book, tmp_path_factory):
    """The directory of a study without interruption, and what it printed."""
    workdir = tmp_path_factory.mktemp("whole")
    return workdir, finished(synthesize, options(book, workdir))


def test_results_have_every_row_and_seed(whole):
    workdir, outcome = whole
    results = results_of(workdir)
    assert [row["row"] for row in results["rows"]] == list(ROWS)
    assert results["config"]["seeds"] == [0, 1]
    assert results["study"] == "language"
    for row in results["rows"]:
        assert [run["seed"] for run in row["runs"]] == [0, 1]
        first, second = (run["validation_perplexity"] for run in row["runs"])
        assert 1 < first != second < 400
    assert results["command"].startswith("python -m experiments.synthesizer smoke")
    assert table.markdown(results) in outcome.out
    assert "(n=2)" in outcome.out
    for name in plot.figures(results):
        assert (workdir / "figures" / f"{name}.png").stat().st_size > 5_000


def test_a_fixed_matrix_is_not_counted_among_what_is_trained(whole):
    """Length 8 and 2 heads: dense has biases, random a matrix, both have mixing."""
    fixed, mixed = (row["parameters"] for row in results_of(whole[0])["rows"])
    heads, length, width, hidden = 2, 8, 8, 4
    random = heads * length * length
    dense = heads * (width * hidden + hidden + hidden * length + length)
    assert mixed - fixed == random + dense + 2 * heads


def test_the_fixed_matrix_is_saved_as_it_was_drawn(whole, book):
    """And so are no parameters, which training has moved."""
    workdir = whole[0]
    task = Language(parse([str(word) for word in options(book, workdir)]))
    (row,) = parse_rows(["fixed_random"])
    drawn = nnx.state(Decoder(task.model(row), rngs=nnx.Rngs(1)))
    schedule = cosine_schedule(1.0, num_steps=STEPS, warmup_steps=0)
    optimizer = adamw(schedule)
    state = init_train_state(drawn, optimizer, seed=1)
    run = Workdir(workdir / "fixed_random-seed1", ())
    with Checkpointer(run.checkpoints("fixed_random-seed1")) as checkpointer:
        saved = checkpointer.restore(state).params
    names = leaf_names(drawn)
    leaves = zip(jax.tree.leaves(drawn), jax.tree.leaves(saved), strict=True)
    same = [name for name, (a, b) in zip(names, leaves, strict=True) if (a == b).all()]
    assert [name[-1] for name in same] == ["random"]


def test_a_study_that_was_stopped_goes_on_where_it_was(
    whole, synthesize, book, tmp_path
):
    first = stopped_study(synthesize, options(book, tmp_path))
    assert "python -m experiments.synthesizer smoke" in first.err
    assert Workdir(tmp_path / "fixed_random-seed0", ()).finished("run") is not None
    finished(synthesize, options(book, tmp_path))
    assert numbers_of(tmp_path, NUMBERS) == numbers_of(whole[0], NUMBERS)
    lines = read_metrics(tmp_path / "fixed_random-seed1")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]


def test_what_another_process_trains_is_left_to_it(
    whole, synthesize, book, tmp_path, monkeypatch
):
    """Its row is missing from the results, and there once it has finished."""
    row, other = ROWS
    finished(synthesize, options(book, tmp_path, (row,), seeds=1))
    monkeypatch.setattr(Language, "build", None)
    busy = tmp_path / f"{other}-seed0"
    config = json.loads((tmp_path / f"{row}-seed0" / "config.json").read_text())
    with Workdir(busy, ()).claim({**config, "run": busy.name}):
        outcome = finished(synthesize, options(book, tmp_path, seeds=1))
    assert f"Another process is training {other}, seed 0" in outcome.out
    assert set(numbers_of(tmp_path, NUMBERS)) == {(row, 0)}

    numbers = Workdir(whole[0] / f"{other}-seed0", ()).finished("run")
    Workdir(busy, ()).finish("run", numbers)
    finished(synthesize, options(book, tmp_path, (row,), seeds=1))
    assert set(numbers_of(tmp_path, NUMBERS)) == {(row, 0), (other, 0)}


def test_what_is_finished_is_not_trained_again(whole, synthesize, book, monkeypatch):
    monkeypatch.setattr(Language, "build", None)
    before = numbers_of(whole[0], NUMBERS)
    finished(synthesize, options(book, whole[0]))
    assert numbers_of(whole[0], NUMBERS) == before


def test_another_config_is_refused_before_anything_is_built(
    whole, synthesize, book, monkeypatch
):
    monkeypatch.setattr(Language, "build", None)
    outcome = synthesize(*options(book, whole[0]), "--batch-size", "3")
    assert outcome.code == 2
    assert "batch_size: 4 there, 3 now" in outcome.err
    assert "--rows" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "randon"], "did you mean 'random'"),
        (["--rows", "random@x"], "random@8"),
        (["--rows", "random+linear"], "no logits to mix"),
        (["--rows", "random", "random"], "random twice"),
        (["--rows", "random@3"], "num_heads"),
        (["--seeds", "0"], "--seeds: got 0"),
    ],
    ids=by_arguments,
)
def test_mistakes_are_said_at_once(synthesize, book, tmp_path, arguments, message):
    assert message in refused(synthesize, book, tmp_path, arguments)


def weights(*deviations):
    """Of a run that counted the attention weights of some layers of an encoder."""
    return {"edges": [0, 1], "encoder": [{"deviation": d} for d in deviations]}


def test_weights_are_looked_at_layer_by_layer():
    rows = [row("softmax", 3.0, 3.0), row("dense", 3.1, 3.2)]
    rows[0]["runs"][0]["weights"] = weights(0.1, 0.2)
    rows[1]["runs"][0]["weights"] = weights(0.3, 0.1)
    _, spread = claims({"study": "translation", "rows": rows})
    assert spread.claim.startswith("Weights of dense logits vary more")
    assert spread.ours == "standard deviation: softmax 0.150, dense 0.200"
    assert spread.held == "cannot be told at this scale (1 of 2 layers)"


def row(name, *perplexities):
    runs = [
        {"seed": seed, "validation_perplexity": value}
        for seed, value in enumerate(perplexities)
    ]
    return {"row": name, "runs": runs}


@pytest.mark.parametrize(
    ("softmax", "ours", "held"),
    [
        ((3.1, 3.2, 3.3), "softmax 3.200", "held (+0.200 ± 0.000)"),
        (
            (3.3, 3.35, 3.2),
            "softmax 3.283",
            "cannot be told at this scale (+0.117 ± 0.399)",
        ),
        (
            (3.5, 3.5, 3.5),
            "softmax 3.500",
            "cannot be told at this scale (-0.100 ± 0.248)",
        ),
        ((3.7, 3.7, 3.7), "softmax 3.700", "did not hold (-0.300 ± 0.248)"),
    ],
    ids=["every seed alike", "every seed, none alike", "below", "far below"],
)
def test_a_claim_is_judged_by_the_differences_of_seeds(softmax, ours, held):
    """By Student's t: of three seeds, 4.303 standard errors to either side."""
    rows = [row("softmax", *softmax), row("random", 3.3, 3.4, 3.5)]
    (claim,) = claims({"study": "language", "rows": rows})
    assert claim.claim == "Random logits stay behind dot products"
    assert claim.theirs == "LM1B perplexity: softmax 38.21, random 40.60"
    assert claim.ours == f"perplexity: {ours}, random 3.400"
    assert claim.held == held
    del rows[0]["runs"][1:]
    (claim,) = claims({"study": "language", "rows": rows})
    assert claim.held == "cannot be told at this scale (one seed)"
    rows[0]["runs"][0]["seed"] = 7
    assert claims({"study": "language", "rows": rows}) == []
