"""results.json: everything that the table and the figures are made from."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from attn_jax.models import count_parameters
from experiments.translation import scores
from experiments.translation.config import TranslationConfig, variant
from experiments.translation.corpus import Corpus
from experiments.translation.training import SECONDS, Program, Trained
from experiments.translation.translating import Translation

SAMPLES = 8
HEADS = 2
# What may differ between two commands in a directory, and decides what is judged.
JUDGED = ("steps", "checkpoint_every", "average", "beam_size", "alpha")


def assemble(
    config: TranslationConfig,
    origin: dict[str, Any],
    corpus: Corpus,
    program: Program,
    trained: Trained,
    translations: list[Translation],
    seconds: float,
) -> dict[str, Any]:
    """The results of a run whose test sentences are translated."""
    data = program.data
    texts = [translation.text for translation in translations]
    return {
        "experiment": "translation",
        "preset": config.preset,
        "title": variant(config),
        **origin,
        "config": {
            **config.shared(),
            **{name: getattr(config, name) for name in JUDGED},
            "seeds": [config.seed],
        },
        "corpus": {
            **corpus.summary,
            "batches": data.train.summary,
            "validation_pairs_left_out": data.valid.num_dropped,
            "test_sources_cut": program.translator.num_cut(corpus.test.source),
        },
        "vocabulary": {
            "size": data.vocabulary.size,
            "fingerprint": data.vocabulary.fingerprint,
        },
        "parameters": count_parameters(program.model),
        "seconds": {
            "training": round(trained.curve[-1][SECONDS], 1),
            "compiling": round(trained.compile_seconds, 1),
            "translating": round(seconds, 1),
        },
        "epochs": config.steps / data.train.batches_per_epoch,
        "tokens_per_second": trained.tokens_per_second,
        "averaged_steps": trained.averaged,
        "curve": trained.curve,
        "test": judge(texts, corpus.test.target),
        "baselines": _baselines(config, corpus),
        "dictionary_pairs": min(len(corpus.train), scores.DICTIONARY_PAIRS),
        "samples": _samples(corpus, texts),
        "attention": _attention(config, corpus, program, trained, translations),
    }


def judge(hypotheses: list[str], references: list[str]) -> dict[str, Any]:
    """Every number of a set of translations."""
    exact = sum(a == b for a, b in zip(hypotheses, references, strict=True))
    return {
        **scores.score(hypotheses, references),
        **scores.paper_bleu(hypotheses, references),
        "exact_match": exact / len(references),
    }


def _baselines(config: TranslationConfig, corpus: Corpus) -> dict[str, Any]:
    """What needs no model; for made-up words there is nothing to look up."""
    test = corpus.test
    if config.synthetic:
        return {"copy": judge(scores.copy_baseline(test.source), test.target)}
    words = scores.dictionary_baseline(corpus.train, test.source)
    return {
        "copy": judge(scores.copy_baseline(test.source), test.target),
        "dictionary": judge(words, test.target),
    }


def _samples(corpus: Corpus, translations: list[str]) -> list[dict[str, str]]:
    """Test sentences evenly spaced, so that nobody chose them."""
    step = max(1, len(translations) // SAMPLES)
    return [
        {
            "source": corpus.test.source[i],
            "reference": corpus.test.target[i],
            "translation": translations[i],
        }
        for i in range(0, len(translations), step)[:SAMPLES]
    ]


def _attention(
    config: TranslationConfig,
    corpus: Corpus,
    program: Program,
    trained: Trained,
    translations: list[Translation],
) -> dict[str, Any]:
    """What heads of the last layers attend to when they write one translation."""
    vocabulary, i = program.data.vocabulary, config.map_sentence
    room = config.max_length - 1
    source = [*vocabulary.encode(corpus.test.source[i])[:room], vocabulary.eos_id]
    target = [vocabulary.bos_id, *translations[i].ids]
    model = program.with_params(trained.params)
    weights = model.attention_weights(jnp.asarray([source]), jnp.asarray([target]))
    sides = {
        "encoder": ("source", "source"),
        "decoder": ("target", "target"),
        "cross": ("target", "source"),
    }
    maps = []
    for kind, (queries, keys) in sides.items():
        last = np.asarray(getattr(weights, kind), np.float64)[-1, 0]
        for head in range(min(HEADS, last.shape[0])):
            maps.append(
                {
                    "name": f"{kind}, layer {config.num_layers}, head {head + 1}",
                    "queries": queries,
                    "keys": keys,
                    "weights": last[head].round(3).tolist(),
                }
            )
    pieces = {"source": vocabulary.pieces(source), "target": vocabulary.pieces(target)}
    return {**pieces, "maps": maps}
