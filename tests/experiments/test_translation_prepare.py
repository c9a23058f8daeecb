"""Pairs from help pages: markup, alignment, filters, and a split without leaks."""

import json
from pathlib import Path

import pytest

from attn_jax.data import load_parallel
from experiments.translation.help_pages import clean, paragraphs
from experiments.translation.prepare import PrepareConfig, fold, main, side_of


def texts(html: str) -> dict[str, list[str]]:
    return paragraphs(f"<html><body>{html}</body></html>")


def test_markup_goes_and_entities_are_characters():
    assert texts(
        '<p id="par_id1" class="paragraph">Choose <span class="emph">Find &amp; '
        "Replace </span>in the\n  <a href='x'>menu</a>&nbsp;&lt;here&gt;.<br>Now"
        '<img src="i.png"> go.</p>'
    ) == {"par_id1": ["Choose Find & Replace in the menu <here>. Now go."]}


def test_only_paragraphs_and_headings_with_ids():
    found = texts(
        '<p>no id</p><p id="bm_module">x</p><div id="par_id0">x</div>'
        '<h2 id="hd_id2">Head</h2><p id="par_idN10F">Body</p><p id="N0118">Old</p>'
        '<p id="par_id3" class="code">x = 1</p><p id="par_id4"> </p>'
        "<script>'<p id=\"par_id5\">no</p>'</script>"
    )
    assert found == {"hd_id2": ["Head"], "par_idN10F": ["Body"], "N0118": ["Old"]}


def test_of_a_switch_the_default_wording_is_kept():
    switch = '<span id="s" class="switchinline">{}</span>'
    mac = '<span hidden="true" id="MACx" class="MAC">Command</span>'
    default = '<span hidden="true" id="defaultx"><b>Ctrl</b></span>'
    calc = '<span hidden="true" id="CALCx" class="CALC">Cells</span>'
    for cases, text in (
        (mac + default, "Ctrl"),
        (default + "\n" + mac, "Ctrl"),
        (mac + calc, "Command"),
        ("", ""),
    ):
        found = texts(f'<p id="par_id1">Press {switch.format(cases)}+A <i>now</i></p>')
        assert found == {"par_id1": [f"Press {text}+A now"]}
    nested = switch.format(
        f'{mac}<span id="defaulty">{switch.format(mac + default)}</span>'
    )
    assert texts(f'<p id="par_id1">{nested}!</p>') == {"par_id1": ["Ctrl!"]}


def test_what_nobody_closed_ends_with_the_next_block():
    found = texts(
        '<ul><li><p id="par_id1">one <b>bold</li><li><p id="par_id2">two</ul>'
        '<p id="par_id3">three<p id="par_id1">again</p>stray<div>stray</div>'
        '<p id="par_id4">last'
    )
    assert found == {
        "par_id1": ["one bold", "again"],
        "par_id2": ["two"],
        "par_id3": ["three"],
        "par_id4": ["last"],
    }


def test_clean():
    assert clean(" a\u00a0b\u202f:\u200b\n\tc\xadd\ufeff ") == "a b : cd"
    assert clean("e\u0301") == "é"


def page(*lines: str) -> str:
    return "".join(
        f'<p id="par_id{i}">{line}</p>\n' for i, line in enumerate(lines) if line
    )


def files_of(side: str, count: int) -> list[str]:
    """Names of pages that the hash puts on a side."""
    config = PrepareConfig(packages=Path(), target="de", out=Path())
    names = (f"text/page{i}.html" for i in range(10_000))
    found = [name for name in names if side_of(name, config) == side]
    return found[:count]


def build(root: Path, pages: dict[str, tuple[str, str]]) -> Path:
    for name, sides in pages.items():
        for language, html in zip(("en-US", "de"), sides, strict=True):
            path = root / "usr/share/libreoffice/help" / language / "text" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(html, encoding="utf-8")
    return root


def run(packages: Path, out: Path, *more: str) -> int:
    arguments = ["--packages", str(packages), "--target", "de", "--out", str(out)]
    return main([*arguments, *more])


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    (train, other), (valid,), (test,) = (
        files_of("train", 2),
        files_of("valid", 1),
        files_of("test", 1),
    )
    pages = {
        train: (
            page("Open the first dialog box.", "Too short.", "Save it as file 1 now."),
            page(
                "Öffnen Sie den ersten Dialog.",
                "Zu kurz.",
                "Jetzt als Datei 1 sichern.",
            ),
        ),
        other: (
            page(
                "Open the first dialog box.", "This one here has no twin.", "a b c d e"
            ),
            page("Öffnen Sie den ersten Dialog.", "", "A b c d e"),
        ),
        valid: (
            page("Close all the windows again.", "A sentence of the test set."),
            page("Schließen Sie alle Fenster wieder.", "Ein Satz aus dem Test."),
        ),
        test: (
            page(
                "save it as file 2 now!",
                "A sentence of the test set.",
                "A sentence of the Test-set!",
                "one two three four",
            ),
            page(
                "Jetzt als Datei 2 sichern!",
                "Ein Satz des Testes hier.",
                "Noch ein Satz des Testes.",
                "eins zwei drei vier fünf sechs sieben acht neun",
            ),
        ),
    }
    return build(tmp_path / "packages", pages)


