"""The table at the end, made from results alone."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from experiments.common import provenance
from experiments.common.tables import aligned, mean_and_spread, show_table
from experiments.compare.training import BITS
from experiments.linear_copy.training import LOSS, SYMBOLS

NORM = "+norm"
COLUMNS = {
    "copy": ("copy: symbols right", "copy: loss"),
    "text": ("text: bits per byte",),
}


def columns(results: Mapping[str, Any]) -> tuple[str, ...]:
    """The head of the table: of the tasks that are there."""
    tasks = [name for task in results["tasks"] for name in COLUMNS[task]]
    return ("feature map", "divided by", *tasks)


def table(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The cells, one tuple a row."""
    tasks = results["tasks"]
    names = next(iter(tasks.values()))
    return [
        (
            name.removesuffix(NORM),
            "RMS of the head" if name.endswith(NORM) else "sum of similarities",
            *(cell for task, rows in tasks.items() for cell in CELLS[task](rows[name])),
        )
        for name in names
    ]


def _copy(runs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return (
        f"{fmean(run[SYMBOLS] for run in runs):.2%}",
        mean_and_spread([run[LOSS] for run in runs], "{:.4f}"),
    )


def _text(runs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return (mean_and_spread([run[BITS] for run in runs], "{:.3f}"),)


CELLS = {"copy": _copy, "text": _text}


def reached(numbers: Mapping[str, Any]) -> str:
    """What a run came to, in a few words."""
    if SYMBOLS in numbers:
        return f"{numbers[SYMBOLS]:.2%} of the symbols"
    return f"{numbers[BITS]:.3f} bits per byte"


def notes(results: Mapping[str, Any]) -> list[str]:
    """What the columns mean, a sentence each."""
    config = results["config"]
    tasks = {
        "copy": f"copy: {config['copy_steps']:,} updates on "
        f"{config['copy_batch_size']} x {config['copy_length']} tokens; the share of "
        "copied symbols that are right, and the loss in nats a target, on sequences "
        "not trained on",
        "text": f"text: {config['text_steps']:,} updates on "
        f"{config['text_batch_size']} x {config['text_length']} bytes; bits per byte "
        "on validation text",
    }
    return [
        *(tasks[name] for name in results["tasks"]),
        "RMS of the head: the sum over keys isn't divided; each head's output is "
        "RMS-normalised, with a learnt scale",
        "exp: stabilised at each position, so that a key's features sum to 1; "
        "polynomial: of degree 2, (d + 1)(d + 2) / 2 features for d",
        "one seed, so no spread: --seeds 2 trains each row twice"
        if len(config["seeds"]) == 1
        else "±: half the distance between the best and the worst seed",
    ]


def markdown(results: Mapping[str, Any]) -> str:
    """The table as aligned Markdown, which reads well as plain text too."""
    return aligned(columns(results), table(results))


def show(results: Mapping[str, Any]) -> None:
    """Print the table and what it means."""
    show_table(columns(results), table(results))
    print("\n".join(notes(results)) + "\n")


def scale(results: Mapping[str, Any]) -> str:
    """How large the run was, where and with what."""
    config, seeds = results["config"], len(results["config"]["seeds"])
    sizes = "; ".join(
        f"{task}, {config[f'{task}_num_layers']} layers of width "
        f"{config[f'{task}_d_model']}, {config[f'{task}_num_heads']} heads"
        for task in results["tasks"]
    )
    return (
        f"{provenance.sentence(results)} Models: {sizes}; {seeds} seed"
        f"{'s' * (seeds > 1)}. Training took "
        f"{results['seconds']['training'] / 60:.0f} minutes in all.\n"
    )
