"""The tables at the end, made from results alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.common import provenance
from experiments.common.tables import aligned, show_table
from experiments.translation.config import scheduled_steps

COLUMNS = ("translation by", "BLEU", "chrF", "tokenised, split BLEU", "exact")
CURVE = ("minutes of training", "steps", "validation loss", "validation BLEU, greedy")


def table(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The numbers on the test sentences: the model's and the baselines'."""
    rows = {"the model": results["test"], **results["baselines"]}
    return [
        (
            name,
            f"{numbers['bleu']:.2f}",
            f"{numbers['chrf']:.2f}",
            f"{numbers['tokenised_compound_split_bleu']:.2f}",
            f"{numbers['exact_match']:.1%}",
        )
        for name, numbers in rows.items()
    ]


def curve(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Quality over the time of training, in at most a dozen lines."""
    points = results["curve"]
    step = -(-len(points) // 12)
    return [
        (
            f"{point['training_seconds'] / 60:.1f}",
            f"{point['step']:,}",
            f"{point['validation_loss']:.3f}",
            f"{point['validation_bleu']:.2f}",
        )
        for point in points[::-1][::step][::-1]
    ]


def show(results: Mapping[str, Any]) -> None:
    """Print the tables, samples and notes."""
    print(f"\n{samples(results)}\n", flush=True)
    show_table(CURVE, curve(results))
    show_table(COLUMNS, table(results))
    print("\n".join(notes(results)) + "\n")


def markdown(results: Mapping[str, Any]) -> str:
    """The tables, and what the model makes of some sentences."""
    return "\n".join(
        [
            aligned(COLUMNS, table(results)),
            aligned(CURVE, curve(results)),
            f"```\n{samples(results)}\n```\n",
        ]
    )


def samples(results: Mapping[str, Any]) -> str:
    """Test sentences, evenly spaced."""
    blocks = [
        f"source       {sample['source']}\n"
        f"reference    {sample['reference']}\n"
        f"translation  {sample['translation']}"
        for sample in results["samples"]
    ]
    return "\n\n".join(blocks)


def notes(results: Mapping[str, Any]) -> list[str]:
    """What the numbers mean."""
    test, steps = results["test"], results["averaged_steps"]
    return [
        f"{test['sentences']:,} test sentences, translated in "
        f"{results['seconds']['translating']:.0f} s from the mean of {len(steps)} "
        f"checkpoints (steps {_listed(steps)}){_missing(results)}",
        *_too_long(results),
        *_made_up(results),
        f"BLEU, detokenised: {test['bleu_signature']}",
        f"chrF: {test['chrf_signature']}",
        "tokenised, split BLEU: to compare with Vaswani et al. 2017 alone, "
        f"{test['tokenised_compound_split_bleu_signature']}",
        "copy: the source as its own translation; dictionary: word for word, by IBM "
        f"model 1 on {_dictionary_pairs(results)}",
        "validation loss: nats a piece, without smoothing, of the parameters at that "
        "step, not of a mean",
    ]


def _too_long(results: Mapping[str, Any]) -> list[str]:
    """What --max-length did to the sentences that are judged."""
    corpus, config = results["corpus"], results["config"]
    if "test_sources_cut" not in corpus:
        return []
    return [
        f"longer than {config['max_length']} pieces: {corpus['test_sources_cut']:,} of "
        f"{corpus['pairs']['test']:,} test sources, which were cut, and "
        f"{corpus['validation_pairs_left_out']:,} of {corpus['pairs']['valid']:,} "
        "validation pairs, left out of the validation loss"
    ]


def _missing(results: Mapping[str, Any]) -> str:
    """Which checkpoints the mean lacks: an earlier command didn't keep or save them."""
    config, averaged = results["config"], results["averaged_steps"]
    if "average" not in config:
        return ""
    lacks = [step for step in scheduled_steps(config) if step not in averaged]
    return f"; without steps {_listed(lacks)}, which are not there" if lacks else ""


def _listed(steps: Sequence[int]) -> str:
    return ", ".join(f"{step:,}" for step in steps)


def _dictionary_pairs(results: Mapping[str, Any]) -> str:
    there = results["corpus"]["pairs"]["train"]
    used = results.get("dictionary_pairs", there)
    few = f"{used:,} of the {there:,} training pairs, evenly spaced"
    return few if used < there else "the training pairs"


def attention(config: Mapping[str, Any]) -> str:
    """Which mechanism attends where.

    >>> attention({"mechanism": "linear", "encoder_mechanism": None,
    ...            "cross_mechanism": "softmax", "exclusive": True})
    'exclusive self-attention linear, cross-attention softmax'
    """
    decoder = config["mechanism"]
    encoder = config["encoder_mechanism"] or decoder
    both = (
        encoder if encoder == decoder else f"{encoder} (encoder), {decoder} (decoder)"
    )
    exclusive = "exclusive " if config["exclusive"] else ""
    return (
        f"{exclusive}self-attention {both}, cross-attention {config['cross_mechanism']}"
    )


def _made_up(results: Mapping[str, Any]) -> list[str]:
    if not results["config"]["synthetic"]:
        return []
    return ["a made-up sentence is one word, of which BLEU counts none: read exact"]


def scale(results: Mapping[str, Any]) -> str:
    """How large the run was, where and with what."""
    config, corpus = results["config"], results["corpus"]
    seconds, rate = results["seconds"], results["tokens_per_second"]
    return (
        f"{provenance.sentence(results)} {config['num_layers']} + "
        f"{config['num_layers']} layers of width {config['d_model']}, "
        f"{attention(config)}, {results['parameters']:,} parameters; "
        f"{config['steps']:,} steps, "
        f"{results['epochs']:.1f} epochs of {corpus['pairs']['train']:,} pairs "
        f"({corpus['name']}). Training took {seconds['training'] / 60:.0f} minutes at "
        f"{rate or 0:,.0f} target pieces a second, compiling "
        f"{seconds['compiling']:.0f} s.\n"
    )
