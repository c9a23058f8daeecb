"""The page that compares runs, opened in a browser."""

import subprocess
import sys

import pytest

from attn_jax.train import MetricLogger
from experiments import results as results_page
from experiments.common.workdir import write_json
from experiments.report.__main__ import main
from experiments.report.charts import POINTS, chart, looks_of
from experiments.report.curves import curves_of, ends
from experiments.report.page import page
from experiments.report.runs import read_runs
from experiments.report.samples import samples_of
from experiments.report.tables import differences, joined
from tests.browser import opened

DEMO = results_page.SOURCES / "compare" / "demo.json"
HOSTILE = "</script><b>softmax</b> %{x}"


def a_run(path, *, rate=0.1, steps=(10, 20, 30), row=HOSTILE, seeds=2, last=None):
    """A directory as the training loop leaves it: the loss is step / 1000 + seed."""
    write_json(path / "config.json", {"learning_rate": rate, "num_layers": 2})
    for seed in range(seeds):
        with MetricLogger(path, name=f"{row}{seed}", tensorboard=False) as logger:
            for step in steps:
                numbers = {"loss": step / 1000 + seed, "tokens": 8.0, "skipped": False}
                if step == steps[-1]:
                    numbers["validation_loss"] = 2.0 + seed if last is None else last
                logger.log(step, {"model": row, "seed": seed, **numbers})
    return path


@pytest.fixture
def runs(tmp_path):
    return [a_run(tmp_path / "a" / "demo"), a_run(tmp_path / "b" / "demo", rate=0.2)]


