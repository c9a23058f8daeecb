"""The list of experiments, made of what they say of themselves; and their --help."""

import dataclasses
import fnmatch
import importlib

import pytest

from experiments import results as results_page
from experiments.__main__ import main
from experiments.common import help_page, listing
from experiments.common.listing import Preset

FOUND = listing.experiments()
NAMES = [each.name for each in FOUND]


def commands(name):
    """The module that parses an experiment's command line, and its presets."""
    module = importlib.import_module(f"experiments.{name}.command_line")
    return module, module.PRESETS


def test_the_table_of_a_docstring_is_read_as_people_read_it():
    text = """Title.

    Text about each preset and its minutes.

    study      rows            on          minutes on 1 core
    main       sa and xsa,     text        13
               with a mean
    big        sa              images      one GPU

    No row of it.
    """
    assert listing.table(text) == [
        Preset("main", "sa and xsa, with a mean, text", "1 core", "13"),
        Preset("big", "sa, images", "one GPU", ""),
    ]
    assert listing.table(text.replace(" on 1 core", " a model"))[0].minutes == (
        "13 a model"
    )
    assert listing.table("Title.") == []


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_is_in_the_table_of_its_experiment(name):
    """And in no other; what it shows, its hardware and its default are said."""
    said = listing.find(name)
    module, presets = commands(name)
    patterns = [one for row in said.presets for one in row.name.split(", ")]
    for preset in presets:
        assert any(fnmatch.fnmatch(preset, one) for one in patterns), preset
    for one in patterns:
        assert fnmatch.filter(presets, one), one
    assert said.shows
    assert all(row.what and row.hardware for row in said.presets)
    assert said.default == module.DEFAULT
    assert f"python -m experiments.{name}" == module.PROGRAM


@pytest.mark.parametrize("name", NAMES)
def test_help_is_complete_and_grouped(name, capsys):
    module, presets = commands(name)
    for config in presets.values():
        documented = help_page.documented(type(config))
        options = help_page.shown(type(config))
        assert not [each for each in options if not documented.get(each)]
    with pytest.raises(SystemExit) as left:
        module.parse(["--help"])
    assert left.value.code == 0
    page = capsys.readouterr().out
    assert page.startswith(f"usage: {module.PROGRAM} [preset]")
    lines = page.splitlines()
    for each in help_page.shown(type(presets[module.DEFAULT])):
        written = f"  --{each.replace('_', '-')}"
        assert (
            sum(line.startswith((f"{written} ", f"{written},")) for line in lines) == 1
        )
    headings = [line.removesuffix(":") for line in lines if line.endswith(":")]
    assert [one for one in headings if one in help_page.TOPICS][-1] == "files"
    assert all(len(line) <= 100 for line in lines)
    assert all(row.name in page for row in listing.find(name).presets)


def test_an_option_is_in_one_topic_alone():
    names = [name for topic in help_page.TOPICS.values() for name in topic]
    assert len(names) == len(set(names))


def test_values_are_shown_as_they_are_written():
    _, presets = commands("linear_scaling")
    lines = help_page._option(presets["cpu"], "causal")
    assert lines[0].startswith("  --causal, --no-causal ")
    assert lines[-1].endswith("(default: True)")
    assert help_page.metavar(tuple[str, float]) == "STR FLOAT"
    assert help_page.metavar(tuple[int, ...] | None) == "INT [INT ...]"
    hidden = {each.name for each in dataclasses.fields(presets["cpu"])} - set(
        help_page.shown(type(presets["cpu"]))
    )
    assert hidden == {"preset"}


def test_the_list_names_all_and_one(capsys):
    assert main([]) == 0
    page = capsys.readouterr().out
    for each in FOUND:
        assert f"{each.name}: {each.shows.split()[0]}" in page
    assert "demo (default)" in page
    assert "experiments.shards.prepare" in page
    assert "experiments.report " in page
    assert "experiments.results " in page
    assert "plot" not in page
    assert main(["compare"]) == 0
    page = capsys.readouterr().out
    assert "compare: " in page
    assert "eigen: " not in page
    assert "6 to 7 minutes" in page
    assert main(["shards.prepare"]) == 0
    page = capsys.readouterr().out
    assert "experiments.shards.prepare  Token shards" in page
    assert "compare: " not in page


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("comprae", "compare"),
        ("compar", "compare"),
        ("shard.prepare", "shards.prepare"),
    ],
)
def test_a_misspelt_name_gets_the_nearest(name, near, capsys):
    assert main([name]) == 2
    said = capsys.readouterr().err
    assert f"experiment: got {name!r}; expected one of compare" in said
    assert f"did you mean {near!r}?" in said


def test_the_page_of_results_says_how_it_is_called(capsys, tmp_path):
    with pytest.raises(SystemExit) as left:
        results_page.main(["--help"])
    assert left.value.code == 0
    assert "python -m experiments.results runs/compare/demo" in capsys.readouterr().out
    assert results_page.main([str(tmp_path)]) == 2
    assert f"RUN: got {tmp_path}; expected a finished run" in capsys.readouterr().err
