"""Sentence pairs from the help pages of LibreOffice, whose paragraphs carry ids.

    apt-get download libreoffice-help-en-us libreoffice-help-de
    for package in libreoffice-help-*.deb; do dpkg -x "$package" packages; done
    python -m experiments.translation.prepare --packages packages --target de --out de

A paragraph has the same file and the same id in every language, which aligns them
without guessing. Files, not pairs, are split into train, valid and test, and a pair of
valid or test whose English occurs in training goes: pages quote one another.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from attn_jax.data._split import place_of
from experiments.common.errors import UserError, fail
from experiments.common.workdir import write_json
from experiments.translation.help_pages import paragraphs

SOURCE = "en"
SPLITS = ("train", "valid", "test")
_FOLDERS = {"en": "en-US"}
_ROOTS = ("usr/share/libreoffice/help", "help", ".")


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Aligned sentence pairs from unpacked LibreOffice help packages.

    Attributes:
      packages: where libreoffice-help-en-us and the target's package are unpacked
        (dpkg -x PACKAGE.deb DIR).
      target: the language to translate to, as its package says it: de, fr, ...
      out: where train.en, train.de, ... and summary.json are written.
      min_words: words of the shorter side, at least.
      max_words: words of the longer side, at most.
      max_ratio: words of the longer side for each of the shorter, at most.
      valid_fraction: part of the files that validates.
      test_fraction: part of the files that is translated for the score.
    """

    packages: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    target: str
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    min_words: int = 4
    max_words: int = 60
    max_ratio: float = 2.0
    valid_fraction: float = 0.04
    test_fraction: float = 0.06


class Pair(NamedTuple):
    """A paragraph in two languages, and the page it is on."""

    file: str
    source: str
    target: str


