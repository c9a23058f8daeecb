"""Texts of TensorFlow Datasets, alone or with a class, as LM1B and GLUE have them."""

import os
from collections.abc import Sequence

from attn_jax.data._checks import fail
from attn_jax.data._tfds import PreparedSet
from attn_jax.data.documents import tfds_documents
from attn_jax.data.labelled import LabelledText


def load_tfds_texts(
    name: str,
    split: str,
    feature: str = "text",
    data_dir: str | os.PathLike[str] | None = None,
) -> list[str]:
    """The texts of a prepared set, such as lm1b; empty ones are left out.

    Args:
        name, split, data_dir: as in `load_tfds_pairs`, and so are the errors.
        feature: the one that holds the text.
    """
    documents = tfds_documents(name, split, feature, data_dir)
    return [text for text in documents.texts if text]


def load_tfds_labelled(
    name: str,
    split: str,
    features: Sequence[str],
    label: str = "label",
    data_dir: str | os.PathLike[str] | None = None,
) -> LabelledText:
    """The texts of a prepared set with the class of each, such as glue/rte.

    Args:
        name, split, data_dir: as in `load_tfds_pairs`, and so are the errors.
        features: those that hold the parts of an example, ("premise", "hypothesis")
            say, in the order in which they are read.
        label: the feature that holds the class.

    Returns:
        The examples, in the order of the set; its classes, in the order of the set's.

    Raises:
        ValueError: also where a row has no class, as in the test split of GLUE, whose
            classes are secret.
    """
    if isinstance(features, str) or not features:
        remedy = "pass a tuple of names"
        fail("features", repr(features), "the names of some features", remedy)
    found = PreparedSet(name, data_dir, registered_by=("text",), such_as="glue/rte")
    classes = found.classes("label", label)
    wanted = {f"features[{i}]": feature for i, feature in enumerate(features)}
    texts, labels = [], []
    for number, (*parts, one) in enumerate(found.texts(split, wanted, label)):
        if not 0 <= one < len(classes):
            fail(
                f"split ({name}, {split}, row {number})",
                f"{label} {one}",
                f"one of the classes {', '.join(classes)}",
                "pass a split that has classes; those of some test splits are secret",
            )
        texts.append(tuple(parts))
        labels.append(int(one))
    return LabelledText(texts, labels, classes, f"{name}[{split}]")
