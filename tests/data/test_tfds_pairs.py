"""Pairs of TensorFlow Datasets: mocked, prepared on the spot, and not prepared."""

import sys
import time

import pytest
import tensorflow_datasets as tfds

from attn_jax.data import load_tfds_pairs

WMT = "wmt14_translate/de-en"
ROWS = [("one", "eins"), (" two ", "zwei\n"), ("", "leer"), ("Öl", "Öl")]


class TinyPairs(tfds.core.GeneratorBasedBuilder):
    """A set that needs no download."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return self.dataset_info_from_configs(
            features=tfds.features.Translation(languages=["en", "de"])
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(), "test": self._generate_examples()}

    def _generate_examples(self):
        for key, (en, de) in enumerate(ROWS):
            yield key, {"en": en, "de": de}


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise OSError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)


@pytest.fixture
def prepared(tmp_path, no_network):
    tfds.builder(
        "tiny_pairs", data_dir=tmp_path, file_format="array_record"
    ).download_and_prepare(
        download_config=tfds.download.DownloadConfig(try_download_gcs=False)
    )
    return tmp_path


def test_a_mocked_set_has_the_schema_of_the_real_one(no_network):
    with tfds.testing.mock_data(num_examples=5):
        pairs = load_tfds_pairs(WMT, "train", "en", "de")
        other = load_tfds_pairs(WMT, "train", "de", "en")
    assert 0 < len(pairs) <= 5
    assert all(isinstance(text, str) for text in pairs.source + pairs.target)
    assert (other.source, other.target) == (pairs.target, pairs.source)
    assert pairs.names == (f"{WMT}[train]:en", f"{WMT}[train]:de")


def test_a_prepared_set(prepared):
    """Its text is bytes on disk; sets are shuffled, but pairs stay pairs."""
    pairs = load_tfds_pairs("tiny_pairs", "train", "en", "de", data_dir=prepared)
    found = set(zip(pairs.source, pairs.target, strict=True))
    assert found == {("one", "eins"), ("two", "zwei"), ("Öl", "Öl")}
    half = load_tfds_pairs("tiny_pairs", "test[:50%]", "en", "de", data_dir=prepared)
    assert 1 <= len(half) <= 2


def test_what_is_not_prepared_raises_at_once_with_the_command(tmp_path, no_network):
    began = time.perf_counter()
    with pytest.raises(FileNotFoundError) as error:
        load_tfds_pairs(WMT, "train", "en", "de", data_dir=tmp_path)
    assert time.perf_counter() - began < 5
    assert (
        'python -c "import tensorflow_datasets as tfds, '
        "tensorflow_datasets.summarization, tensorflow_datasets.translate; "
        f"tfds.builder('{WMT}', file_format='array_record', data_dir='{tmp_path}')"
        '.download_and_prepare()"'
    ) in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_the_command_prepares_it(tmp_path, no_network):
    """What stands between "tfds." and the end of the command is run as it is."""
    with pytest.raises(FileNotFoundError) as error:
        load_tfds_pairs("tiny_pairs", "train", "en", "de", data_dir=tmp_path)
    command = str(error.value).split("translate; ")[1].removesuffix('"')
    config = "download_config=tfds.download.DownloadConfig(try_download_gcs=False)"
    exec(command.replace("prepare()", f"prepare({config})"), {"tfds": tfds})
    assert (
        len(load_tfds_pairs("tiny_pairs", "train", "en", "de", data_dir=tmp_path)) == 3
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("wmt14_translat/de-en", "train", "en", "de"), "for example wmt14_translate"),
        (("wmt14_translate/de-xx", "train", "en", "de"), "de-en"),
        (
            (WMT, "train", "en", "fr"),
            "target_language: got 'fr'; expected one of de, en",
        ),
        ((WMT, "train", "EN", "de"), "source_language: got 'EN'"),
        ((WMT, "train", "de", "de"), "another language"),
        (("tiny_pairs", "valid", "en", "de"), "split: got 'valid'.*train, test"),
        (("tiny_pairs", "train[:x]", "en", "de"), "split: got"),
    ],
)
def test_mistakes_say_what_there_is(prepared, arguments, message):
    with pytest.raises(ValueError, match=message):
        load_tfds_pairs(*arguments, data_dir=prepared)


def test_a_format_that_needs_tensorflow_is_named(prepared):
    path = prepared / "tiny_pairs/1.0.0/dataset_info.json"
    path.write_text(path.read_text().replace("array_record", "tfrecord"))
    with pytest.raises(ValueError, match=r"format tfrecord.*array_record"):
        load_tfds_pairs("tiny_pairs", "train", "en", "de", data_dir=prepared)


def test_bytes_that_are_no_text_name_their_row():
    rows = [{"en": b"one", "de": b"eins"}, {"en": b"tw\xff", "de": b"zwei"}]
    with (
        tfds.testing.mock_data(as_data_source_fn=lambda *_, **__: rows),
        pytest.raises(ValueError, match=r"row 1, en: .*offset 2"),
    ):
        load_tfds_pairs(WMT, "train", "en", "de")


def test_a_missing_package_says_which_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"attn_jax\[data\]"):
        load_tfds_pairs(WMT, "train", "en", "de")


def test_tensorflow_is_not_needed():
    assert "tensorflow" not in sys.modules
