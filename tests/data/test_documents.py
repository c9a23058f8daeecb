"""Documents: where one begins and the next one does, whatever holds them."""

import sys

import pyarrow as pa
import pytest
import tensorflow_datasets as tfds
from pyarrow import parquet

from attn_jax.data import parquet_documents, text_documents, tfds_documents


def test_each_file_is_a_document_or_several_with_a_separator(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "b.txt").write_bytes("\ufeffzwei — Öl".encode())
    (tmp_path / "deep" / "a.txt").write_text("one<|end|>two<|end|>")
    (tmp_path / "x.bin").write_bytes(b"\0")
    whole = text_documents(tmp_path)
    assert list(whole.texts) == ["zwei — Öl", "one<|end|>two<|end|>"]
    cut = text_documents(tmp_path, separator="<|end|>")
    assert list(cut.texts) == ["zwei — Öl", "one", "two", ""]
    assert (whole.name, cut.name) == (f"{tmp_path}", f"{tmp_path}, cut at '<|end|>'")
    several = text_documents([tmp_path / "deep", tmp_path / "b.txt"])
    assert list(several.texts) == ["one<|end|>two<|end|>", "zwei — Öl"]


def test_files_are_read_one_at_a_time(tmp_path):
    (tmp_path / "a.txt").write_text("fine")
    (tmp_path / "b.txt").write_bytes(b"line\nnot \xff")
    texts = iter(text_documents(tmp_path).texts)
    assert next(texts) == "fine"
    with pytest.raises(ValueError, match=r"b.txt, line 2, byte offset 9.*not UTF-8"):
        next(texts)


@pytest.fixture
def folder(tmp_path):
    for name, texts in (("b", ["third", None, ""]), ("a", ["first", "zweiter Öl"])):
        kind = pa.large_string() if name == "b" else pa.string()
        table = pa.table({"text": pa.array(texts, kind), "id": list(range(len(texts)))})
        (tmp_path / name).mkdir()
        parquet.write_table(table, tmp_path / name / f"{name}.parquet")
    (tmp_path / "readme.md").touch()
    return tmp_path


def test_each_row_of_parquet_files_is_a_document(folder):
    for path in (folder, f"{folder}/**/*.parquet"):
        documents = parquet_documents(path)
        assert list(documents.texts) == ["first", "zweiter Öl", "third"]
    assert documents.name == f"{folder}/**/*.parquet:text"
    one = parquet_documents(folder / "b" / "b.parquet")
    assert list(one.texts) == ["third"]


def test_rows_of_a_prepared_set_are_documents():
    with tfds.testing.mock_data(num_examples=3):
        documents = tfds_documents("lm1b")
        texts = list(documents.texts)
    assert documents.name == "lm1b[train]:text"
    assert len(texts) == 3
    assert all(isinstance(text, str) for text in texts)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f: text_documents(f, separator=""), ValueError, "separator: got an em"),
        (lambda f: text_documents(f / "no"), FileNotFoundError, "path that exists"),
        (lambda f: parquet_documents(f / "no"), FileNotFoundError, "directory with"),
        (lambda f: parquet_documents(f, "words"), ValueError, "'words'; expected one"),
        (lambda f: parquet_documents(f, "id"), ValueError, "'id', which holds int64"),
        (
            lambda f: parquet_documents(f / "readme.md"),
            ValueError,
            r"readme.md\): got what can't be read",
        ),
    ],
    ids=["separator", "path", "parquet", "column", "kind", "format"],
)
def test_mistakes_raise_before_anything_is_read(folder, call, error, message):
    with pytest.raises(error, match=message):
        call(folder)


def test_a_missing_package_says_which_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"attn_jax\[data\]"):
        parquet_documents(tmp_path)
