"""Byte-level text: what is read, how it is split, and what bad paths say."""

import hashlib
import os
import re
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_jax.data import ByteCorpus, decode_text, encode_text, load_corpus


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def tree(count: int) -> dict[str, bytes]:
    """Files whose content is their own name, so that a byte tells where it is from."""
    return {
        f"{i % 3}/file{i}.txt": f"<{i % 3}/file{i}.txt>".encode() for i in range(count)
    }


def names_in(side: np.ndarray) -> list[str]:
    return re.findall("<([^>]*)>", side.tobytes().decode())


def validates(name: str, fraction: float) -> bool:
    """The documented rule, written anew."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return int(digest, 16) / 2**64 < fraction


def assert_says(error: pytest.ExceptionInfo, *parts: str) -> None:
    for part in parts:
        assert part in str(error.value)


def test_every_byte_is_on_one_side(tmp_path):
    files = tree(120)
    corpus = load_corpus(write(tmp_path, files), validation_fraction=0.25)
    expected = sorted(files)
    wanted = [[n for n in expected if validates(n, 0.25) == v] for v in (False, True)]
    assert len(wanted[1]) > 10
    assert names_in(corpus.train) == wanted[0] == list(corpus.train_files)
    assert names_in(corpus.validation) == wanted[1] == list(corpus.validation_files)
    assert corpus.split == "file"
    assert corpus.num_files == 120
    assert corpus.num_bytes == sum(map(len, files.values()))


def test_split_follows_the_fraction():
    share = np.mean([validates(f"{i}.txt", 0.05) for i in range(20_000)])
    assert abs(share - 0.05) < 0.005


@settings(max_examples=25, deadline=None)
@given(
    st.sets(st.integers(0, 500), min_size=30, max_size=60),
    st.sets(st.integers(501, 999), max_size=30),
)
def test_files_keep_their_side_when_others_come(tmp_path_factory, few, more):
    root = tmp_path_factory.mktemp("text")
    write(root, {f"{i}.txt": f"<{i}>".encode() for i in few})
    before = load_corpus(root, validation_fraction=0.5)
    write(root, {f"{i}.txt": f"<{i}>".encode() for i in more})
    after = load_corpus(root, validation_fraction=0.5)
    assert set(before.train_files) <= set(after.train_files)
    assert set(before.validation_files) <= set(after.validation_files)
    assert not set(after.train_files) & set(after.validation_files)


def test_split_does_not_depend_on_where_the_directory_is(tmp_path, monkeypatch):
    here = write(tmp_path / "a", tree(60))
    there = write(tmp_path / "elsewhere" / "deep", tree(60))
    one, other = (load_corpus(p, validation_fraction=0.3) for p in (here, there))
    monkeypatch.chdir(tmp_path)
    relative = load_corpus("a", validation_fraction=0.3)
    globbed = load_corpus(f"{tmp_path}/a/**", validation_fraction=0.3)
    assert one.validation_files
    for corpus in (other, relative, globbed):
        assert corpus.validation_files == one.validation_files
        assert corpus.fingerprint == one.fingerprint


def test_fingerprint_tells_texts_and_splits_apart(tmp_path):
    corpora = [
        load_corpus(write(tmp_path, tree(40)), validation_fraction=f)
        for f in (0.3, 0.5)
    ]
    write(tmp_path, {"0/file0.txt": b"<0/file0.txT>"})
    corpora.append(load_corpus(tmp_path, validation_fraction=0.3))
    assert len({corpus.fingerprint for corpus in corpora}) == 3
    whole = corpora[0].train.tobytes() + corpora[0].validation.tobytes()
    length = f"{len(corpora[0].train)}\n".encode()
    assert corpora[0].fingerprint == hashlib.sha256(length + whole).hexdigest()


def test_a_repeated_content_is_taken_once(tmp_path):
    files = {f"{i}.txt": f"<content {i % 20}>".encode() for i in range(200)}
    corpus = load_corpus(write(tmp_path, files), validation_fraction=0.3)
    train, validation = names_in(corpus.train), names_in(corpus.validation)
    assert sorted(train + validation) == sorted(f"content {i}" for i in range(20))
    assert train
    assert validation
    assert corpus.num_files == 20


def test_one_file_is_split_by_position(tmp_path):
    text = bytes(range(256)) * 4
    (tmp_path / "one.bin").write_bytes(text)
    corpus = load_corpus(tmp_path / "one.bin", validation_fraction=0.1)
    assert corpus.split == "position"
    assert len(corpus.validation) == 102
    assert corpus.train.tobytes() + corpus.validation.tobytes() == text
    assert corpus.train_files == corpus.validation_files == ("one.bin",)


def test_an_empty_side_falls_back_to_position(tmp_path):
    names = [n for n in (f"{i}.txt" for i in range(99)) if not validates(n, 0.25)][:4]
    write(tmp_path, {name: b"x" * 9 + bytes([65 + i]) for i, name in enumerate(names)})
    corpus = load_corpus(tmp_path, validation_fraction=0.25)
    assert corpus.split == "position"
    assert len(corpus.validation) == 10
    names.sort()
    assert (corpus.train_files, corpus.validation_files) == (
        tuple(names[:3]),
        (names[3],),
    )
    cut_inside = load_corpus(tmp_path, validation_fraction=0.2)
    assert cut_inside.split == "position"
    assert set(cut_inside.train_files) & set(cut_inside.validation_files) == {names[3]}


def test_directories_leave_out_what_is_no_text(tmp_path):
    files = tree(30) | {
        "binary.png": b"<binary.png>\0",
        ".hidden/a.txt": b"<hidden>",
        ".dot": b"<dot>",
        "empty.txt": b"",
        "latin.txt": "<é>".encode("latin-1"),
    }
    write(tmp_path, files)
    (tmp_path / "0" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "broken.txt").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, f"{tmp_path}/**"):
        corpus = load_corpus(path, validation_fraction=0.3)
        read = set(corpus.train_files) | set(corpus.validation_files)
        assert read == set(tree(30)) | {"latin.txt"}


def test_globs_and_several_paths(tmp_path):
    write(tmp_path, tree(60) | {"notes [draft].txt": b"<draft>", "0/x.md": b"<md>"})
    one = load_corpus(f"{tmp_path}/0/*.txt", validation_fraction=0.4)
    assert set(names_in(one.train) + names_in(one.validation)) == {
        name for name in tree(60) if name.startswith("0/")
    }
    several = [tmp_path / "1", f"{tmp_path}/0/*.md", tmp_path / "notes [draft].txt"]
    corpus = load_corpus(several, validation_fraction=0.4)
    read = names_in(corpus.train) + names_in(corpus.validation)
    wanted = [name for name in tree(60) if name.startswith("1/")] + ["md", "draft"]
    assert sorted(read) == sorted(wanted)
    assert "and 2 more" in corpus.summary


def test_home_and_hidden_files_that_are_asked_for(tmp_path, monkeypatch):
    write(tmp_path, {".notes/a.txt": b"<a>", ".notes/b.txt": b"<b>"})
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("~/.notes", "~/.notes/*", "~/.*/*.txt"):
        corpus = load_corpus(path)
        assert names_in(np.concatenate([corpus.train, corpus.validation])) == ["a", "b"]


def test_a_glob_that_python_refuses(tmp_path):
    with pytest.raises(
        (ValueError, FileNotFoundError), match=r"path: got .*; expected"
    ):
        load_corpus(f"{tmp_path}/a**b")


def test_default_corpus_is_the_standard_library():
    corpus = load_corpus()
    root = Path(sysconfig.get_paths()["stdlib"])
    files = corpus.train_files + corpus.validation_files
    assert len(files) == len(set(files)) == corpus.num_files > 300
    assert corpus.split == "file"
    assert corpus.num_bytes > 5_000_000
    assert 0.01 < len(corpus.validation) / corpus.num_bytes < 0.15
    for name in files:
        parts = Path(name).parts
        assert name.endswith(".py")
        assert not any(p.startswith("test") or p == "idle_test" for p in parts)
        assert not {"site-packages", "dist-packages", "encodings"} & set(parts)
    for side, names in (
        (corpus.train, corpus.train_files),
        (corpus.validation, corpus.validation_files),
    ):
        assert side.tobytes() == b"".join((root / name).read_bytes() for name in names)


def test_default_corpus_split_is_sound():
    """The two sides are alike to a bigram table, and validation is not in training."""
    corpus = load_corpus()

    def bigrams(side):
        pairs = side[:-1].astype(np.int64) * 256 + side[1:]
        return np.bincount(pairs, minlength=65536).reshape(256, 256)

    counts = bigrams(corpus.train) + 0.01
    bits = -np.log2(counts / counts.sum(1, keepdims=True))
    train, validation = (
        (bigrams(side) * bits).sum() / (len(side) - 1)
        for side in (corpus.train, corpus.validation)
    )
    assert validation < 4.0
    assert abs(train - validation) < 0.4
    long_lines = [
        {line for line in side.tobytes().splitlines() if len(line.strip()) >= 40}
        for side in (corpus.train, corpus.validation)
    ]
    assert len(long_lines[0] & long_lines[1]) / len(long_lines[1]) < 0.1


def test_corpus_is_read_only_and_short_to_print(tmp_path):
    corpus = load_corpus(write(tmp_path, tree(40)), validation_fraction=0.3)
    assert len(repr(corpus)) < 400
    for side in (corpus.train, corpus.validation):
        assert side.dtype == np.uint8
        with pytest.raises(ValueError, match="read-only"):
            side[0] = 1
    for part in ("40 files", f"{corpus.num_bytes:,} bytes", corpus.fingerprint[:12]):
        assert part in corpus.summary
    assert ByteCorpus.vocab_size == 256


def test_text_and_tokens():
    text = "naïve café ✓\n"
    assert encode_text(text).tolist() == list(text.encode())
    assert decode_text(encode_text(text).astype(np.int32)) == text
    assert decode_text(encode_text("é")[:1]) == "�"
    assert decode_text(encode_text("")) == ""
    with pytest.raises(ValueError, match="tokens: got values from 0 to 256; expected"):
        decode_text(np.array([0, 256]))


@pytest.mark.parametrize("path", ["nowhere", "nowhere/*.txt", "a/*.md"])
def test_missing_paths(tmp_path, monkeypatch, path):
    monkeypatch.chdir(write(tmp_path, {"a/x.txt": b"text"}))
    with pytest.raises(FileNotFoundError) as error:
        load_corpus(path)
    assert_says(error, f"path: got '{path}'; expected", "pass a text file")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", "not empty"),
        (" ", "not empty"),
        ("empty.txt", "at least one file with text"),
        ("folder", "at least one file with text"),
        ("folder/*", "at least one file with text"),
        ("pipe", "not a device or a pipe"),
        ("x" * 5000, "cannot be looked up"),
    ],
)
def test_paths_without_text(tmp_path, monkeypatch, path, expected):
    monkeypatch.chdir(write(tmp_path, {"empty.txt": b"", "folder/a.bin": b"a\0b"}))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="path") as error:
        load_corpus(path)
    assert_says(error, f"path: got '{path}'; expected", expected, "pass a text file")
    with pytest.raises(ValueError, match="path"):
        load_corpus([write(tmp_path / "good", tree(30)), path])


def test_one_byte_is_too_short_to_split(tmp_path):
    path = write(tmp_path, {"one.txt": b"x"}) / "one.txt"
    with pytest.raises(ValueError, match="path") as error:
        load_corpus(path)
    assert_says(error, "one.txt", "got 1 bytes", "expected at least 4", "longer text")


def test_unreadable_files_and_directories(tmp_path, monkeypatch):
    write(tmp_path, tree(30))

    def refuse(*_):
        raise PermissionError(13, "Permission denied", str(tmp_path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        with pytest.raises(ValueError, match="path") as error:
            load_corpus(tmp_path)
    assert_says(error, "file0.txt", "Permission denied", "change its permissions")
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        with pytest.raises(ValueError, match="path") as error:
            load_corpus(tmp_path)
    assert_says(error, str(tmp_path), "Permission denied", "change its permissions")


def test_no_standard_library_source(tmp_path, monkeypatch):
    monkeypatch.setattr(
        sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path / "no")}
    )
    with pytest.raises(ValueError, match="path: got None") as error:
        load_corpus()
    assert_says(error, "no source here", "pass a text file")


@pytest.mark.usefixtures("plain_errors")
def test_arguments_of_the_wrong_kind(tmp_path):
    with pytest.raises(ValueError, match=r"path: got .*; expected at least one path"):
        load_corpus([])
    with pytest.raises(TypeError, match=r"path: got .*; expected a path as str"):
        load_corpus([3])
    for fraction in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match=r"validation_fraction: got .* 0.05 is"):
            load_corpus(tmp_path, validation_fraction=fraction)


def test_a_text_shorter_than_one_batch(tmp_path):
    path = write(tmp_path, {"short.txt": b"x" * 1000}) / "short.txt"
    corpus = load_corpus(path)
    corpus.require_batch(batch_size=9, length=105)
    with pytest.raises(ValueError, match="path") as error:
        corpus.require_batch(batch_size=9, length=106)
    assert_says(error, "short.txt", "got 950 items", "9 x length 106", "955", "smaller")
