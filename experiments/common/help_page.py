"""The answer to --help: presets, and all options by topic."""

import dataclasses
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tyro

from experiments.common import listing
from experiments.common.mesh import HELP as MESH
from experiments.common.places import HELP as HOSTS

WIDTH = 88
INDENT = 26
# Fields by topic, whatever experiment they are of. Any other says what is run.
TOPICS: dict[str, tuple[str, ...]] = {
    "data": (
        *("data", "tfds", "tfds_dir", "splits", "features", "synthetic", "tagged"),
        *("source", "target", "pretrained", "vocab_size", "length", "max_length"),
        *("num_symbols", "side", "channels", "levels", "sequences", "cut_sources"),
    ),
    "model": (
        *("size", "num_layers", "d_model", "num_heads", "head_dim", "d_ff"),
        *("positions", "norm_placement", "use_bias", "activation", "pooling"),
        *("embedding_scale", "dropout_rate", "bucket_size", "head", "mixtures"),
        *("remat", "causal", "dtype"),
    ),
    "training": (
        *("steps", "copy_steps", "text_steps", "batch_size", "max_tokens"),
        *("optimizer", "learning_rate", "map_learning_rate", "warmup_steps"),
        *("warmup_fraction", "decay_after", "final_fraction", "weight_decay"),
        *("label_smoothing", "statistics", "ridge"),
    ),
    "measuring and writing": (
        *("validation_bytes", "validation_batches", "held_out", "eval_sentences"),
        *("eval_images", "test_images", "test_sentences", "similarity", "repeats"),
        *("rounds", "max_seconds", "max_bytes", "recompute", "generate"),
        *("completions", "generated_rows", "temperature", "average", "beam_size"),
        *("alpha", "extra_length", "map_sentence"),
    ),
    "files": ("workdir", "checkpoint_every", "log_every", "eval_every"),
}
FIRST = "what is run"
ENTRY = re.compile(r"^ {2}(\w+(?:, \w+)*): (.*(?:\n {4}.*)*)", re.M)
KINDS = {int: "INT", float: "FLOAT", str: "STR", Path: "PATH"}


def help_page(
    config: Any, presets: Mapping[str, Any], default: str, program: str, purpose: str
) -> str:
    """Usage, presets, and the options of a config with its values as defaults.

    Args:
      config: one of the presets.
      presets: by name.
      default: the preset that is run if none is named.
      program: how the experiment is called, "python -m experiments.compare" say.
      purpose: what it does, in a sentence.
    """
    experiment = listing.find(program.rpartition(".")[2])
    rows = experiment.presets if experiment else []
    others = [name for name in presets if name not in {row.name for row in rows}]
    named = _wrapped(f"  by name: {', '.join(others)}", 4) if others else []
    parts = [
        f"usage: {program} [preset] [--field value ...]",
        textwrap.fill(purpose, WIDTH),
        "\n".join(["presets:", *listing.lines(rows, default), *named]),
        f"Defaults below are those of {config.preset!r}.",
    ]
    for topic, names in by_topic(config).items():
        options = [line for name in names for line in _option(config, name)]
        parts.append("\n".join([f"{topic}:", *options]))
    beside = [line for text in (MESH, HOSTS) for line in _wrapped(f"  {text}", 4)]
    parts.append("\n".join(["where it runs:", *beside]))
    return "\n\n".join([*parts, "-h, --help: show this and exit"]) + "\n"


def by_topic(config: Any) -> dict[str, list[str]]:
    """The fields of a config that the command line knows, topic by topic."""
    topic_of = {name: topic for topic, names in TOPICS.items() for name in names}
    found: dict[str, list[str]] = {topic: [] for topic in (FIRST, *TOPICS)}
    for name in shown(type(config)):
        found[topic_of.get(name, FIRST)].append(name)
    return {topic: names for topic, names in found.items() if names}


def shown(kind: type) -> list[str]:
    """Fields of a config class that are options."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return [
        each.name
        for each in dataclasses.fields(kind)
        if tyro.conf.Suppress not in _metadata(hints[each.name])
    ]


def documented(kind: type) -> dict[str, str]:
    """What the "Attributes:" of a class and of those above it say of each field."""
    found: dict[str, str] = {}
    for each in kind.__mro__:
        doc = inspect.cleandoc(each.__doc__ or "")
        for names, text in ENTRY.findall(doc.partition("Attributes:\n")[2]):
            for name in names.split(", "):
                found.setdefault(name, " ".join(text.split()))
    return found


def _option(config: Any, name: str) -> list[str]:
    """The lines of an option: its name and values, what it is, its default."""
    hint = typing.get_type_hints(type(config), include_extras=True)[name]
    written = "--" + name.replace("_", "-")
    values = metavar(hint)
    if values:
        heading = f"  {written} {values}"
    else:
        heading = f"  {written}, --no-{written.removeprefix('--')}"
    value = getattr(config, name)
    text = documented(type(config)).get(name, "")
    if value not in (None, ()):
        text += f" (default: {_shown_value(value)})"
    body = textwrap.wrap(text, WIDTH - INDENT, break_on_hyphens=False)
    if len(heading) + 2 <= INDENT and body:
        heading = f"{heading:{INDENT}}{body.pop(0)}"
    return [heading, *(" " * INDENT + line for line in body)]


def metavar(hint: Any) -> str:
    """What stands for the values of an option; nothing for one that is a switch."""
    for each in _metadata(hint):
        given = getattr(each, "metavar", None)
        if given:
            return given
    kind = _plain(hint)
    if kind is bool:
        return ""
    if typing.get_origin(kind) is tuple:
        parts = typing.get_args(kind)
        if parts[-1] is ...:
            one = metavar(parts[0])
            return f"{one} [{one} ...]"
        return " ".join(map(metavar, parts))
    return KINDS[kind]


def _plain(hint: Any) -> Any:
    """A type without what is annotated to it, and without None."""
    if typing.get_origin(hint) is typing.Annotated:
        return _plain(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (one,) = (each for each in typing.get_args(hint) if each is not type(None))
        return _plain(one)
    return hint


def _metadata(hint: Any) -> Sequence[Any]:
    return getattr(hint, "__metadata__", ())


def _shown_value(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value)


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False
    )