def test_the_page_in_a_browser(runs, tmp_path, capsys):
    """Differences, tables, curves that answer the pointer, samples; no request."""
    output = tmp_path / "away" / "page.html"
    named = [*map(str, runs), str(DEMO)]
    assert main([*named, "--output", str(output)]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    with opened(output.as_uri()) as (page, complaints, requests):
        assert page.title() == "a/demo and b/demo and compare/demo"
        differing = page.locator("h2#differences + div").inner_text().split("\n")
        assert "learning_rate\t0.1\t0.2\t0.005" in differing
        assert "num_layers\t2" not in "\n".join(differing)
        tables = page.locator(".scroll").all_inner_texts()
        assert any("compare/demo\tlinear\t2.788\t119,104" in each for each in tables)
        assert any(
            f"a/demo\t{HOSTILE}\t30\t2.500 ± 0.5000 (n=2)" in each for each in tables
        )
        assert page.locator("b").count() == 0
        names = page.locator("h3").all_inner_texts()
        assert names[1:4] == ["validation_loss", "validation_bits_per_byte", "loss"]
        losses = page.locator(".js-plotly-plot").nth(2)
        losses.scroll_into_view_if_needed()
        # Two runs: two thin lines and their mean each.
        assert losses.locator(".scatterlayer .trace").count() == 6
        mark = losses.locator(".scatterlayer .trace .point").nth(1)
        box = mark.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        label = losses.locator(".hovertext")
        label.wait_for()
        assert "step 20: 0.52 ± 0.5 (n=2)" in label.text_content()
        titles = losses.locator(".modebar-btn").evaluate_all(
            "buttons => buttons.map(button => button.dataset.title)"
        )
        assert titles[:2] == ["Download plot as a PNG", "Zoom"]
        assert not [title for title in titles if "Share" in title]
        losses.locator(".updatemenu-button", has_text="log").click()
        scale = losses.evaluate("chart => chart.layout.yaxis.type")
        assert scale == "log"
        assert "nonlocal winner_" in page.locator("pre").first.inner_text()
        assert page.locator(".pair pre").count() == 9
        assert (complaints, requests) == ([], [])


def test_a_run_is_read_while_it_is_trained(tmp_path):
    """Without results, with a line half written, beside one whose loss was lost."""
    run = a_run(tmp_path / "run", row="linear", last=float("nan"))
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"name": "linear0", "st')
    output = tmp_path / "page.html"
    assert main([str(run), "--output", str(output)]) == 0
    text = output.read_text()
    assert "at step 30" in text
    assert "linear, seed 1: validation_loss was not finite at step 30" in text
    assert "What differs" not in text
    (found,) = read_runs([str(run)])
    columns, rows = ends(curves_of(found))
    assert columns == ["run", "row", "steps", "validation_loss", "loss"]
    assert rows[0][1:] == ["linear", "30", "not finite", "0.5300 ± 0.5000 (n=2)"]


def test_a_run_of_a_grid_is_named_by_its_directory(tmp_path):
    """What it wrote lies beside it: its results keep numbers alone."""
    for row in ("sa", "xsa@length=64"):
        one = a_run(tmp_path / f"{row}-seed1", row="run", seeds=1)
        write_json(one / "finished" / "run.json", {"sample": f"text of {row}"})
    (found,) = read_runs([str(tmp_path)])
    assert {(line.row, line.seed) for line in found.lines} == {
        ("sa", 1),
        ("xsa@length=64", 1),
    }
    assert found.config == {"learning_rate": 0.1, "num_layers": 2}
    (sample,) = samples_of([found])
    assert [made[1:] for made in sample.made] == [
        ("sa", "text of sa"),
        ("xsa@length=64", "text of xsa@length=64"),
    ]


def test_a_long_curve_is_thinned_to_what_a_screen_shows(tmp_path):
    """What sticks out stays; seeds are joined first, at every step that they share."""
    last = 3 * POINTS + 1
    run = a_run(tmp_path / "run", steps=range(1, last + 1))
    with MetricLogger(run, name="more", tensorboard=False) as logger:
        for step in range(2, last, 2):
            loss = 99.0 if step == 1714 else 1.0
            logger.log(step, {"model": HOSTILE, "seed": 2, "loss": loss})
    (found,) = read_runs([str(run)])
    losses = [each for each in curves_of(found) if each.measure == "loss"]
    assert [len(each.steps) for each in losses] == [last, last, last // 2]
    drawn = chart(losses, looks_of(losses)).data
    assert all(POINTS // 3 < len(trace.x) <= POINTS + 2 for trace in drawn)
    assert [trace.x[-1] for trace in drawn] == [last, last, last - 1, last - 1]
    peak = [
        trace.x[max(range(len(trace.y)), key=trace.y.__getitem__)] for trace in drawn
    ]
    assert peak[2:] == [1714, 1714]


def test_what_was_run_again_from_an_earlier_step_takes_the_place_of_the_rest(tmp_path):
    run = a_run(tmp_path / "run", seeds=1)
    a_run(run, steps=(10, 15), seeds=1, last=7.0)
    (found,) = read_runs([str(run)])
    loss, validation = curves_of(found)
    assert loss.steps == [10, 15]
    assert (validation.steps, validation.values) == ([15], [7.0])


def test_seeds_that_are_not_equally_far_have_no_mean(tmp_path):
    run = a_run(tmp_path / "run", seeds=2)
    a_run(run, steps=(40,), seeds=1)
    _, rows = ends(curves_of(read_runs([str(run)])[0]))
    assert rows[0][2:] == ["30 to 40", "at different steps", "at different steps"]


def test_a_run_that_goes_on_says_so(tmp_path):
    run = a_run(tmp_path / "run")
    ended = {"experiment": "mine", "config": {"steps": 20, "learning_rate": 0.1}}
    write_json(run / "results.json", ended)
    text = page(read_runs([str(run)]))
    assert "finished at step 20, now at 30" in text
    assert "its tables, samples and figures" in text


NAMELESS = {"evaluation of eigen_training", "evaluation of eigen_training, number 2"}
# What the curves of committed results measure; elsewhere they have none.
MEASURED = {
    "compare/demo": {"validation_bits_per_byte"},
    "eigen_training/mlm": NAMELESS,
    "eigen_training/sentences-seeds3": NAMELESS,
    "exclusive/ablations-seeds3": {"validation_bits_per_byte"},
    "exclusive/ablations-seeds5": {"validation_bits_per_byte"},
    "exclusive/main-seeds5": {"validation_bits_per_byte"},
    "feature_maps/cpu": {
        "validation_loss",
        "validation_symbols_right",
        "validation_bits_per_byte",
    },
    "linear_copy/cpu-seeds3": {"validation_loss", "validation_symbols_right"},
    "linear_images/fashion-mnist": {"evaluation of linear_images"},
    "synthesizer/heads-seeds3": {"validation_bits_per_byte"},
    "synthesizer/lm-bytes-seeds3": {"validation_bits_per_byte"},
    "synthesizer/lm-subwords-seeds3": {"validation_bits_per_byte"},
    "synthesizer/snippets-seeds3": {"evaluation of synthesizer"},
    "synthesizer/translation-seeds3": {"evaluation of synthesizer"},
    "translation/libreoffice-en-de": {"loss", "validation_loss", "validation_bleu"},
    "translation/reversal": {"loss", "validation_loss", "validation_bleu"},
}


@pytest.mark.parametrize(
    "file", sorted(results_page.SOURCES.glob("*/*.json")), ids=lambda file: file.stem
)
def test_every_committed_result_has_a_page(file):
    """Its own tables, and curves that are named by what they measure."""
    (run,) = read_runs([str(file)])
    tables = joined([run])
    assert tables
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
    name = f"{file.parent.name}/{file.stem}"
    assert {each.measure for each in curves_of(run)} == MEASURED.get(name, set())


def test_runs_are_told_apart_by_as_little_of_their_paths_as_is_enough(runs, tmp_path):
    names = [run.name for run in read_runs([str(run) for run in runs])]
    assert names == ["a/demo", "b/demo"]
    third = a_run(tmp_path / "c" / "a" / "demo")
    names = [run.name for run in read_runs([str(runs[0]), str(third)])]
    assert names == [f"{tmp_path.name}/a/demo", "c/a/demo"]


def test_runs_made_alike_say_so(runs):
    first, _ = read_runs([str(run) for run in runs])
    alike = [first, first._replace(name="again")]
    assert differences(alike).rows == []
    assert "Nothing that is known." in page(alike)
    done = [run._replace(results={"experiment": "mine", "config": {}}) for run in alike]
    assert "were made alike" in page(done)


def test_what_is_no_run_is_named(runs, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "other.json").write_text('{"rows": []}')
    (tmp_path / "rows.json").write_text('{"experiment": "compare", "config": {}}')
    (tmp_path / "number.json").write_text('{"experiment": 3, "config": {}}')
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "metrics.jsonl").touch()
    compiling = tmp_path / "compiling"
    write_json(compiling / "config.json", {"steps": 3})
    lost = a_run(tmp_path / "lost", steps=(1,))
    (lost / "metrics.jsonl").write_text('{"name": "x", "step": null, "loss": 1}\n')
    broken = a_run(tmp_path / "broken")
    (broken / "results.json").write_text("{")
    cases = {
        str(tmp_path / "empty"): "which is there and holds no run",
        str(tmp_path / "gone"): "which is not there and holds no run",
        str(tmp_path / "list.json"): "holds list, not an object",
        str(tmp_path / "other.json"): "expected the results.json of an experiment",
        str(tmp_path / "number.json"): "expected the results.json of an experiment",
        str(tmp_path / "rows.json"): "whose files don't fit (KeyError: 'rows')",
        str(tmp_path): "which holds runs and is none",
        str(compiling): "which has logged nothing yet",
        str(lost): "no whole number",
        str(begun): "a directory with results, or with a line of metrics.jsonl",
        str(broken): "results.json is no JSON",
    }
    for path, words in cases.items():
        assert main([path]) == 2
        assert words in capsys.readouterr().err
    write_json(runs[0] / "results.json", {"experiment": "mine", "config": {}})
    for again in (f"{runs[0]}/.", str(runs[0] / "results.json")):
        assert main([str(runs[0]), again]) == 2
        assert f"RUN: got {again} twice" in capsys.readouterr().err
    for output in (str(runs[0]), "/dev/null", ""):
        assert main([str(runs[0]), "--output", output]) == 2
        assert "--output: got" in capsys.readouterr().err


def test_ctrl_c_leaves_nothing(runs, tmp_path, capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt)
    output = tmp_path / "away" / "page.html"
    assert main([str(runs[0]), "--output", str(output)]) == 130
    assert capsys.readouterr().err == "stopped\n"
    assert list(output.parent.iterdir()) == []


def test_a_command_line_without_a_run_is_refused():
    with pytest.raises(SystemExit) as left:
        main([])
    assert left.value.code == 2


def test_help_says_how_it_is_called():
    done = subprocess.run(
        [sys.executable, "-m", "experiments.report", "--help"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "python -m experiments.report runs/compare/demo" in done.stdout
