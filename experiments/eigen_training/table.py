"""The table at the end, made from results alone."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from experiments.common import provenance
from experiments.common.live import rate
from experiments.common.tables import aligned, mean_and_spread, show_table

COLUMNS = (
    "model",
    "right, held out",
    "of full",
    "loss",
    "parameters",
    "training tokens/s",
    "compile s",
)


def table(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The cells, one tuple a model, in the order of COLUMNS."""
    whole = {row["model"]: fmean(right(row)) for row in results["rows"]}
    full = whole.get("full")
    return [
        (
            row["model"],
            mean_and_spread([100 * value for value in right(row)], "{:.1f}"),
            f"{100 * whole[row['model']] / full:.1f} %" if full else "-",
            f"{fmean(run['test']['held_out_loss'] for run in row['runs']):.3f}",
            f"{row['runs'][0]['parameters']:,}",
            rate(row["runs"][0]),
            f"{row['runs'][0]['compile_seconds']:.1f}",
        )
        for row in results["rows"]
    ]


def right(row: Mapping[str, Any]) -> list[float]:
    """The share of right answers on the test side, one a seed."""
    return [share(run) for run in row["runs"]]


def share(run: Mapping[str, Any]) -> float:
    names = [name for name in run["test"] if name.endswith("accuracy")]
    return run["test"][names[0]]


def reached(run: Mapping[str, Any]) -> str:
    return f"{100 * share(run):.1f} % right"


def show(results: Mapping[str, Any]) -> None:
    """Print the table and notes."""
    print()
    show_table(COLUMNS, table(results))
    print("\n".join(notes(results)) + "\n")


def markdown(results: Mapping[str, Any]) -> str:
    return aligned(COLUMNS, table(results))


def notes(results: Mapping[str, Any]) -> list[str]:
    """What the columns mean, a sentence each."""
    data, config = results["data"], results["config"]
    masked = config["task"] == "mlm"
    what = "masked pieces" if masked else "texts"
    begins = (
        "keys spread evenly, each key's logit begins as that of the nearest selected"
        if masked
        else f"keys and maps from the scores of {config['statistics']} training texts"
    )
    return [
        f"right: % of {what} of {data['texts']['test']:,} held-out sequences; always "
        f"the most frequent answer is right in {100 * data['most_frequent']:.1f} %",
        "model-K: K scores a query; fixed: the map stays; learnt: one a layer; shared: "
        f"one for all layers; {begins}",
        "±: half the distance between the best and the worst seed",
    ]


def scale(results: Mapping[str, Any]) -> str:
    """How large the run was, where and with what."""
    config, data = results["config"], results["data"]
    minutes = sum(
        (run["training_seconds"] or 0) / 60
        for row in results["rows"]
        for run in row["runs"]
    )
    return (
        f"{provenance.sentence(results)} n = {config['length']}, sequences of up to "
        f"{data['length']} tokens of {data['name']} ({data['texts']['train']:,}); "
        f"{config['steps']:,} updates of {config['batch_size']}, "
        f"{len(config['seeds'])} seeds. {minutes:.0f} minutes of training in all.\n"
    )
