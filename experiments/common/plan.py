"""What is known before anything is computed, and where its results go."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from experiments.common import provenance
from experiments.common.workdir import Workdir, write_json


class Config(Protocol):
    """The fields that a command line has set."""

    def shared(self) -> dict[str, Any]:
        """What all commands in one work directory have in common."""
        ...

    def directory(self) -> Path:
        """The work directory."""
        ...


AnyConfig = TypeVar("AnyConfig", bound=Config)


class ConfigPlan(NamedTuple, Generic[AnyConfig]):
    """All that is known of an experiment without data before anything is computed."""

    config: AnyConfig
    origin: dict[str, Any]
    workdir: Workdir

    def shared_config(self) -> dict[str, Any]:
        """What all commands in the work directory have in common."""
        return self.config.shared()


def plan_of(
    config: AnyConfig,
    may_differ: Sequence[str],
    program: str,
    arguments: Sequence[str],
) -> ConfigPlan[AnyConfig]:
    """The plan of a command; raises where its work directory holds another config."""
    workdir = Workdir(config.directory(), may_differ)
    workdir.check(config.shared())
    return ConfigPlan(config, provenance.origin(program, arguments), workdir)


class Drawing(Protocol):
    """The module that draws an experiment's figures."""

    def draw(self, results: Mapping[str, Any], folder: Path) -> list[Path]:
        """Draw the figures into a folder, and return their paths."""
        ...


class Showing(Protocol):
    """The module that makes an experiment's table."""

    def show(self, results: Mapping[str, Any]) -> None:
        """Print the table."""
        ...


def publish(
    results: dict[str, Any], workdir: Workdir, plot: Drawing, table: Showing
) -> None:
    """Write results, draw their figures, print their table, and say where they are."""
    write_json(workdir.results, results)
    plot.draw(results, workdir.figures)
    table.show(results)
    print(f"Numbers and figures: {workdir.results}, {workdir.figures}/")
