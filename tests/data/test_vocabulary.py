"""Byte-level BPE: nothing is lost, and one text gives one vocabulary."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_jax.data import Vocabulary, load_vocabulary, train_vocabulary

TEXTS = [
    "Click the button to open the dialog.",
    "Klicken Sie auf die Schaltfläche, um den Dialog zu öffnen.",
    "The dialog of the button opens the other dialog.",
    "Der Dialog der Schaltfläche öffnet den anderen Dialog.",
] * 3
SIZE = 300


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return train_vocabulary(TEXTS, SIZE)


def test_ids_are_special_ones_bytes_and_merges(vocabulary):
    assert (vocabulary.pad_id, vocabulary.bos_id, vocabulary.eos_id) == (0, 1, 2)
    assert vocabulary.size == SIZE == 3 + 256 + len(vocabulary.merges)
    ids = vocabulary.encode("the dialog")
    assert len(ids) < len("the dialog")
    assert max(ids) >= 259
    assert min(vocabulary.encode("".join(map(chr, range(500))))) >= 3


def test_merges_are_those_of_the_commonest_pairs():
    """By hand: "ab" occurs 5 times, then "abc" 3 times; "cd" only twice."""
    vocabulary = train_vocabulary(["abc abc abc", "ab", "ab", "cd cd"], 261)
    assert vocabulary.merges == (("a", "b"), ("ab", "c"))
    first = 3 + 256
    assert vocabulary.encode("abcab") == [first + 1, first]
    assert vocabulary.pieces([first, first + 1]) == ["ab", "abc"]


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(codec="utf-8")))
def test_every_string_comes_back(vocabulary, text):
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text
    assert vocabulary.encode_batch([text, "button"]) == [
        ids,
        vocabulary.encode("button"),
    ]
    assert all(3 <= i < vocabulary.size for i in ids)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "  two  blanks ",
        "\ttab\r\n\n",
        "<s>",
        "</s><pad>",
        "\x00\u200b😀é",
        "Ġ",
    ],
)
def test_odd_strings_come_back(vocabulary, text):
    assert vocabulary.decode(vocabulary.encode(text)) == text


def test_decoding_ends_at_the_first_end_and_skips_padding(vocabulary):
    word = vocabulary.encode("dialog")
    ids = np.array([1, 0, *word, 2, *word, 0], np.int32)
    assert vocabulary.decode(ids) == "dialog"
    assert vocabulary.pieces([1, 2, 0]) == ["<s>", "</s>", ""]


def test_a_cut_character_becomes_a_mark(vocabulary):
    ids = train_vocabulary(["x y"], 259).encode("é")
    assert len(ids) == 2
    assert vocabulary.decode(ids[:1]) == "\ufffd"


def test_ids_outside_are_refused(vocabulary):
    for ids in ([5, SIZE], [5, -1]):
        with pytest.raises(ValueError, match=r"ids\[1\].*0 to 299"):
            vocabulary.decode(ids)
    with pytest.raises(TypeError, match="ids"):
        vocabulary.decode([1.5])


def test_training_is_deterministic_in_other_processes_and_orders(vocabulary):
    """Ties between pairs of pieces must not be broken by threads or hash seeds."""
    program = (
        "import sys, json; from attn_jax.data import train_vocabulary; "
        "print(train_vocabulary(json.load(sys.stdin), 300).fingerprint)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(texts),
            env={"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed, texts in (("1", TEXTS), ("3", TEXTS[::-1]))
    }
    assert found == {vocabulary.fingerprint}


def test_saving_and_loading(vocabulary, tmp_path):
    path = tmp_path / "vocabulary.json"
    vocabulary.save(path)
    loaded = load_vocabulary(path)
    assert loaded == vocabulary
    assert loaded.fingerprint == vocabulary.fingerprint
    assert loaded.encode(TEXTS[1]) == vocabulary.encode(TEXTS[1])
    assert [p.name for p in tmp_path.iterdir()] == ["vocabulary.json"]


def test_fingerprints_tell_vocabularies_apart(vocabulary):
    other = train_vocabulary(TEXTS, SIZE - 1)
    vocabulary.check_fingerprint(vocabulary.fingerprint)
    with pytest.raises(ValueError, match="checkpoint 7") as error:
        vocabulary.check_fingerprint(other.fingerprint, owner="checkpoint 7")
    assert vocabulary.fingerprint in str(error.value)
    assert other.fingerprint in str(error.value)
    assert vocabulary != other


def test_the_fingerprint_stays_from_version_to_version():
    """A change would refuse every run that was ever made."""
    assert Vocabulary([("a", "b"), ("ab", "c")]).fingerprint[:12] == "57d47b6c1f27"


def test_changed_files_are_refused(vocabulary, tmp_path):
    path = tmp_path / "vocabulary.json"
    vocabulary.save(path)
    content = json.loads(path.read_text())
    swapped = [content["merges"][1], content["merges"][0], *content["merges"][2:]]
    for change, message in (
        ({"merges": content["merges"][:-1]}, "changed"),
        ({"merges": swapped}, "changed|unknown"),
        ({"merges": [["a", "zzz"]]}, "unknown 'zzz'"),
        ({"merges": [["a"]]}, "no vocabulary"),
        ({"format": "another"}, "format 'another'"),
    ):
        path.write_text(json.dumps({**content, **change}))
        with pytest.raises(ValueError, match=message):
            load_vocabulary(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="no vocabulary"):
        load_vocabulary(path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_vocabulary(tmp_path / "nowhere")


def test_sizes_that_cannot_be_had_are_refused(plain_errors):
    with pytest.raises(ValueError, match="size: got 258"):
        train_vocabulary(TEXTS, 258)
    with pytest.raises(ValueError, match="size: got 5000; expected at most 260"):
        train_vocabulary(["ab"], 5000)
    with pytest.raises(ValueError, match="texts: got no text"):
        train_vocabulary([""], 300)
    with pytest.raises(TypeError, match="texts: got int among them; expected sentenc"):
        train_vocabulary(["a sentence", 3], 300)
    with pytest.raises(TypeError, match="one string"):
        train_vocabulary("a sentence", 300)


def test_a_missing_package_says_which_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"attn_jax\[text\]"):
        train_vocabulary(TEXTS, SIZE)
    with pytest.raises(ImportError, match=r"attn_jax\[text\]"):
        Vocabulary([]).encode("a")