def read(out: Path, name: str) -> list[tuple[str, str]]:
    pairs = load_parallel(out / f"{name}.en", out / f"{name}.de")
    return list(zip(pairs.source, pairs.target, strict=True))


def test_prepared_pairs(packages, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(packages, out) == 0
    assert read(out, "train") == [
        ("Open the first dialog box.", "Öffnen Sie den ersten Dialog."),
        ("Save it as file 1 now.", "Jetzt als Datei 1 sichern."),
    ]
    assert read(out, "test") == [
        ("A sentence of the test set.", "Ein Satz des Testes hier.")
    ]
    assert read(out, "valid") == [
        ("Close all the windows again.", "Schließen Sie alle Fenster wieder.")
    ]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["pairs"] == {"train": 2, "valid": 1, "test": 1}
    assert summary["words"]["train"] == [11, 10]
    assert summary["dropped"] == {
        "lengths too different": 1,
        "not translated": 1,
        "paragraph in one language only": 1,
        "repeated in training": 1,
        "test: English occurs before or in training": 2,
        "too short or too long": 1,
        "valid: English occurs before or in training": 1,
    }
    assert "2 train, 1 valid, 1 test" in capsys.readouterr().out


def test_preparing_again_gives_the_same_bytes(packages, tmp_path):
    for out in ("one", "two"):
        assert run(packages, tmp_path / out) == 0
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(names) == 7
    for name in names:
        one, two = ((tmp_path / out / name).read_bytes() for out in ("one", "two"))
        assert one == two


def test_repeated_ids_pair_up_in_order_or_not_at_all(packages, tmp_path):
    train = files_of("train", 3)[2]
    twice = page("Quoted here in this place.") + page("Quoted there in that place.")
    zweimal = page("Hier an dieser Stelle zitiert.") + page(
        "Dort an jener zitiert worden."
    )
    build(packages, {train: (twice, zweimal)})
    assert run(packages, tmp_path / "two") == 0
    found = dict(read(tmp_path / "two", "train"))
    assert found["Quoted there in that place."] == "Dort an jener zitiert worden."
    build(packages, {train: (twice, page("Hier an dieser Stelle zitiert."))})
    assert run(packages, tmp_path / "one") == 0
    assert "Quoted there in that place." not in dict(read(tmp_path / "one", "train"))
    assert "Quoted here in this place." not in dict(read(tmp_path / "one", "train"))


def test_files_are_split_by_a_hash_of_their_name():
    config = PrepareConfig(packages=Path(), target="de", out=Path())
    sides = [side_of(f"swriter/{i}.html", config) for i in range(20_000)]
    assert abs(sides.count("test") / 20_000 - 0.06) < 0.006
    assert abs(sides.count("valid") / 20_000 - 0.04) < 0.006


def test_fold():
    assert fold("Save it, as File 1 — now!") == fold("save it as file 23 now")
    assert fold("Straße") == fold("STRASSE")
    assert fold("one two") != fold("one too")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--target", "en"], ["--target", "another language"]),
        (
            ["--target", "fr"],
            ["only de, en-US", "apt-get download libreoffice-help-fr"],
        ),
        (["--min-words", "0"], ["--min-words"]),
        (["--min-words", "9", "--max-words", "8"], ["9 and 8"]),
        (["--max-ratio", "0.5"], ["--max-ratio"]),
        (["--test-fraction", "0.97"], ["0.04 and 0.97"]),
        (["--min-words", "6", "--max-words", "6"], ["none for"]),
    ],
)
def test_mistakes_say_what_to_do(packages, tmp_path, capsys, arguments, parts):
    assert run(packages, tmp_path / "out", *arguments) == 2
    error = capsys.readouterr().err
    for part in parts:
        assert part in error
    assert not (tmp_path / "out").exists()


def test_no_packages_and_broken_pages(packages, tmp_path, capsys):
    assert run(tmp_path, tmp_path / "out") == 2
    assert "libreoffice-help-en-us" in capsys.readouterr().err
    name = files_of("train", 1)[0]
    folder = packages / "usr/share/libreoffice/help/de/text"
    (folder / name).write_bytes(b"<p>\n\xff")
    assert run(packages, tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert f"{folder / name}, line 2, byte offset 4" in error
