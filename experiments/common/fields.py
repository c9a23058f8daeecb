"""Fields of configs: which of them are shared, and presets by their names."""

from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Protocol, TypeVar


class Preset(Protocol):
    """A config that knows where its values come from."""

    @property
    def preset(self) -> str: ...


Config = TypeVar("Config", bound=Preset)


def fields_but(config: Any, names: Collection[str]) -> dict[str, Any]:
    """The fields of a config, in their order, without some."""
    return {name: value for name, value in asdict(config).items() if name not in names}


def by_name(*configs: Config) -> dict[str, Config]:
    """Presets by the name that stands in their field `preset`."""
    return {config.preset: config for config in configs}
