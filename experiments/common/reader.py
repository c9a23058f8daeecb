"""How an encoder in a folder reads text."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from attn_jax.data import load_vocabulary
from attn_jax.interop import huggingface

VOCABULARY = "vocabulary.json"


class Reader(NamedTuple):
    """Text to ids, and those at both ends of a sequence."""

    ids: Callable[[str], list[int]]
    first: int
    last: int


def load_reader(folder: Path) -> Reader:
    """The tokenizer of a folder, or the vocabulary of our own training."""
    if (folder / VOCABULARY).is_file():
        own = load_vocabulary(folder / VOCABULARY)
        return Reader(own.encode, own.bos_id, own.eos_id)
    tokenizer = huggingface.load_tokenizer(folder)
    (row,) = tokenizer.encode([""], length=3).tokens.tolist()
    return Reader(tokenizer.ids, *row[:2])
