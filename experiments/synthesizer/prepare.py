r"""Film reviews in a sentence or two, rated by people, from the sources of a package.

    pip download --no-deps --no-binary :all: vaderSentiment==3.3.1
    python -m experiments.synthesizer.prepare \
        --sdist vaderSentiment-3.3.1.tar.gz --out snippets.tsv

Each of its 10,605 snippets has the mean of twenty ratings from -4 to 4. Its sign is the
class, negative or positive; the 37 whose mean is 0 are left out. `--join 4` makes
longer texts, of four snippets of one class each.
"""

import io
import random
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from experiments.common.command_line import at_least
from experiments.common.errors import UserError, fail

INNER = "additional_resources/hutto_ICWSM_2014.tar.gz"
FILE = "movieReviewSnippets_GroundTruth.txt"
REMEDY = "get it with pip download --no-deps --no-binary :all: vaderSentiment==3.3.1"


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Film reviews with their classes, from the sources of vaderSentiment.

    Attributes:
      sdist: vaderSentiment-3.3.1.tar.gz.
      out: the file that is written, a class, a tab and a text on each line.
      join: snippets of one class that make a text; no snippet is in two.
    """

    sdist: Annotated[Path, tyro.conf.arg(metavar="PATH")]
    out: Annotated[Path, tyro.conf.arg(metavar="PATH")]
    join: int = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file and return the exit code; 2 is a mistake on the command line."""
    config = tyro.cli(
        PrepareConfig,
        args=sys.argv[1:] if arguments is None else list(arguments),
        prog="python -m experiments.synthesizer.prepare",
    )
    try:
        at_least(config, 1, "join")
        lines = joined(labelled(read(config.sdist)), config.join)
        config.out.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{label}\t{snippet}\n" for label, snippet in lines)
        config.out.write_text(text, encoding="utf-8")
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{config.out}: {len(lines)} texts")
    return 0


def read(sdist: Path) -> str:
    """The file with the ratings, out of the archive in the archive."""
    try:
        with tarfile.open(sdist) as outer:
            inner = _member(outer, INNER, sdist)
        with tarfile.open(fileobj=io.BytesIO(inner)) as archive:
            return _member(archive, FILE, sdist).decode("utf-8")
    except (tarfile.TarError, UnicodeDecodeError) as error:
        fail("--sdist", f"{sdist} ({error})", "the sources of vaderSentiment", REMEDY)


def labelled(text: str) -> list[tuple[str, str]]:
    """The class and the words of each line of id, rating and snippet."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        columns = line.split("\t")
        try:
            _, rating, snippet = columns
            score = float(rating)
        except ValueError:
            expected = "a number, a rating and a snippet, with tabs between"
            fail(f"{FILE}, line {number}", repr(line[:60]), expected, REMEDY)
        if score:
            label = "positive" if score > 0 else "negative"
            found.append((label, " ".join(snippet.split())))
    return found


def joined(lines: list[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    """Texts of so many snippets of one class, drawn at random; those left over go."""
    if count == 1:
        return lines
    drawn, found = random.Random(0), []
    for label in sorted({label for label, _ in lines}):
        snippets = [snippet for each, snippet in lines if each == label]
        drawn.shuffle(snippets)
        for i in range(0, len(snippets) - count + 1, count):
            found.append((label, " ".join(snippets[i : i + count])))
    drawn.shuffle(found)
    return found


def _member(archive: tarfile.TarFile, end: str, sdist: Path) -> bytes:
    """The content of the member whose name ends so."""
    for member in archive:
        if member.isfile() and member.name.endswith(end):
            content = archive.extractfile(member)
            assert content is not None
            return content.read()
    fail("--sdist", f"{sdist}, without {end}", "the sources of vaderSentiment", REMEDY)


if __name__ == "__main__":
    sys.exit(main())
