"""A row's name: with or without exclusion, and what else is unlike the other rows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from attn_jax.models import DecoderConfig, presets
from attn_jax.models.presets import XSA
from experiments.common.errors import fail

# Non-embedding parameters and layers, width, heads and their width: those of the
# paper's shape that two cores can train, and the library's presets.
SIZES: dict[str, dict[str, int]] = {
    "0.1m": {"num_layers": 2, "d_model": 64, "num_heads": 4, "head_dim": 24},
    "0.2m": {"num_layers": 4, "d_model": 64, "num_heads": 4, "head_dim": 24},
    "0.4m": {"num_layers": 3, "d_model": 96, "num_heads": 6, "head_dim": 24},
    **{name.removeprefix("xsa-"): sizes for name, sizes in XSA.items()},
}
LAYERS = re.compile(r"(first|last)\d+|\d+(,\d+)*")
# What may stand behind an @, in the order of a name, and what it may be.
OPTIONS = {
    "size": ("one of " + ", ".join(SIZES), SIZES.__contains__),
    "rate": ("a learning rate such as 2e-3", lambda word: _positive(word)),
    "length": ("tokens of a row", lambda word: word.isdecimal() and int(word) > 0),
    "sinks": ("tokens in front of each row", str.isdecimal),
    "gate": ("tanh or sigmoid", {"tanh", "sigmoid"}.__contains__),
    "layers": ("first2, last2 or 0,3", lambda word: bool(LAYERS.fullmatch(word))),
}
OF_EXCLUSION = {"gate", "layers"}


class Row(NamedTuple):
    """A row of the table.

    name: as on the command line, "xsa@length=64" say.
    exclusive: whether it starts with xsa.
    options: what stands behind an @, by its name, as it was written.
    """

    name: str
    exclusive: bool
    options: Mapping[str, str]

    @property
    def partner(self) -> str:
        """The row it is compared with: the same without exclusion."""
        return named(False, self.options)

    @property
    def whole(self) -> str:
        """The same with exclusion of everything in every layer."""
        kept = {key: self.options[key] for key in self.options.keys() - OF_EXCLUSION}
        return named(True, kept)

    @property
    def condition(self) -> str:
        """What is unlike the plain rows, in words."""
        said = (f"{key} {word}" for key, word in self.options.items())
        return ", ".join(said) or "as they are"

    def layers(self, count: int) -> Sequence[int] | None:
        """The layers that are exclusive, of so many; None for all."""
        word = self.options.get("layers")
        if word is None:
            return None
        if word[0].isdecimal():
            return tuple(int(i) for i in word.split(","))
        n = int(word.removeprefix("first").removeprefix("last"))
        if n > count:
            fail("--rows", repr(self.name), f"at most {count} layers", "name fewer")
        return range(n) if word.startswith("first") else range(count - n, count)


def named(exclusive: bool, options: Mapping[str, str]) -> str:
    """The name of a row; without exclusion nothing of it is said."""
    said = [
        f"@{key}={options[key]}"
        for key in OPTIONS
        if key in options and (exclusive or key not in OF_EXCLUSION)
    ]
    return ("xsa" if exclusive else "sa") + "".join(said)


def parse_rows(names: Sequence[str]) -> list[Row]:
    """The rows of names, each checked and there once."""
    if not names:
        fail("--rows", "none", "at least one name", "leave it out for all rows")
    rows = [parse_row(name) for name in names]
    if twice := sorted({name for name in names if list(names).count(name) > 1}):
        fail("--rows", f"{', '.join(twice)} twice", "each once", "--seeds repeats rows")
    return rows


def parse_row(name: str) -> Row:
    """A row by its name."""
    kind, *said = name.split("@")
    if kind not in ("sa", "xsa"):
        expected = "sa or xsa, with @option=value behind it"
        fail("--rows", repr(name), expected, "write xsa@length=64")
    options = {}
    for word in said:
        key, _, value = word.partition("=")
        if key not in OPTIONS:
            fail("--rows", repr(name), f"@ with one of {', '.join(OPTIONS)}", "see -h")
        meaning, fits = OPTIONS[key]
        if not fits(value):
            fail("--rows", repr(name), f"@{key}= with {meaning}", "write that")
        options[key] = value
    exclusive = kind == "xsa"
    if not exclusive and (wrong := sorted(options.keys() & OF_EXCLUSION)):
        fail("--rows", repr(name), f"@{wrong[0]} behind xsa alone", "write xsa")
    if (right := named(exclusive, options)) != name:
        fail("--rows", repr(name), "each option once, in order", f"write {right}")
    return Row(name, exclusive, options)


def decoder_of(row: Row, size: str, length: int, vocab_size: int) -> DecoderConfig:
    """The paper's model at the size and with the options of a row.

    size, length: of rows that don't say theirs; length with all tokens in front.
    """
    sizes = SIZES[row.options.get("size", size)]
    plain = presets["xsa-1m-baseline"]
    assert isinstance(plain, DecoderConfig)
    return replace(
        plain,
        **sizes,
        vocab_size=vocab_size,
        max_length=length,
        exclusive=row.exclusive,
        exclusive_gate=row.options.get("gate"),
        exclusive_layers=row.layers(sizes["num_layers"]),
        # A few layers run faster unrolled.
        scan_layers=sizes["num_layers"] > 8,
    )


def _positive(word: str) -> bool:
    try:
        return 0 < float(word) < float("inf")
    except ValueError:
        return False
