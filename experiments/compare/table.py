"""The table at the end, made from results alone."""

from collections.abc import Mapping
from typing import Any

from experiments.common import provenance
from experiments.common.live import rate
from experiments.common.tables import aligned, mean_and_spread, show_table

COLUMNS = (
    "model",
    "bits per byte",
    "parameters",
    "forward MFLOP/token",
    "training tokens/s",
    "compile s",
    "peak MB",
)


def table(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The cells, one tuple a model, in the order of COLUMNS."""
    return [
        (
            row["model"],
            bits(row),
            f"{row['parameters']:,}",
            f"{row['forward_flops_per_token'] / 1e6:.3f}",
            rate(row),
            f"{row['compile_seconds']:.1f}",
            _megabytes(row["memory_bytes"]),
        )
        for row in results["rows"]
    ]


def bits(row: Mapping[str, Any]) -> str:
    """The mean over seeds; with several, half the range and their number too."""
    values = [run["validation_bits_per_byte"] for run in row["runs"]]
    return mean_and_spread(values, "{:.3f}")


def notes(results: Mapping[str, Any]) -> list[str]:
    """What the columns mean, a sentence each."""
    reference, config = results["reference"], results["config"]
    one = len(config["seeds"]) == 1
    return [
        *_staged(results),
        f"bits per byte: on {results['corpus']['validation_bytes']:,} bytes of "
        f"validation text; a uniform guess costs "
        f"{reference['uniform_bits_per_byte']:.1f}, a table of byte pairs "
        f"{reference['byte_pairs_bits_per_byte']:.2f}",
        "one seed, so no spread: --seeds 3 trains each model three times"
        if one
        else "±: half the distance between the best and the worst seed",
        f"forward MFLOP/token: XLA's count at {config['length']} tokens, masked slots "
        "included",
        "training tokens/s: of the steps alone; compile s: of the training step, apart",
        "peak MB: arguments, results and temporary arrays of the training step, as XLA "
        "allots them",
    ]


def _staged(results: Mapping[str, Any]) -> list[str]:
    """Rows that went on after they were done: their learning rate fell before."""
    staged = [
        row["model"]
        for row in results["rows"]
        if any(len(run.get("stages") or []) > 1 for run in row["runs"])
    ]
    if not staged:
        return []
    return [
        f"{', '.join(staged)}: trained in stages, since --steps was raised after the "
        "learning rate had fallen; not comparable with rows trained at once"
    ]


def markdown(results: Mapping[str, Any]) -> str:
    """The table as aligned Markdown, which reads well as plain text too."""
    return aligned(COLUMNS, table(results))


def show(results: Mapping[str, Any]) -> None:
    """Print the table: drawn in a terminal, as Markdown elsewhere."""
    show_table(COLUMNS, table(results))


def _megabytes(number: int | None) -> str:
    return "-" if number is None else f"{number / 1e6:.1f}"


def samples(results: Mapping[str, Any]) -> str:
    """The prompt, and what each model made of it."""
    blocks = [("prompt, from the validation text", results["prompt"])]
    blocks += [(row["model"], row["runs"][0]["sample"]) for row in results["rows"]]
    return "\n".join(f"--- {title}\n{_printable(text)}" for title, text in blocks)


def _printable(text: str) -> str:
    """The text with what would move the cursor of a terminal written out."""
    return "".join(
        c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode()
        for c in text
    )


def scale(results: Mapping[str, Any]) -> str:
    """How large the run was, where and with what."""
    config, corpus, seconds = results["config"], results["corpus"], results["seconds"]
    tokens = config["steps"] * config["batch_size"] * config["length"]
    seeds = len(config["seeds"])
    return (
        f"{provenance.sentence(results)} {config['num_layers']} layers of width "
        f"{config['d_model']}; "
        f"{config['steps']:,} steps of {config['batch_size']} x {config['length']} "
        f"bytes, {tokens / 1e6:.1f} MB in all; {seeds} seed{'s' * (seeds > 1)}. Text: "
        f"{corpus['name']}, {corpus['training_bytes'] / 1e6:.1f} MB. Training took "
        f"{seconds['training']:.0f} s, compiling {seconds['compiling']:.0f} s.\n"
    )
