"""Parts of the translation experiment that need no training."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from attn_jax.data import ParallelText, Vocabulary
from experiments.translation import results, training
from experiments.translation.claims import claims
from experiments.translation.command_line import parse
from experiments.translation.config import PRESETS, scheduled_steps, variant
from experiments.translation.corpus import Corpus
from experiments.translation.main import prepare
from experiments.translation.table import _missing, _too_long, attention
from experiments.translation.translating import Translation, Translator

HELP = PRESETS["libreoffice-en-de"]
SMOKE = PRESETS["smoke"]


@pytest.mark.parametrize(
    ("options", "name", "words"),
    [
        ({}, "", "self-attention softmax, cross-attention softmax"),
        ({"encoder_mechanism": "softmax"}, "", "self-attention softmax, cross"),
        (
            {"mechanism": "factorized_random"},
            "-factorized_random",
            "self-attention factorized_random, cross-attention softmax",
        ),
        (
            {"exclusive": True},
            "-exclusive",
            "exclusive self-attention softmax, cross",
        ),
        (
            {"encoder_mechanism": "linear"},
            "-encoder_linear",
            "self-attention linear (encoder), softmax (decoder), cross",
        ),
        (
            {"mechanism": "linear", "encoder_mechanism": "softmax"},
            "-linear-encoder_softmax",
            "self-attention softmax (encoder), linear (decoder), cross",
        ),
        (
            {"mechanism": "linear", "cross_mechanism": "linear", "exclusive": True},
            "-linear-cross_linear-exclusive",
            "exclusive self-attention linear, cross-attention linear",
        ),
    ],
)
def test_a_variant_has_a_name_a_place_and_its_claims(options, name, words):
    """Only softmax everywhere, and nothing else, is the model of the claim."""
    config = replace(HELP, **options)
    assert variant(config) == f"libreoffice-en-de{name}"
    assert config.directory().parts == ("runs", "translation", variant(config))
    assert attention(config.shared()).startswith(words)
    found = {
        "config": config.shared(),
        "test": {"bleu": 20.0},
        "baselines": {"dictionary": {"bleu": 3.0}},
        "parameters": 5e6,
        "corpus": {"pairs": {"train": 22_000}},
    }
    held = [] if name else ["yes (one seed)"]
    assert [claim.held for claim in claims(found)] == held


def test_a_text_takes_the_place_of_made_up_words(tmp_path):
    lines = {"en": "A short sentence of usual length.", "de": "Ein kurzer Satz."}
    for split in ("train", "valid", "test"):
        for end, line in lines.items():
            (tmp_path / f"{split}.{end}").write_text(f"{line}\n", encoding="utf-8")
    for named in (["--data", str(tmp_path)], [f"--data={tmp_path}"]):
        plan = prepare(["smoke", *named, "--workdir", str(tmp_path / "run")])
        assert plan.data.train.num_pairs == 1
        assert plan.data.valid.num_dropped == 0
    assert variant(plan.config) == "smoke-text", "it has a directory of its own"
    assert parse(["--tfds", "wmt14_translate/de-en"]).synthetic == 0
    assert parse(["reversal"]) == PRESETS["reversal"]


def test_checkpoints_that_the_mean_lacks_are_named():
    config = {"steps": 6, "checkpoint_every": 2, "average": 3}
    found = {"config": config, "averaged_steps": [4, 6]}
    assert scheduled_steps(config) == [2, 4, 6]
    assert _missing(found) == "; without steps 2, which are not there"
    assert _missing({**found, "averaged_steps": [2, 4, 6]}) == ""


def test_what_is_too_long_is_counted():
    """A source with its eos, and the longer side of a pair, in max_length pieces."""
    vocabulary = Vocabulary([("a", "b")])
    sentences = ["c", "c" * 6, "c" * 7, "c" * 8]
    sizes = [len(ids) + 1 for ids in vocabulary.encode_batch(sentences)]
    config = replace(SMOKE, max_length=sizes[1])
    assert Translator(vocabulary, config).num_cut(sentences) == 2
    corpus = {
        "pairs": {"valid": 4, "test": 5000},
        "validation_pairs_left_out": 2,
        "test_sources_cut": 1000,
    }
    (note,) = _too_long({"corpus": corpus, "config": config.shared()})
    assert "1,000 of 5,000 test sources" in note
    assert "2 of 4 validation pairs" in note


def test_sentences_are_encoded_chunk_by_chunk_into_arrays(monkeypatch):
    vocabulary = Vocabulary([("a", "b")])
    sentences = ["ab", "", "abc", "c", "ba"]
    monkeypatch.setattr(training, "CHUNK", 2)
    found = training._pieces(vocabulary, sentences)
    assert [ids.tolist() for ids in found] == vocabulary.encode_batch(sentences)
    assert {ids.dtype for ids in found} == {np.dtype(np.int32)}
    pairs = ParallelText(sentences[2:], sentences[2:], ("memory", "memory"))
    data = training.encode(Corpus(pairs, pairs, pairs, "few"), vocabulary, SMOKE)
    rows = [row for batch in data.train.in_order() for row in batch.labels.tolist()]
    wanted = [*vocabulary.encode("abc"), vocabulary.eos_id]
    assert rows[0][: len(wanted)] == wanted


def spelled() -> tuple[Vocabulary, Translation]:
    """A text in other pieces than its encoding: letters, while there is a piece."""
    vocabulary = Vocabulary([("a", "b")])
    ids = [*vocabulary.encode("a"), *vocabulary.encode("b")]
    assert vocabulary.encode("ab") != ids
    return vocabulary, Translation("ab", ids)


def test_a_translation_has_the_pieces_that_were_written():
    vocabulary, wanted = spelled()
    translator = Translator(vocabulary, SMOKE)

    def decode(source, valid, limit):
        """The second row never ends."""
        tokens = np.zeros((len(source), limit), np.int32)
        tokens[:, :3] = [*wanted.ids, vocabulary.eos_id]
        tokens[1] = wanted.ids[0]
        return tokens

    first, second = translator._translate(decode, ["c", "cc"])
    assert first == wanted
    limit = SMOKE.max_length + SMOKE.extra_length
    assert second == Translation("a" * limit, wanted.ids[:1] * limit)


def test_a_translation_does_not_depend_on_its_neighbours():
    """Neither its padding nor its limit: those are of the bucket of its own length."""
    config = replace(SMOKE, max_length=40, extra_length=2)
    translator = Translator(Vocabulary([("a", "b")]), config)

    def decode(source, valid, limit):
        """Endless, and different for each shape and sentence."""
        letters = source.max(axis=1, keepdims=True) + source.shape[1] % 3
        return np.broadcast_to(letters, (len(source), limit))

    def translate(sentences):
        return translator._translate(decode, sentences)

    sentences = ["c", "d" * 20, "e" * 3, "f" * 50, *["g" * n for n in range(1, 36)]]
    together = translate(sentences)
    assert together == [translate([sentence])[0] for sentence in sentences]
    assert [len(one.ids) for one in together[:4]] == [18, 26, 18, 42]


def test_attention_maps_show_the_pieces_that_were_written():
    vocabulary, translation = spelled()
    read = []

    class Model:
        def attention_weights(self, source, target):
            read.extend([source.tolist(), target.tolist()])
            sizes = source.shape[1], target.shape[1]
            s, t = (np.ones((1, 1, 1, n, n)) / n for n in sizes)
            return SimpleNamespace(encoder=s, decoder=t, cross=t)

    pairs = ParallelText(["b"], ["ab"], ("memory", "memory"))
    program = SimpleNamespace(
        data=SimpleNamespace(vocabulary=vocabulary), with_params=lambda _: Model()
    )
    found = results._attention(
        SMOKE,
        Corpus(pairs, pairs, pairs, "one"),
        program,
        SimpleNamespace(params=None),
        [translation],
    )
    assert read[1] == [[vocabulary.bos_id, *translation.ids]]
    assert found["target"] == ["<s>", "a", "b"]
