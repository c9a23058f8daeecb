"""Sets of TensorFlow Datasets, without TensorFlow and without a download."""

import difflib
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from attn_jax.data._checks import fail


class PreparedSet:
    """A set whose splits are read from this machine, or not at all.

    Args:
        name: the set and its config, as TensorFlow Datasets names them.
        data_dir: where sets are prepared (None: TensorFlow Datasets' own place).
        registered_by: the modules of the package that know such sets, where the package
            itself doesn't.
        such_as: a set to name where this one doesn't exist.

    Raises:
        ImportError: the extra `data` isn't installed.
        ValueError: there is no such set or config.
    """

    def __init__(
        self,
        name: str,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        registered_by: Sequence[str] = (),
        such_as: str,
    ) -> None:
        self.name = name
        self._imports = ["tensorflow_datasets"]
        self._imports += [f"tensorflow_datasets.{module}" for module in registered_by]
        self._where = None if data_dir is None else os.path.expanduser(data_dir)
        self._tfds = _import(self._imports)
        self._builder = self._find(such_as)

    @property
    def features(self) -> dict[str, Any]:
        """What a row has."""
        features = self._builder.info.features or {}
        return {name: features[name] for name in features}

    def rows(self, split: str) -> Any:
        """The rows of a split, "train" or "train[:1%]" say.

        Raises:
            FileNotFoundError: the set isn't prepared.
            ValueError: there is no such split, or the set is prepared in a format that
                needs TensorFlow.
        """
        try:
            return self._builder.as_data_source(split=split)
        except (NotImplementedError, AssertionError):
            self._not_prepared()
        except ValueError as error:
            splits = ", ".join(self._builder.info.splits)
            if not splits:
                self._not_prepared()
            expected = f"one of {splits}, or a slice ({error})"
            fail("split", repr(split), expected, "pass one")

    def classes(self, argument: str, feature: str) -> tuple[str, ...]:
        """The names of the classes of a feature that holds one class a row.

        Raises:
            ValueError: it doesn't; the message names the argument.
        """
        self._check(argument, feature, self._tfds.features.ClassLabel, "classes")
        return tuple(self.features[feature].names)

    def texts(
        self, split: str, features: Mapping[str, str], *others: str
    ) -> Iterator[tuple[Any, ...]]:
        """The texts of some features of each row, without white space around them.

        Args:
            split: as for `rows`, and so are the errors.
            features: by the argument that asked for each, which errors name.
            others: features to come after them as they are.

        Raises:
            ValueError: also for a feature that isn't text.
        """
        for argument, feature in features.items():
            self._check(argument, feature, self._tfds.features.Text, "text")
        where = f"{self.name}, {split}, row"
        return (
            (
                *(
                    _decode(row[feature], f"{where} {number}, {feature}").strip()
                    for feature in features.values()
                ),
                *(row[other] for other in others),
            )
            for number, row in enumerate(self.rows(split))
        )

    def _check(self, argument: str, feature: str, kind: type, what: str) -> None:
        """Raise unless there is such a feature of this kind."""
        held = self.features.items()
        known = [name for name, one in held if isinstance(one, kind)]
        if feature not in known:
            expected = f"one of {', '.join(known)}" if known else f"a feature of {what}"
            remedy = "pass one of them" if known else f"{self.name} has none"
            fail(argument, repr(feature), expected, remedy)

    def _find(self, such_as: str) -> Any:
        tfds, name = self._tfds, self.name
        try:
            return tfds.builder(name, data_dir=self._where)
        except ImportError as error:
            return self._from_files(error)
        except tfds.core.registered.DatasetNotFoundError:
            known = tfds.list_builders(with_community_datasets=False)
            near = difflib.get_close_matches(name.split("/")[0], known, n=3)
            hint = f"for example {', '.join(near)}" if near else f"such as {such_as}"
            expected = "the name of a set in TensorFlow Datasets"
            fail("name", repr(name), expected, f"check the spelling, {hint}")
        except ValueError as error:
            configs = tfds.builder_cls(name.split("/")[0].split(":")[0]).builder_configs
            expected = f"a config of {name.split('/')[0]}: {', '.join(configs)}"
            remedy = f"pass one of them behind a slash ({str(error).splitlines()[0]})"
            fail("name", repr(name), expected, remedy)

    def _from_files(self, error: ImportError) -> Any:
        """A set whose own code needs TensorFlow, such as super_glue, by its files."""
        from tensorflow_datasets.core import read_only_builder

        try:
            return read_only_builder.builder_from_files(self.name, data_dir=self._where)
        except self._tfds.core.registered.DatasetNotFoundError:
            raise ImportError(
                f"name: got {self.name!r}, which isn't prepared and whose code needs a "
                f"package that isn't installed ({str(error).splitlines()[-1]}); "
                "expected a prepared set, which can be read without TensorFlow; "
                "install it to prepare the set, with file_format='array_record'"
            ) from error

    def _not_prepared(self) -> NoReturn:
        builder, options = self._builder, f"{self.name!r}, file_format='array_record'"
        if self._where is not None:
            options += f", data_dir={self._where!r}"
        imports = ", ".join(["tensorflow_datasets as tfds", *self._imports[1:]])
        command = (
            f'python -c "import {imports}; '
            f'tfds.builder({options}).download_and_prepare()"'
        )
        if builder.is_prepared():
            fail(
                f"name ({self.name} at {builder.data_path})",
                f"a set in the format {builder.info.file_format.value}",
                "array_record or parquet, which can be read without TensorFlow",
                f"prepare it again, with another data_dir: {command}",
            )
        fail(
            "name",
            f"{self.name!r}, which isn't prepared at {builder.data_path}",
            "a set on this machine; nothing is downloaded unasked",
            f"download and prepare it: {command}",
            FileNotFoundError,
        )


def _decode(text: Any, where: str) -> str:
    """A sentence, which real sets hold as bytes and mocked ones as str."""
    if isinstance(text, str):
        return text
    try:
        return bytes(text).decode("utf-8")
    except UnicodeDecodeError as error:
        got = f"undecodable bytes at byte offset {error.start}"
        fail(where, got, "text in UTF-8", "prepare the set again")


def _import(modules: list[str]) -> Any:
    """The package, with what registers its sets."""
    try:
        package, *_ = [importlib.import_module(module) for module in modules]
    except ImportError as error:
        raise ImportError(
            "Sets of TensorFlow Datasets need the package tensorflow-datasets: "
            "pip install 'attn_jax[data]'"
        ) from error
    return package
