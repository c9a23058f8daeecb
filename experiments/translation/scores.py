"""BLEU and chrF of translations, and what needs no model: copying, and a dictionary.

`score` gives the numbers to compare with anybody: sacrebleu's, on plain text, with the
signatures that say how they were made. `paper_bleu` gives the number of Vaswani et al.
2017, which isn't comparable with them: on tokenised text, with compounds split at their
hyphens, which usually raises it.
"""

import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from attn_jax.data import ParallelText

NULL = ""
# IBM model 1 holds every couple of words at once: 4.5 million pairs would take 100 GB.
DICTIONARY_PAIRS = 100_000
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*|[^\w\s]|_")
_COMPOUND = re.compile(r"(\S)-(\S)")
_TOKENISED = re.compile(r"(?<=\w) [.,](?=\s|$)|@-@|##AT##")
_NO_BLANK_BEFORE = re.compile(r"\s+([.,;:!?)\]}%])")
_NO_BLANK_AFTER = re.compile(r"([(\[{])\s+")


def score(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Detokenised BLEU and chrF by sacrebleu, on 0 .. 100, and their signatures.

    Args:
        hypotheses: the translations, as text that somebody would read.
        references: the right ones, one each.

    Returns:
        bleu, bleu_signature, chrf, chrf_signature, and sentences, their number.

    Warns:
        UserWarning: more than half of a side looks tokenised. sacrebleu tokenises
            itself; on text that is tokenised already its numbers are too high.
    """
    _check(hypotheses, references)
    _warn_of_tokens("hypotheses", hypotheses)
    _warn_of_tokens("references", references)
    metrics = _import_sacrebleu().metrics
    bleu, chrf = metrics.BLEU(), metrics.CHRF()
    wanted = [list(references)]
    return {
        "bleu": bleu.corpus_score(list(hypotheses), wanted).score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(list(hypotheses), wanted).score,
        "chrf_signature": str(chrf.get_signature()),
        "sentences": len(hypotheses),
    }


def paper_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU as Vaswani et al. 2017 report it: tokenised, compounds split.

    Both sides are tokenised, every hyphen between two characters becomes the token
    ##AT##-##AT##, and BLEU counts these tokens. It stands for get_ende_bleu.sh of
    tensor2tensor, with sacrebleu's 13a where the script has the Moses tokenizer, and
    is good for comparing with the paper's numbers only.

    Returns:
        tokenised_compound_split_bleu and its signature.
    """
    _check(hypotheses, references)
    sacrebleu = _import_sacrebleu()
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenize = Tokenizer13a()
    ours, theirs = (
        [split_compounds(tokenize(line)) for line in side]
        for side in (hypotheses, references)
    )
    bleu = sacrebleu.metrics.BLEU(tokenize="none", force=True)
    return {
        "tokenised_compound_split_bleu": bleu.corpus_score(ours, [theirs]).score,
        "tokenised_compound_split_bleu_signature": (
            f"{bleu.get_signature()}|before:13a,##AT##-##AT##"
        ),
    }


def split_compounds(line: str) -> str:
    """`a-b` as `a ##AT##-##AT## b`, by the expression of get_ende_bleu.sh.

    >>> split_compounds("state-of-the-art text - here")
    'state ##AT##-##AT## of ##AT##-##AT## the ##AT##-##AT## art text - here'
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def copy_baseline(sources: Sequence[str]) -> list[str]:
    """The source as its own translation: names and numbers come out right."""
    return list(sources)


class Dictionary:
    """Word-for-word translation, the likeliest word of each, in the source's order.

    Attributes:
        table: each source word and the target word it becomes; "" where it vanishes.
    """

    def __init__(self, table: dict[str, str]) -> None:
        self.table = table

    def translate(self, sentence: str) -> str:
        """Each word by the table; an unknown one, and punctuation, stays as it is."""
        words = _WORD.findall(sentence)
        chosen = [self.table.get(word, word) for word in words]
        text = " ".join(word for word in chosen if word)
        text = _NO_BLANK_AFTER.sub(r"\1", _NO_BLANK_BEFORE.sub(r"\1", text))
        return text[:1].upper() + text[1:] if sentence[:1].isupper() else text


def dictionary_baseline(
    training: ParallelText, sources: Iterable[str], *, iterations: int = 5
) -> list[str]:
    """Each source translated word for word, by a dictionary learnt from training.

    It is learnt from DICTIONARY_PAIRS pairs at most, evenly spaced.
    """
    few = evenly_spaced(training, DICTIONARY_PAIRS)
    dictionary = learn_dictionary(few, iterations=iterations)
    return [dictionary.translate(source) for source in sources]


def evenly_spaced(pairs: ParallelText, most: int) -> ParallelText:
    """At most so many of the pairs, from the first on at equal distances."""
    if len(pairs) <= most:
        return pairs
    chosen = [i * len(pairs) // most for i in range(most)]
    source, target = (
        [side[i] for i in chosen] for side in (pairs.source, pairs.target)
    )
    return ParallelText(source, target, pairs.names)


def learn_dictionary(training: ParallelText, *, iterations: int = 5) -> Dictionary:
    """A dictionary by IBM model 1: the target word that a source word makes likeliest.

        p(e | f) ∝ t(e | f) over the words f of the source and NULL
        t(e | f) ← Σ over pairs of p(e | f), normalised over e

    Every target word comes from one source word or from NULL, whatever its place.
    After some rounds of expectation and maximisation a source word becomes the target
    word e with the largest t(e | f). It vanishes where that target word comes rather
    from NULL: t(e | NULL) > t(e | f). Cost: O(Σ words · words) a round. Reference:
    Brown et al. 1993, section 4.1.

    Args:
        training: the pairs to learn from.
        iterations: rounds, at least 1.
    """
    sides = [
        [_WORD.findall(line) for line in s] for s in (training.source, training.target)
    ]
    (source, names), (target, translations) = map(_number, sides)
    f, e = _couples(source, target)
    codes, couple = np.unique(f * len(translations) + e, return_inverse=True)
    left, right = codes // len(translations), codes % len(translations)
    # One group for each target token of each pair: it shares one unit among sources.
    group = _groups(source, target)
    t = 1.0 / np.bincount(left, minlength=len(names))[left]
    for _ in range(iterations):
        weight = t[couple]
        weight /= np.bincount(group, weights=weight)[group]
        counts = np.bincount(couple, weights=weight, minlength=len(codes))
        t = counts / np.bincount(left, weights=counts, minlength=len(names))[left]
    return Dictionary(_best(left, right, t, names, translations))


def _best(
    left: np.ndarray,
    right: np.ndarray,
    t: np.ndarray,
    names: list[str],
    translations: list[str],
) -> dict[str, str]:
    from_null = np.zeros(len(translations))
    from_null[right[left == 0]] = t[left == 0]
    order = np.lexsort((-t, left))
    first = order[np.unique(left[order], return_index=True)[1]]
    return {
        names[left[i]]: "" if from_null[right[i]] > t[i] else translations[right[i]]
        for i in first
        if left[i] != 0
    }


def _number(sentences: list[list[str]]) -> tuple[list[list[int]], list[str]]:
    """The sentences as numbers of words, and the words; NULL is word 0."""
    numbers: defaultdict[str, int] = defaultdict(lambda: len(numbers))
    assert numbers[NULL] == 0
    found = [[numbers[word] for word in sentence] for sentence in sentences]
    return found, list(numbers)


def _couples(
    source: list[list[int]], target: list[list[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Each target token beside NULL and each source token of its pair."""
    f = [
        np.tile([0, *one], len(other))
        for one, other in zip(source, target, strict=True)
    ]
    e = [np.repeat(b, len(a) + 1) for a, b in zip(source, target, strict=True)]
    return np.concatenate(f).astype(np.int64), np.concatenate(e).astype(np.int64)


def _groups(source: list[list[int]], target: list[list[int]]) -> np.ndarray:
    sizes = [len(a) + 1 for a, b in zip(source, target, strict=True) for _ in b]
    return np.repeat(np.arange(len(sizes)), sizes)


def _warn_of_tokens(name: str, side: Sequence[str]) -> None:
    """BLEU tokenises by itself: text in tokens has a score of its own."""
    found = [match.group() for match in map(_TOKENISED.search, side) if match]
    if 2 * len(found) > len(side):
        seen = ", ".join(map(repr, sorted(set(found))))
        warnings.warn(
            f"{name}: {len(found)} of {len(side)} sentences have {seen}, as tokenised "
            "text does; expected text that somebody would read, since the score of "
            "tokenised text compares with no other; join the tokens first",
            stacklevel=3,
        )


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references) or not hypotheses:
        raise ValueError(
            f"hypotheses and references: got {len(hypotheses)} and {len(references)}; "
            "expected as many of both, at least one; translate every sentence of the "
            "test set, in its order"
        )


def _import_sacrebleu() -> Any:
    try:
        import sacrebleu
    except ImportError as error:
        raise ImportError(
            "Scores need the package sacrebleu: pip install 'attn_jax[text]'"
        ) from error
    return sacrebleu
