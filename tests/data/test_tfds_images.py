"""Images of TensorFlow Datasets: mocked, prepared on the spot, and not prepared."""

import io

import numpy as np
import PIL.Image
import pytest
import tensorflow_datasets as tfds

from attn_jax.data import load_tfds_images

# In colour, and higher than wide, so that no two axes can be confused.
SHAPE = (3, 2, 3)


def picture(number):
    rng = np.random.default_rng(number)
    return rng.integers(256, size=SHAPE, dtype=np.uint8)


class TinyPictures(tfds.core.GeneratorBasedBuilder):
    """A set that needs no download."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {"image": tfds.features.Image(shape=SHAPE), "label": np.int64}
            )
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate(range(4)), "test": self._generate(range(4, 6))}

    def _generate(self, numbers):
        for number in numbers:
            file = io.BytesIO()
            PIL.Image.fromarray(picture(number)).save(file, "png")
            yield number, {"image": io.BytesIO(file.getvalue()), "label": number}

    def _generate_examples(self):
        raise NotImplementedError


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise OSError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)


@pytest.fixture
def prepared(tmp_path, no_network):
    tfds.builder(
        "tiny_pictures", data_dir=tmp_path, file_format="array_record"
    ).download_and_prepare(
        download_config=tfds.download.DownloadConfig(try_download_gcs=False)
    )
    return tmp_path


@pytest.mark.parametrize(
    ("name", "shape"), [("mnist", (28, 28, 1)), ("cifar10", (32, 32, 3))]
)
def test_a_mocked_set_has_the_schema_of_the_real_one(no_network, name, shape):
    with tfds.testing.mock_data(num_examples=3):
        images = load_tfds_images(name)
    assert images.shape == shape
    assert images.train.shape[1] == images.test.shape[1] == np.prod(shape)
    assert 0 < len(images.train) <= 3
    assert (images.name, images.levels) == (name, 256)


def test_a_prepared_set(prepared):
    """Sets are shuffled, but an image stays as it was drawn."""
    images = load_tfds_images("tiny_pictures", data_dir=prepared)
    for rows, numbers in ((images.train, range(4)), (images.test, range(4, 6))):
        want = sorted(picture(number).reshape(-1).tolist() for number in numbers)
        assert sorted(rows.tolist()) == want


def test_what_is_not_prepared_raises_with_the_command(tmp_path, no_network):
    with pytest.raises(FileNotFoundError) as error:
        load_tfds_images("cifar10", data_dir=tmp_path)
    assert (
        'python -c "import tensorflow_datasets as tfds; '
        f"tfds.builder('cifar10', file_format='array_record', data_dir='{tmp_path}')"
        '.download_and_prepare()"'
    ) in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar100000", "for example cifar10"),
        ("zzz", "such as mnist or cifar10"),
        ("ag_news_subset", "a feature 'image' of one shape"),
        ("oxford_iiit_pet", "a feature 'image' of one shape"),
    ],
)
def test_a_set_without_such_images_is_refused(no_network, tmp_path, name, message):
    with pytest.raises(ValueError, match=message):
        load_tfds_images(name, data_dir=tmp_path)
