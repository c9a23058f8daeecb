"""Text of files, as words without tags where a corpus has some."""

import re
from collections.abc import Sequence

from attn_jax.data import ByteCorpus, load_corpus
from experiments.common.errors import fail


def read_text(paths: Sequence[str] | None, *, tagged: bool) -> tuple[str, ByteCorpus]:
    """The training side of a corpus, and what it is from.

    paths: files, directories or globs; None is the source of Python's standard library.
    tagged: whether words are written word/tag, as in the Brown corpus.
    """
    corpus = load_corpus(paths)
    text = bytes(corpus.train).decode(errors="replace")
    if tagged:
        words = re.findall(r"(\S+)/[^\s/]+", text)
        if len(words) < len(text.split()) / 2:
            remedy = "leave --tagged out for plain text"
            fail("--tagged", f"{corpus.name}, mostly without", "word/tag", remedy)
        text = " ".join(words)
    return text, corpus
