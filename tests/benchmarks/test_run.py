"""A small run from the command line, and what is left out."""

import importlib.util
import re
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import main, memory, peers, results
from benchmarks.command_line import parse
from benchmarks.mechanisms import CASES
from benchmarks.sweep import Sweep

SMALL = ("quick", "--longest", "5", "--rounds", "3", "--parts", "sweep")


def test_the_peers_environment_has_all_that_a_benchmark_imports():
    """tyro isn't there, which wants another typeguard than tokamax does."""
    program = "import sys; sys.modules['tyro'] = None; import benchmarks.__main__"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture
def folder(tmp_path):
    page = tmp_path / "performance.md"
    places = {"--out": tmp_path, "--figures": tmp_path, "--page": page}
    return tmp_path, [str(word) for item in places.items() for word in item]


@pytest.fixture
def alone(monkeypatch):
    """As if no optional peer were installed."""
    find = importlib.util.find_spec

    def without(name, *rest):
        return None if name in peers.PEERS else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)


def test_a_run_writes_results_figures_and_a_page(folder, alone, capsys):
    path, places = folder
    assert main.main([*SMALL, "--only", "linear", *places]) == 0
    found = results.read(path / "results.json")
    rows = [row for row in found["sweep"] if row["name"] == "linear"]
    assert [row["direction"] for row in rows] == ["forward", "both"]
    for row in rows:
        assert len(row["samples"]) == 3
        assert min(row["samples"]) > 0
        assert row["compile_seconds"] > 0
        assert row["temporary_bytes"] > 0
        assert row["flops"] == (1 if row["direction"] == "forward" else 3) * (
            4 * 2 * 2 * 32 * 8**2
        )
    assert found["versions"]["jax"]
    assert (path / "performance-time.png").stat().st_size < 300_000
    page = (path / "performance.md").read_text()
    assert "| linear |" in page
    printed = capsys.readouterr().out
    assert "torch is not installed" in printed
    assert "tokamax is not installed" in printed


def test_a_run_without_a_sweep_writes_a_page_and_no_figures(folder, alone):
    path, places = folder
    assert main.main(["quick", "--rounds", "1", "--parts", "decoding", *places]) == 0
    assert results.read(path / "results.json")["decoding"]
    assert "## Decoding" in (path / "performance.md").read_text()
    assert not list(path.glob("*.png"))


def test_every_missing_peer_is_named(alone):
    lines = []
    assert peers.found(lines.append) == {"tokamax": False, "torch": False}
    assert [line.split()[0] for line in lines] == ["tokamax", "torch"]


def test_what_is_too_large_or_too_long_is_left_out_with_its_reason():
    said = []
    config = parse([*SMALL, "--max-bytes", "1000"])
    linear = [case for case in CASES if case.name == "linear"]
    sweep = Sweep(config, frozenset(), said.append)
    rows = sweep.run(linear)
    assert all("over max_bytes" in r["left_out"] for r in rows if r["name"] == "linear")
    assert any("linear, both, n = 32" in line for line in said)

    past = {
        "name": "linear",
        "direction": "both",
        "n": 16,
        "batch": 4,
        "samples": [2.0],
    }
    row = {"name": "linear", "direction": "both", "n": 32, "batch": 2}
    config = parse([*SMALL, "--max-seconds", "1"])
    sweep = Sweep(config, frozenset(), said.append, rows=[past])
    assert "predicted 2.0 s" in sweep._too_long(linear[0], row)
    assert sweep._too_long(linear[0], {**row, "direction": "forward"}) is None
    needed = frozenset({("linear", "both", 32)})
    sweep = Sweep(config, needed, said.append, rows=[past])
    assert sweep._too_long(linear[0], row) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["quick", "--parts", "sweeep"], "--parts: got 'sweeep'; .* mean 'sweep'?"),
        (["quik"], "preset: got 'quik'; expected one of full, quick; did you mean"),
        (["--lngest", "5"], "option: got '--lngest'; .* did you mean '--longest'?"),
    ],
    ids=["part", "preset", "option"],
)
def test_an_unknown_word_gets_the_nearest(words, said, capsys):
    with pytest.raises(SystemExit):
        parse(words)
    assert re.search(said, capsys.readouterr().err)


def test_the_growth_of_resident_memory_is_seen():
    size = 64 * 2**20
    grown = memory.growth(lambda: np.ones(size, np.uint8).sum())
    if not memory.REFS.exists():
        assert grown is None
    else:
        assert 0.9 * size < grown < 1.5 * size
