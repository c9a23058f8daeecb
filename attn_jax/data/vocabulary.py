"""Subword vocabularies: byte-level BPE, one for both languages of a translation."""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer

from attn_jax.data._checks import fail, integer
from attn_jax.data._files import read_file, write_whole

_FORMAT = "attn_jax byte-level BPE, version 1"
_NUM_SPECIAL = 3
_NUM_BYTES = 256
_SMALLEST = _NUM_SPECIAL + _NUM_BYTES


class Vocabulary:
    """Pieces of text and their ids, by byte-level byte-pair encoding.

        ids 0, 1, 2 are padding, beginning and end; 3 .. 258 are the bytes;
        258 + i is the piece that merge i, counted from 1, made of two others

    Text is cut at blanks, digits and punctuation as GPT-2 cuts it, each part is written
    in bytes, and the merges join pairs of pieces in the order in which they were
    learnt. Nothing is normalised and no text is unknown: `decode(encode(s)) == s` for
    every string, one that spells a special token included. Reference: Sennrich et al.
    2016, on bytes as in Radford et al. 2019.

    Attributes:
        merges: the pairs of pieces, in order, in the letters that stand for bytes.
        pad_id: 0, always.
        bos_id: begins a target.
        eos_id: ends a source and a target.
    """

    pad_id = 0
    bos_id = 1
    eos_id = 2

    def __init__(self, merges: Iterable[tuple[str, str]]) -> None:
        self.merges = tuple((left, right) for left, right in merges)
        self._pieces = _pieces(self.merges)

    @property
    def size(self) -> int:
        """How many ids there are, the three special ones included."""
        return _NUM_SPECIAL + len(self._pieces)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides which text gets which ids."""
        return hashlib.sha256(self._content().encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without beginning or end."""
        return [i + _NUM_SPECIAL for i in self._tokenizer.encode(text).ids]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text; uses all cores."""
        encoded = self._tokenizer.encode_batch_fast(list(texts))
        return [[i + _NUM_SPECIAL for i in one.ids] for one in encoded]

    def decode(self, ids: Sequence[int] | Integer[np.ndarray, " n"]) -> str:
        """The text of ids, up to the first end; padding and beginnings are left out.

        Bytes that are no UTF-8, as where a character is cut, become U+FFFD.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        kept = self._checked(ids)
        if self.eos_id in kept:
            kept = kept[: kept.index(self.eos_id)]
        pieces = [i - _NUM_SPECIAL for i in kept if i >= _NUM_SPECIAL]
        return self._tokenizer.decode(pieces, skip_special_tokens=False)

    def pieces(self, ids: Sequence[int] | Integer[np.ndarray, " n"]) -> list[str]:
        """Each id as text, to label a figure: "", "<s>" and "</s>" for special ones.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        special = ("", "<s>", "</s>")
        return [
            special[i] if i < _NUM_SPECIAL else self.decode([i])
            for i in self._checked(ids)
        ]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the vocabulary as JSON, whole or not at all."""
        place = Path(path).expanduser()
        text = json.dumps(
            {**json.loads(self._content()), "fingerprint": self.fingerprint}, indent=1
        )
        write_whole(place, text + "\n")

    def check_fingerprint(self, expected: str, *, owner: str = "the run") -> None:
        """Raise unless `expected` is the fingerprint of this vocabulary.

        Args:
            expected: the fingerprint that was recorded with a run or a checkpoint.
            owner: what recorded it, for the message.

        Raises:
            ValueError: it is another one; ids would mean other pieces.
        """
        if expected != self.fingerprint:
            fail(
                "vocabulary",
                f"one with fingerprint {self.fingerprint}",
                f"that of {owner}, {expected}",
                "load the vocabulary that was saved there, or train anew",
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.merges == other.merges

    def __hash__(self) -> int:
        return hash(self.merges)

    def __repr__(self) -> str:
        return f"Vocabulary(size={self.size}, fingerprint={self.fingerprint[:12]}...)"

    def _content(self) -> str:
        return json.dumps(
            {
                "format": _FORMAT,
                "special": [self.pad_id, self.bos_id, self.eos_id],
                "merges": self.merges,
            }
        )

    def _checked(self, ids: Sequence[int] | np.ndarray) -> list[int]:
        numbers = [integer("ids", i) for i in ids]
        for place, i in enumerate(numbers):
            if not 0 <= i < self.size:
                fail(
                    f"ids[{place}]",
                    str(i),
                    f"0 to {self.size - 1}, the ids of this vocabulary",
                    "decode with the vocabulary that the text was encoded with",
                )
        return numbers

    @cached_property
    def _tokenizer(self) -> Any:
        """The encoder, without special tokens: no text can spell one."""
        tokenizers = import_tokenizers()
        model = tokenizers.models.BPE(vocab=self._pieces, merges=list(self.merges))
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.pre_tokenizer = _pre_tokenizer(tokenizers)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        return tokenizer


def train_vocabulary(texts: Iterable[str], size: int) -> Vocabulary:
    """Learn the merges of the commonest pairs of pieces, always the same for a text.

    For translation, pass both sides: `[*pairs.source, *pairs.target]`. What is held out
    has no place here.

    Args:
        texts: sentences; their order makes no difference.
        size: ids of the vocabulary, the three special ones and the 256 bytes included.

    Returns:
        The vocabulary.

    Raises:
        ImportError: the extra `text` isn't installed.
        ValueError: size is below 259, or the texts have fewer different pairs.
    """
    size = integer("size", size, minimum=_SMALLEST)
    if isinstance(texts, str):
        fail("texts", "one string", "sentences", "pass a list of them", TypeError)
    texts = list(texts)
    if others := [text for text in texts if not isinstance(text, str)]:
        got = f"{type(others[0]).__name__} among them"
        fail("texts", got, "sentences, each a str", "pass text", TypeError)
    if not any(texts):
        fail("texts", "no text", "sentences", "pass the sentences to train on")
    tokenizers = import_tokenizers()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = _pre_tokenizer(tokenizers)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size - _NUM_SPECIAL,
        initial_alphabet=_alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    vocabulary = Vocabulary(map(_two, merges))
    if vocabulary.size != size:
        fail(
            "size",
            str(size),
            f"at most {vocabulary.size}, all that {len(texts)} texts give",
            "pass a smaller size, or more text",
        )
    return vocabulary


def load_vocabulary(path: str | os.PathLike[str]) -> Vocabulary:
    """The vocabulary that `Vocabulary.save` wrote.

    Raises:
        FileNotFoundError: there is no file.
        ValueError: the file holds something else, or was changed since.
    """
    place = Path(path).expanduser()
    remedy = "pass the path of a vocabulary that Vocabulary.save wrote"
    try:
        content = json.loads(read_file("path", place))
        form, recorded = content["format"], content["fingerprint"]
        merges = [_two(pair) for pair in content["merges"]]
    except (ValueError, KeyError, TypeError) as error:
        fail(f"path ({place})", f"no vocabulary ({error!r})", "its JSON", remedy)
    if form != _FORMAT:
        fail(f"path ({place})", f"format {form!r}", repr(_FORMAT), remedy)
    try:
        vocabulary = Vocabulary(merges)
    except KeyError as error:
        fail(f"path ({place})", f"a merge of unknown {error}", "its pieces", remedy)
    if vocabulary.fingerprint != recorded:
        expected = f"{recorded}, which the file records"
        got = f"merges with fingerprint {vocabulary.fingerprint}"
        fail(f"path ({place})", got, expected, "restore the file; it was changed")
    return vocabulary


def _alphabet() -> list[str]:
    """The letters that stand for the bytes, sorted: GPT-2's, all of them visible."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = _NUM_BYTES - len(visible)
    return sorted([*map(chr, visible), *map(chr, range(256, 256 + others))])


def _pieces(merges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The pieces and their places: bytes, then what each merge makes of two of them."""
    pieces = {letter: place for place, letter in enumerate(_alphabet())}
    for left, right in merges:
        for part in (left, right):
            if part not in pieces:
                raise KeyError(part)
        pieces.setdefault(left + right, len(pieces))
    return pieces


def _two(merge: Any) -> tuple[str, str]:
    """A merge as a pair; some versions of tokenizers write a blank between the two."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _pre_tokenizer(tokenizers: Any) -> Any:
    return tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def import_tokenizers() -> Any:
    """The package, or an error that says how to get it."""
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            "Subword vocabularies need the package tokenizers: "
            "pip install 'attn_jax[text]'"
        ) from error
    return tokenizers
