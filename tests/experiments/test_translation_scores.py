"""Scores by hand, and the two marks that need no model."""

import math
import sys
from collections import defaultdict

import pytest

from attn_jax.data import ParallelText
from experiments.translation import scores
from experiments.translation.scores import (
    copy_baseline,
    dictionary_baseline,
    evenly_spaced,
    learn_dictionary,
    paper_bleu,
    score,
    split_compounds,
)

NAMES = ("memory", "memory")


def test_bleu_by_hand():
    """Tokens a b c d e . against a b c d f . : 5/6, 3/5, 2/4, 1/3 of the n-grams."""
    found = score(["a b c d e."], ["a b c d f."])
    precisions = (5 / 6, 3 / 5, 2 / 4, 1 / 3)
    assert found["bleu"] == pytest.approx(100 * math.prod(precisions) ** 0.25)
    assert found["sentences"] == 1


def test_bleu_of_a_short_corpus_is_penalised_once():
    """Of 9 tokens instead of 11, exp(1 - 11/9), over the corpus, not the sentence."""
    found = score(["a b c d e", "f g h i"], ["a b c d e", "f g h i j k"])
    assert found["bleu"] == pytest.approx(100 * math.exp(1 - 11 / 9))


def test_chrf_by_hand():
    """Letters abc against abd: 2/3, 1/2 and 0 of the 1-, 2- and 3-grams agree."""
    found = score(["abc"], ["abd"])
    assert found["chrf"] == pytest.approx(100 * (2 / 3 + 1 / 2 + 0) / 3)


def test_signatures_say_how():
    found = score(["a"], ["a"])
    assert "tok:13a" in found["bleu_signature"]
    assert "case:mixed" in found["bleu_signature"]
    assert "nc:6|nw:0" in found["chrf_signature"]
    assert "version:" in found["chrf_signature"]


@pytest.mark.parametrize("side", ["hypotheses", "references"])
@pytest.mark.parametrize(
    ("tokens", "seen"),
    [
        (["A file , a name .", "Open it .", "The end."], "' ,', ' .'"),
        (["A file, a @-@ name.", "Open @-@ it.", "The end."], "'@-@'"),
        (["A file ##AT##-##AT## name.", "Open it .", "The end."], "' .', '##AT##'"),
    ],
)
def test_tokenised_text_is_warned_of(side, tokens, seen):
    """Contract 107: on either side, and the numbers come all the same."""
    text = ["A file, a name.", "Open it.", "The end ."]
    sides = {"hypotheses": text, "references": text} | {side: tokens}
    said = f"{side}: 2 of 3 sentences have {seen}, as"
    with pytest.warns(UserWarning, match=said) as caught:
        assert score(**sides)["sentences"] == 3
    assert caught[0].filename == __file__


def test_a_few_such_marks_are_the_authors():
    """Half of the sentences is not most of them; French has blanks before ! and ?."""
    for text in (
        ["A file, a name.", "The end ."],
        ["C'est la fin !", "Est-ce la fin ?", "Il y en a trois..."],
    ):
        assert score(text, text)["bleu"] == pytest.approx(100)


def test_split_compounds():
    assert split_compounds("state-of-the-art text - here -x y-") == (
        "state ##AT##-##AT## of ##AT##-##AT## the ##AT##-##AT## art text - here -x y-"
    )


def test_the_papers_bleu_counts_parts_of_compounds():
    """13a leaves "rich-text" whole; split, four of the six tokens agree in order."""
    ours, theirs = ["a rich-text b c"], ["a poor-text b c"]
    found = paper_bleu(ours, theirs)
    precisions = (5 / 6, 3 / 5, 2 / 4, 1 / 3)
    wanted = 100 * math.prod(precisions) ** 0.25
    assert found["tokenised_compound_split_bleu"] == pytest.approx(wanted)
    assert "##AT##" in found["tokenised_compound_split_bleu_signature"]
    assert score(ours, theirs)["bleu"] < wanted
    assert paper_bleu(ours, ours)["tokenised_compound_split_bleu"] == pytest.approx(100)
    assert set(found).isdisjoint(score(ours, theirs))


