"""The table at the end, made from results alone."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from experiments.common import provenance
from experiments.common.tables import aligned, mean_and_spread, show_table
from experiments.linear_copy.training import LOSS, SYMBOLS

COLUMNS = (
    "model",
    "symbols right",
    "worst seed",
    "whole copies written",
    "validation loss",
    "99 % after updates",
    "parameters",
    "ms an update",
)
ENOUGH = 0.99


def table(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The cells, one tuple a model, in the order of COLUMNS."""
    return [
        (
            row["model"],
            f"{fmean(_values(row, SYMBOLS)):.2%}",
            f"{min(_values(row, SYMBOLS)):.2%}",
            _copies(row),
            mean_and_spread(_values(row, LOSS), "{:.4f}"),
            _updates(row),
            f"{row['parameters']:,}",
            _milliseconds(row),
        )
        for row in results["rows"]
    ]


def _values(row: Mapping[str, Any], name: str) -> list[float]:
    return [run[name] for run in row["runs"]]


def _copies(row: Mapping[str, Any]) -> str:
    """The share of whole copies, a dash for what can't write."""
    shares = _values(row, "generated_copies_right")
    found = [share for share in shares if share is not None]
    return f"{fmean(found):.1%}" if found else "-"


def reached(run: Mapping[str, Any]) -> int | None:
    """The first evaluation with enough symbols right; None where there is none."""
    return next((step for step, _, symbols in run["curve"] if symbols >= ENOUGH), None)


def _updates(row: Mapping[str, Any]) -> str:
    """Each seed's own number, since they may be far apart."""
    steps = [reached(run) for run in row["runs"]]
    return ", ".join("-" if step is None else f"{step:,}" for step in steps)


def _milliseconds(row: Mapping[str, Any]) -> str:
    known = [
        1000 * run["training_seconds"] / run["steps"]
        for run in row["runs"]
        if run["training_seconds"]
    ]
    return f"{fmean(known):.0f}" if known else "-"


def notes(results: Mapping[str, Any]) -> list[str]:
    """What the columns mean, a sentence each."""
    config = results["config"]
    rows = config["validation_batches"] * config["batch_size"]
    return [
        f"symbols right: of the copied symbols of {rows:,} sequences, each predicted "
        "from the true ones before it; the separator doesn't count",
        f"whole copies written: of {config['generated_rows']} sequences, token after "
        "token from the model's own; - cannot be decoded",
        "validation loss: nats a target, separator included, as in training; ±: half "
        "the distance between the seeds that are farthest apart",
        "99 % after updates: the first evaluation that had so many symbols right, for "
        f"each seed; the rate falls to a tenth after {config['decay_after']:,} updates",
        "ms an update: of training alone, on a machine that may have had other work",
        _seeds(results),
        *_hashes(results),
    ]


def _seeds(results: Mapping[str, Any]) -> str:
    """Of which seeds the means are, and what models of one seed share."""
    seeds = {
        row["model"]: ", ".join(str(run["seed"]) for run in row["runs"])
        for row in results["rows"]
    }
    share = "models of one seed saw the same batches"
    first = next(iter(seeds.values()))
    if len(set(seeds.values())) == 1:
        return f"{'seeds' if ',' in first else 'seed'} {first} in every row: {share}"
    each = "; ".join(f"{model} {found}" for model, found in seeds.items())
    return (
        f"seeds differ, so that means do not compare: {each}; {share}, and claims of a "
        "lower loss are judged on the seeds that two rows share"
    )


def _hashes(results: Mapping[str, Any]) -> list[str]:
    """What lsh-N is, where there is one."""
    if not any(row["model"].startswith("lsh-") for row in results["rows"]):
        return []
    size = results["config"]["bucket_size"]
    return [
        "lsh-N: N rounds of hashes, drawn anew at each update; all validation is with "
        f"one draw of them, whatever the seed; tokens attend within chunks of {size} "
        "and to the chunk before; queries are the keys, which saves parameters"
    ]


def markdown(results: Mapping[str, Any]) -> str:
    """The table as aligned Markdown, which reads well as plain text too."""
    return aligned(COLUMNS, table(results))


def show(results: Mapping[str, Any]) -> None:
    """Print the table and what it means."""
    show_table(COLUMNS, table(results))
    print("\n".join(notes(results)) + "\n")


def scale(results: Mapping[str, Any]) -> str:
    """How large the run was, where and with what."""
    config, seconds = results["config"], results["seconds"]
    seeds = len(config["seeds"])
    return (
        f"{provenance.sentence(results)} {config['num_layers']} layers of width "
        f"{config['d_model']}, {config['num_heads']} heads, positions "
        f"{config['positions']}, {config['norm_placement']}-norm, dropout "
        f"{config['dropout_rate']:g}; {config['steps']:,} updates on "
        f"{config['batch_size']} x {config['length']} tokens of "
        f"{config['num_symbols']} symbols; {seeds} seed{'s' * (seeds > 1)}. Training "
        f"took {seconds['training'] / 60:.0f} minutes in all.\n"
    )