class Prepared(NamedTuple):
    """The pairs of each split, and how many were left out, by reason."""

    pairs: dict[str, list[Pair]]
    dropped: dict[str, int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files and return the exit code; 2 is a mistake on the command line."""
    config = tyro.cli(
        PrepareConfig,
        args=sys.argv[1:] if arguments is None else list(arguments),
        prog="python -m experiments.translation.prepare",
    )
    try:
        check(config)
        prepared = prepare(config)
        write(prepared, config)
    except (UserError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    counts = ", ".join(f"{len(prepared.pairs[name])} {name}" for name in SPLITS)
    print(f"{config.out}: {counts} pairs of {SOURCE}-{config.target}")
    return 0


def prepare(config: PrepareConfig) -> Prepared:
    """The pairs that the packages hold, filtered and split."""
    folders = [find_folder(config, name) for name in (SOURCE, config.target)]
    dropped: Counter[str] = Counter()
    pairs = list(align(*folders, dropped))
    pairs = filter_pairs(pairs, config, dropped)
    return Prepared(split_pairs(pairs, config, dropped), dict(sorted(dropped.items())))


def align(source: Path, target: Path, dropped: Counter[str]) -> Iterable[Pair]:
    """The paragraphs that both languages have, in the order of files and pages.

    Where an id stands several times on a page, as quoted passages do, the n-th of one
    language belongs to the n-th of the other, if there are as many.
    """
    for path in sorted(source.rglob("*.html")):
        file = path.relative_to(source).as_posix()
        other = target / file
        if not other.is_file():
            dropped["file in one language only"] += 1
            continue
        ours, theirs = read_page(path), read_page(other)
        for name, texts in ours.items():
            translations = theirs.get(name, [])
            if len(texts) != len(translations):
                dropped["paragraph in one language only"] += len(texts)
                continue
            for text, translation in zip(texts, translations, strict=True):
                yield Pair(file, text, translation)


def read_page(path: Path) -> dict[str, list[str]]:
    """The paragraphs of a page; undecodable bytes name file, line and offset."""
    content = path.read_bytes()
    try:
        return paragraphs(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        where = f"{path}, line {line}, byte offset {error.start}"
        fail(where, error.reason, "a page in UTF-8", "unpack the package again")


def filter_pairs(
    pairs: Iterable[Pair], config: PrepareConfig, dropped: Counter[str]
) -> list[Pair]:
    """The pairs of a fitting length that are translated."""
    kept = []
    for pair in pairs:
        lengths = sorted((len(pair.source.split()), len(pair.target.split())))
        if lengths[0] < config.min_words or lengths[1] > config.max_words:
            dropped["too short or too long"] += 1
        elif lengths[1] > config.max_ratio * lengths[0]:
            dropped["lengths too different"] += 1
        elif fold(pair.source) == fold(pair.target):
            dropped["not translated"] += 1
        elif not fold(pair.source) or not fold(pair.target):
            dropped["no letters"] += 1
        else:
            kept.append(pair)
    return kept


def split_pairs(
    pairs: Iterable[Pair], config: PrepareConfig, dropped: Counter[str]
) -> dict[str, list[Pair]]:
    """Train, valid and test: by file, each pair once, no English on two sides.

    English counts as the same when its letters are, in either case: two sentences that
    differ in digits, signs or blanks would tell a model the answer. Training keeps
    different translations of one sentence; valid and test keep the first.
    """
    sides: dict[str, list[Pair]] = {name: [] for name in SPLITS}
    for pair in pairs:
        sides[side_of(pair.file, config)].append(pair)
    seen: set[str] = set()
    unique: set[tuple[str, str]] = set()
    for pair in sides["train"]:
        unique.add((pair.source, pair.target))
        seen.add(fold(pair.source))
    dropped["repeated in training"] += len(sides["train"]) - len(unique)
    split = {"train": list({(p.source, p.target): p for p in sides["train"]}.values())}
    for name in ("test", "valid"):
        split[name] = []
        for pair in sides[name]:
            if fold(pair.source) in seen:
                dropped[f"{name}: English occurs before or in training"] += 1
                continue
            seen.add(fold(pair.source))
            split[name].append(pair)
    for name in SPLITS:
        if not split[name]:
            fail(
                "--packages",
                f"{sum(map(len, sides.values()))} fitting pairs, none for {name}",
                "pages for every split",
                "unpack the whole packages, or pass another fraction of files",
            )
    return split


def side_of(file: str, config: PrepareConfig) -> str:
    """The split of a page: a hash of its path, as a number in [0, 1)."""
    place = place_of(file)
    if place < config.test_fraction:
        return "test"
    return "valid" if place < config.test_fraction + config.valid_fraction else "train"


def fold(text: str) -> str:
    """The letters of a text alone, without their case."""
    return "".join(letter for letter in text.casefold() if letter.isalpha())


def find_folder(config: PrepareConfig, language: str) -> Path:
    """Where the pages of a language lie below the unpacked packages."""
    folder = _FOLDERS.get(language, language)
    roots = [config.packages / root for root in _ROOTS]
    for root in roots:
        if (root / folder / "text").is_dir():
            return root / folder / "text"
    found = {p.parent.name for root in roots for p in root.glob("*/text")}
    there = f"only {', '.join(sorted(found))}" if found else "no help pages"
    package = f"libreoffice-help-{folder.lower()}"
    fail(
        "--packages",
        f"{config.packages}, which holds {there}",
        f"the pages of {folder}, at {_ROOTS[0]}/{folder}/text",
        f"unpack them: apt-get download {package} && "
        f"dpkg -x {package}_*.deb {config.packages}",
    )


def check(config: PrepareConfig) -> None:
    """Raise for numbers that can't be meant."""
    if config.target == SOURCE:
        fail("--target", config.target, "another language than English", "pass de")
    if not 1 <= config.min_words <= config.max_words:
        got = f"{config.min_words} and {config.max_words}"
        expected = "1 <= min <= max"
        fail("--min-words and --max-words", got, expected, "pass 4 and 60")
    if not config.max_ratio >= 1:
        fail("--max-ratio", config.max_ratio, "at least 1", "pass 2")
    valid, test = config.valid_fraction, config.test_fraction
    if not (valid > 0 and test > 0 and valid + test < 1):
        expected = "numbers above 0 that leave something to train on"
        got = f"{valid} and {test}"
        fail(
            "--valid-fraction and --test-fraction", got, expected, "pass 0.04 and 0.06"
        )


def write(prepared: Prepared, config: PrepareConfig) -> None:
    """Write line-aligned files and a summary."""
    config.out.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    for name in SPLITS:
        pairs = prepared.pairs[name]
        for language, lines in (
            (SOURCE, [pair.source for pair in pairs]),
            (config.target, [pair.target for pair in pairs]),
        ):
            content = "".join(f"{line}\n" for line in lines).encode()
            (config.out / f"{name}.{language}").write_bytes(content)
            digest.update(content)
    write_json(
        config.out / "summary.json", summary(prepared, config, digest.hexdigest())
    )


def summary(
    prepared: Prepared, config: PrepareConfig, digest: str
) -> dict[str, object]:
    """What was written, what was left out, and with which rules."""
    rules = asdict(config)
    for name in ("packages", "out", "target"):
        del rules[name]
    return {
        "source": SOURCE,
        "target": config.target,
        "pairs": {name: len(prepared.pairs[name]) for name in SPLITS},
        "files": {name: len({p.file for p in prepared.pairs[name]}) for name in SPLITS},
        "words": {
            name: [
                sum(len(pair.source.split()) for pair in prepared.pairs[name]),
                sum(len(pair.target.split()) for pair in prepared.pairs[name]),
            ]
            for name in SPLITS
        },
        "dropped": prepared.dropped,
        "rules": rules,
        "sha256": digest,
    }


if __name__ == "__main__":
    sys.exit(main())
