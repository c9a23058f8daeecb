"""Parallel text: what is read, and what bad files say."""

import pytest

from attn_jax.data import ParallelText, load_parallel, load_tsv


def write(path, content: bytes):
    path.write_bytes(content)
    return path


@pytest.fixture
def sides(tmp_path):
    """Writes two files and returns their paths."""

    def two(source: bytes, target: bytes):
        return write(tmp_path / "text.en", source), write(tmp_path / "text.de", target)

    return two


def test_line_i_belongs_to_line_i(sides):
    paths = sides(b"one\ntwo words\n", "eins\nzwei Wörter\n".encode())
    pairs = load_parallel(*paths)
    assert pairs.source == ["one", "two words"]
    assert pairs.target == ["eins", "zwei Wörter"]
    assert pairs.names == tuple(map(str, paths))
    assert len(pairs) == 2


def test_line_ends_of_windows_a_byte_order_mark_and_no_last_line_end(sides):
    pairs = load_parallel(*sides(b"\xef\xbb\xbfone\r\ntwo\r\n", b"eins\nzwei"))
    assert pairs.source == ["one", "two"]
    assert pairs.target == ["eins", "zwei"]


def test_only_line_feeds_end_a_line(sides):
    """str.splitlines would cut at each of these, and shift what follows."""
    odd = "a\u2028b\x0bc\x0cd\x85e\x1cf"
    pairs = load_parallel(*sides(f"{odd}\nlast\n".encode(), b"x\ny\n"))
    assert pairs.source == [odd, "last"]
    assert pairs.target == ["x", "y"]


def test_pairs_of_empty_lines_are_left_out(sides):
    pairs = load_parallel(*sides(b"one\n\n  \ntwo\n", b"eins\n \n\nzwei\n"))
    assert (pairs.source, pairs.target) == (["one", "two"], ["eins", "zwei"])


@pytest.mark.parametrize(
    ("source", "target", "parts"),
    [
        (b"a\nb\nc\n", b"x\ny\n", ["3 and 2 lines", "text.en", "text.de"]),
        (b"a\n\nc\n", b"x\ny\nz\nw\n", ["3 and 4 lines", "line 2 is empty"]),
        (b"a\nb\n\n", b"x\n\nz\n", ["text.de, line 2", "empty line"]),
        (b"a\n \nc\n", b"x\ny\nz\n", ["text.en, line 2", "empty line"]),
        (b"", b"x\n", ["source_path", "text.en", "empty file"]),
        (b"a\n", b"\n \r\n", ["target_path", "text.de", "empty file"]),
        (b"a\nb\n", b"x\nz\xffz\n", ["text.de, line 2, byte offset 3", "0xff"]),
        (b"\xef\xbb\xbfa\nb\xe4\n", b"x\ny\n", ["text.en, line 2, byte offset 6"]),
        (b"a\nb\xc3", b"x\ny\n", ["text.en, line 2, byte offset 3", "0xc3"]),
    ],
)
def test_files_that_are_not_parallel_say_where(sides, source, target, parts):
    with pytest.raises(ValueError, match=r"got .*expected") as error:
        load_parallel(*sides(source, target))
    for part in parts:
        assert part in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    there = write(tmp_path / "a.en", b"a\n")
    with pytest.raises(FileNotFoundError, match=r"target_path.*nowhere\.de"):
        load_parallel(there, tmp_path / "nowhere.de")
    with pytest.raises(FileNotFoundError, match=r"path.*nowhere\.tsv"):
        load_tsv(tmp_path / "nowhere.tsv")
    with pytest.raises(ValueError, match=r"source_path.*directory"):
        load_parallel(tmp_path, there)


def test_tsv(tmp_path):
    path = write(tmp_path / "text.tsv", b'one\teins\r\n\r\n"two\tzwei"\n')
    pairs = load_tsv(path)
    assert pairs.source == ["one", '"two']
    assert pairs.target == ["eins", 'zwei"']
    assert pairs.names == (str(path), str(path))


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"a\tx\nb\n", ["line 2", "1 columns"]),
        (b"a\tx\n\nb\ty\tz\n", ["line 3", "3 columns"]),
        (b"a\tx\nb\t \n", ["target", "line 2", "empty line"]),
        (b"a\tx\n\ty\n", ["source", "line 2", "empty line"]),
        (b"a\tx\n\xe4\ty\n", ["line 2, byte offset 4"]),
        (b"\n\n", ["empty file"]),
    ],
)
def test_a_tsv_with_other_columns_says_where(tmp_path, content, parts):
    path = write(tmp_path / "text.tsv", content)
    with pytest.raises(ValueError, match=r"text\.tsv") as error:
        load_tsv(path)
    for part in parts:
        assert part in str(error.value)


def test_pairs_made_in_memory_are_checked():
    pairs = ParallelText(["a", "b"], ["x", "y"], ("memory", "memory"))
    assert len(pairs) == 2
    with pytest.raises(ValueError, match="2 and 1 lines"):
        ParallelText(["a", "b"], ["x"], ("memory", "memory"))
    with pytest.raises(ValueError, match="line 2"):
        ParallelText(["a", ""], ["x", "y"], ("memory", "memory"))
    with pytest.raises(ValueError, match="no sentence"):
        ParallelText([], [], ("memory", "memory"))