@pytest.mark.parametrize("measure", [score, paper_bleu])
def test_numbers_of_sentences_have_to_agree(measure):
    with pytest.raises(ValueError, match="got 1 and 2"):
        measure(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="at least one"):
        measure([], [])


def test_a_missing_package_says_which_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ImportError, match=r"attn_jax\[text\]"):
        score(["a"], ["a"])


def test_copying():
    sources = ["Open 3 files.", "x"]
    assert copy_baseline(sources) == sources


TRAINING = ParallelText(
    ["the house", "the book", "a book", "a small house", "small the"],
    ["das Haus", "das Buch", "ein Buch", "ein kleines Haus", "das kleines"],
    NAMES,
)

POLITE = ParallelText(
    ["please go", "run", "see please", "go", "run", "see"],
    ["gehen .", "rennen .", "sehen .", "gehen .", "rennen .", "sehen ."],
    NAMES,
)


def model_1(pairs: ParallelText, iterations: int) -> dict[str, dict[str, float]]:
    """IBM model 1 in loops, as Brown et al. 1993 write it; "" is NULL."""
    couples = [
        (["", *source.split()], target.split())
        for source, target in zip(pairs.source, pairs.target, strict=True)
    ]
    t: dict[str, dict[str, float]] = defaultdict(dict)
    for source, target in couples:
        for f in source:
            for e in target:
                t[f][e] = 1.0
    for f in t:
        t[f] = dict.fromkeys(t[f], 1 / len(t[f]))
    for _ in range(iterations):
        counts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for source, target in couples:
            for e in target:
                total = sum(t[f][e] for f in source)
                for f in source:
                    counts[f][e] += t[f][e] / total
        for f in t:
            total = sum(counts[f].values())
            t[f] = {e: counts[f][e] / total for e in t[f]}
    return t


@pytest.mark.parametrize("training", [TRAINING, POLITE])
@pytest.mark.parametrize("iterations", [2, 7])
def test_the_dictionary_is_that_of_model_1(training, iterations):
    t = model_1(training, iterations)
    wanted = {}
    for f in t:
        best = max(t[f], key=t[f].__getitem__)
        wanted[f] = best if t[""].get(best, 0) <= t[f][best] else ""
    del wanted[""]
    assert learn_dictionary(training, iterations=iterations).table == wanted


def test_words_are_learnt_from_where_they_occur_together():
    table = learn_dictionary(TRAINING, iterations=10).table
    assert table["house"] == "Haus"
    assert table["book"] == "Buch"
    assert table["small"] == "kleines"


def test_dictionary_baseline_keeps_what_it_does_not_know():
    found = dictionary_baseline(
        TRAINING, ["small house (small book), 3 X-rays: house!"], iterations=10
    )
    assert found == ["kleines Haus (kleines Buch), 3 X-rays: Haus!"]
    assert dictionary_baseline(TRAINING, ["Unknown small"]) == ["Unknown kleines"]


def test_the_dictionary_is_learnt_from_some_pairs_of_a_large_corpus(monkeypatch):
    """Evenly spaced, so from all parts of it; the others don't count."""
    few = evenly_spaced(TRAINING, 3)
    assert few.source == ["the house", "the book", "a small house"]
    assert few.target == ["das Haus", "das Buch", "ein kleines Haus"]
    assert evenly_spaced(TRAINING, 5) == TRAINING
    monkeypatch.setattr(scores, "DICTIONARY_PAIRS", 3)
    words = learn_dictionary(few).table
    assert dictionary_baseline(TRAINING, ["small book"]) == [
        f"{words['small']} {words['book']}"
    ]


def test_a_word_that_nothing_answers_vanishes():
    """It comes with full stops, but these come without it too: NULL explains them."""
    assert learn_dictionary(POLITE, iterations=10).table == {
        "please": "",
        "go": "gehen",
        "run": "rennen",
        "see": "sehen",
    }
    assert dictionary_baseline(POLITE, ["Run please!"]) == ["Run!"]
