"""Sets of TensorFlow Datasets, without TensorFlow and without a download."""

import difflib
import importlib
import os
from typing import Any, NoReturn

from attn_jax.data._checks import fail


class PreparedSet:
    """A set whose splits are read from this machine, or not at all.

    Args:
        name: the set and its config, as TensorFlow Datasets names them.
        data_dir: where sets are prepared (None: TensorFlow Datasets' own place).
        registered_by: the module of the package that knows the set, where the package
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
        registered_by: str | None = None,
        such_as: str,
    ) -> None:
        self.name = name
        self._imports = ["tensorflow_datasets"]
        if registered_by is not None:
            self._imports.append(f"tensorflow_datasets.{registered_by}")
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
            return self._tfds.data_source(
                self.name, split=split, data_dir=self._where, download=False
            )
        except (NotImplementedError, AssertionError):
            self._not_prepared()
        except ValueError as error:
            splits = ", ".join(self._builder.info.splits)
            if not splits:
                self._not_prepared()
            expected = f"one of {splits}, or a slice ({error})"
            fail("split", repr(split), expected, "pass one")

    def _find(self, such_as: str) -> Any:
        tfds, name = self._tfds, self.name
        try:
            return tfds.builder(name, data_dir=self._where)
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
