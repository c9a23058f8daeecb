"""Texts and classes of TensorFlow Datasets, with the schemas of the real sets."""

import pytest
import tensorflow_datasets as tfds

from attn_jax.data import load_tfds_labelled, load_tfds_texts


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise OSError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)


def test_texts_and_classes_of_a_mocked_set():
    with tfds.testing.mock_data(num_examples=4):
        texts = load_tfds_texts("lm1b", "train")
        data = load_tfds_labelled("glue/mnli", "train", ("hypothesis", "premise"))
        other = load_tfds_labelled("glue/mnli", "train", ("premise", "hypothesis"))
    assert 0 < len(texts) <= 4
    assert all(isinstance(text, str) for text in texts)
    assert data.classes == ("entailment", "neutral", "contradiction")
    assert data.name == "glue/mnli[train]"
    assert [text[::-1] for text in data.texts] == other.texts
    assert all(0 <= label < 3 for label in data.labels)


def test_secret_classes_are_refused():
    rows = [{"sentence": b"a", "label": 1}, {"sentence": b"b", "label": -1}]
    with (
        tfds.testing.mock_data(as_data_source_fn=lambda *_, **__: rows),
        pytest.raises(ValueError, match=r"row 1\): got label -1.*secret"),
    ):
        load_tfds_labelled("glue/cola", "test", ("sentence",))


@pytest.mark.parametrize(
    ("name", "features", "label", "message"),
    [
        (
            "glue/cola",
            ("sentences",),
            "label",
            "features.0.: got 'sentences'.*sentence",
        ),
        (
            "glue/cola",
            ("idx",),
            "label",
            "features.0.: got 'idx'; expected one of sent",
        ),
        ("glue/cola", ("sentence",), "idx", "label: got 'idx'; expected one of label"),
        ("glue/cola", "sentence", "label", "names of some features"),
        ("glue/cola", (), "label", "names of some features"),
        ("glue/colla", ("sentence",), "label", "a config of glue: cola"),
        ("lm1b", ("text",), "label", "label: got 'label'.*lm1b has none"),
    ],
    ids=["name", "kind", "label", "string", "empty", "config", "none"],
)
def test_mistakes_say_what_there_is(name, features, label, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_tfds_labelled(name, "train", features, label, data_dir=tmp_path)


def test_what_is_not_prepared_says_how(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"tensorflow_datasets\.text.*rte"):
        load_tfds_labelled("glue/rte", "train", ("sentence1",), data_dir=tmp_path)


def test_a_set_whose_code_needs_tensorflow_is_read_by_its_files(tmp_path, monkeypatch):
    """As super_glue: only to prepare it takes TensorFlow."""

    class TinyClasses(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            classes = tfds.features.ClassLabel(names=["no", "yes"])
            features = {"text": tfds.features.Text(), "label": classes}
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            yield 0, {"text": "Öl", "label": "yes"}

    TinyClasses(data_dir=tmp_path, file_format="array_record").download_and_prepare(
        download_config=tfds.download.DownloadConfig(try_download_gcs=False)
    )

    def needs_tensorflow(*_, **__):
        raise ModuleNotFoundError("No module named 'tensorflow'")

    monkeypatch.setattr(tfds, "builder", needs_tensorflow)
    data = load_tfds_labelled("tiny_classes", "train", ("text",), data_dir=tmp_path)
    assert (data.texts, data.labels) == ([("Öl",)], [1])
    assert data.classes == ("no", "yes")
    with pytest.raises(ImportError, match="install it to prepare"):
        load_tfds_labelled("super_glue/cb", "train", ("premise",), data_dir=tmp_path)
